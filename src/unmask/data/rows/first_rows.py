"""The first rows of a set of rows, for a shorter validation."""

import hashlib

import torch

from unmask.data.rows.token_rows import Rows


class FirstRows:
    """The first `count` rows, or all if it is 0. Bytes and characters of a part are estimated."""

    def __init__(self, rows: Rows, count: int) -> None:
        self._rows = rows
        self._count = min(count or len(rows), len(rows))
        self.tokens = int(rows.counted(range(self._count)).sum())
        self.text_estimated = self._count < len(rows)
        self.left_out = rows.left_out
        share = self.tokens / rows.tokens  # the estimate: text in proportion to tokens
        self.bytes = round(rows.bytes * share)
        self.characters = round(rows.characters * share)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rows[rows]

    def given(self, rows: range) -> torch.Tensor | None:
        return self._rows.given(rows)

    def counted(self, rows: range) -> torch.Tensor:
        return self._rows.counted(rows)

    def fingerprint(self) -> str:
        """A hash of everything that a bound depends on: tokens, masks, counts and bytes."""
        found = hashlib.blake2b(
            repr((len(self), self.bytes, self.characters)).encode(), digest_size=16
        )
        for start in range(0, len(self), 1024):
            part = range(start, min(start + 1024, len(self)))
            x, valid = self[part]
            for values in (x, valid, self.given(part), self.counted(part)):
                if values is not None:
                    found.update(values.contiguous().numpy().tobytes())
        return found.hexdigest()
