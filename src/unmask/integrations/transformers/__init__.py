"""Models of unmask as transformers models; importing this package registers the Auto classes."""

from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from unmask.integrations.transformers.configuration import UnmaskConfig
from unmask.integrations.transformers.modeling import UnmaskForMaskedLM, UnmaskModel

__all__ = ["UnmaskConfig", "UnmaskForMaskedLM", "UnmaskModel"]

AutoConfig.register(UnmaskConfig.model_type, UnmaskConfig, exist_ok=True)
AutoModel.register(UnmaskConfig, UnmaskModel, exist_ok=True)
AutoModelForMaskedLM.register(UnmaskConfig, UnmaskForMaskedLM, exist_ok=True)
