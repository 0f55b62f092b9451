"""Models that the authors of MDLM published,
read by transformers' Auto classes without remote code.
"""

from typing import Any

from transformers import PretrainedConfig

from unmask.errors import UnmaskError
from unmask.integrations.transformers.modeling import (
    UnmaskForMaskedLM,
    UnmaskModel,
    UnmaskPreTrainedModel,
)
from unmask.model import load

# options of the Auto classes without effect here; peft adds the last one
_IGNORED = ("config", "trust_remote_code", "adapter_kwargs")


class MDLMConfig(PretrainedConfig):
    """The config.json of kuleshov-group/mdlm-owt and other models of type mdlm."""

    model_type = "mdlm"


class _Published(UnmaskPreTrainedModel):
    """A published model. `from_pretrained` reads it with `unmask.load` and
    returns an instance of `own`.
    """

    config_class = MDLMConfig
    own: type[UnmaskPreTrainedModel]

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any = None, *args: Any, **options: Any
    ) -> Any:
        """The network in eval mode, with an `UnmaskConfig`.

        Args:
            pretrained_model_name_or_path: A folder, or a name on the hub.
            args: Positional arguments are an error.
            options: `revision`, `dtype` or `torch_dtype`, `attn_implementation` and
                `output_loading_info`.
        """
        name = pretrained_model_name_or_path
        kept = {key: value for key, value in options.items() if key not in _IGNORED}
        dtype = kept.pop("dtype", None) or kept.pop("torch_dtype", None)
        revision, info = kept.pop("revision", None), kept.pop("output_loading_info", False)
        attention = kept.pop("attn_implementation", None)
        unknown = [key for key, value in kept.items() if not key.startswith("_") and value]
        if args or unknown:
            raise UnmaskError(
                f"{name} is read by unmask, which takes no {', '.join(unknown) or 'positional arguments'}: "
                "leave it out"
            )
        built = cls.own.from_model(load(name, device="cpu", revision=revision))
        if attention is not None:
            built.set_attn_implementation(attention)
        if dtype not in (None, "auto"):
            built = built.to(dtype)
        return (built, {"missing_keys": [], "mismatched_keys": []}) if info else built


class MDLMModel(_Published, UnmaskModel):
    """The features of a published MDLM, for AutoModel."""

    own = UnmaskModel


class MDLMForMaskedLM(_Published, UnmaskForMaskedLM):
    """A published MDLM with its head, for AutoModelForMaskedLM."""

    own = UnmaskForMaskedLM
