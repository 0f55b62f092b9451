"""A stand-in for a dataset of the hub."""

from typing import Any


class HubDataset(list):
    """Records, with the columns of the first one and features by column."""

    def __init__(self, records: list[dict[str, Any]], **features: Any) -> None:
        super().__init__(records)
        self.column_names = list(records[0])
        self.features = dict.fromkeys(self.column_names, "string") | features

    def select_columns(self, names: list[str]) -> list[dict[str, Any]]:
        return [{name: row[name] for name in names} for row in self]
