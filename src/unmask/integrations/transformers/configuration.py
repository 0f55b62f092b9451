"""Our configuration as transformers knows configurations."""

from typing import Any

from transformers import PretrainedConfig

from unmask.formats.huggingface import MODEL_TYPE


class UnmaskConfig(PretrainedConfig):
    """What `save_pretrained` wrote: the whole configuration of the run, and the special ids."""

    model_type = MODEL_TYPE

    def __init__(
        self,
        run: dict[str, Any] | None = None,
        vocabulary: dict[str, Any] | None = None,
        generation: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.run = run or {}
        self.vocabulary = vocabulary or {}
        self.generation = generation or {}  # what `generate` does unless told otherwise
        super().__init__(**settings)
