"""Sequence classifiers for transformers:
AutoModelForSequenceClassification and Trainer accept them.
"""

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput

from unmask.errors import UnmaskError
from unmask.integrations.transformers.configuration import UnmaskConfig
from unmask.integrations.transformers.modeling import UnmaskPreTrainedModel
from unmask.methods.method import padding
from unmask.methods.sequence_classifier import as_classifier


class UnmaskForSequenceClassification(UnmaskPreTrainedModel):
    """Logits of the classes of each text, or the number of a regression; with `labels`,
    the mean loss.
    """

    def __init__(self, config: UnmaskConfig) -> None:
        super().__init__(config)
        method = as_classifier(self.method)
        if method is None:
            raise UnmaskError(
                "this model has no classes: load it with AutoModelForMaskedLM, or fine-tune a classifier"
            )
        if method.pooler is not None:
            self.pooler = method.pooler

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        token_type_ids: Tensor | None = None,
        **others: Any,
    ) -> SequenceClassifierOutput | tuple[Tensor, ...]:
        """The logits [rows, classes]. Token types are ignored:
        EOS divides the sentences of a pair.
        """
        tokens, named = self._checked_inputs(input_ids, others, return_dict)
        method = as_classifier(self.method)
        assert method is not None
        valid = None
        if attention_mask is not None:
            valid = padding(attention_mask.bool(), tokens.device)
        with self._kernel():
            logits = method.logits(tokens, valid)
        output = SequenceClassifierOutput(logits=logits)
        if labels is not None:
            output.loss = method.loss(logits, labels).mean()
        return output if named else output.to_tuple()
