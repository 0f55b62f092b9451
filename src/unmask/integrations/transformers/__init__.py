"""Models of unmask as transformers models; importing this package registers the Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)

from unmask.integrations.transformers.authors import MDLMConfig, MDLMForMaskedLM, MDLMModel
from unmask.integrations.transformers.classification import UnmaskForSequenceClassification
from unmask.integrations.transformers.configuration import UnmaskConfig
from unmask.integrations.transformers.modeling import UnmaskForMaskedLM, UnmaskModel

__all__ = ["UnmaskConfig", "UnmaskForMaskedLM", "UnmaskForSequenceClassification", "UnmaskModel"]

for _config, _model, _masked in (
    (UnmaskConfig, UnmaskModel, UnmaskForMaskedLM),
    (MDLMConfig, MDLMModel, MDLMForMaskedLM),
):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoModel.register(_config, _model, exist_ok=True)
    AutoModelForMaskedLM.register(_config, _masked, exist_ok=True)
AutoModelForSequenceClassification.register(
    UnmaskConfig, UnmaskForSequenceClassification, exist_ok=True
)
