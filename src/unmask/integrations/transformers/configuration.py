"""The configuration class for transformers."""

from typing import Any

from transformers import PretrainedConfig

from unmask.formats.huggingface import MODEL_TYPE
from unmask.integrations.transformers.row_end import checked_length


class UnmaskConfig(PretrainedConfig):
    """The config.json of `save_pretrained`: run configuration, special ids, generation defaults."""

    model_type = MODEL_TYPE

    def __init__(
        self,
        run: dict[str, Any] | None = None,
        vocabulary: dict[str, Any] | None = None,
        generation: dict[str, Any] | None = None,
        row_length: int | None = None,
        **settings: Any,
    ) -> None:
        self.run = run or {}
        self.vocabulary = vocabulary or {}
        self.generation = generation or {}  # defaults of `generate`
        # shorter rows are continued by masks, for callers that generate a row in blocks
        self.row_length = checked_length(row_length)
        super().__init__(**settings)
