"""Our configuration as transformers knows configurations."""

from typing import Any

from transformers import AutoConfig, PretrainedConfig

MODEL_TYPE = "unmask"


class UnmaskConfig(PretrainedConfig):
    """What `save_pretrained` wrote: the whole configuration of the run, and the special ids."""

    model_type = MODEL_TYPE

    def __init__(
        self,
        run: dict[str, Any] | None = None,
        vocabulary: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.run = run or {}
        self.vocabulary = vocabulary or {}
        super().__init__(**settings)


def register() -> None:
    """Makes AutoConfig know it."""
    AutoConfig.register(MODEL_TYPE, UnmaskConfig, exist_ok=True)
