"""Caduceus (arXiv 2403.03234): BiMamba over a strand of DNA and its reverse complement."""

from dataclasses import dataclass
from functools import cache
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.layers.attention import Call, Features
from unmask.backbones.layers.ops import taken
from unmask.errors import UnmaskError
from unmask.extensions.dna.backbones.mamba import BiMamba, MambaConfig
from unmask.options import option
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary

VARIANTS = ("ps", "ph")


@cache  # a tensor made once is safe in a CUDA graph, and needs no copy from the host
def _complements(ids: tuple[int, ...], device: torch.device) -> Int[Tensor, "vocabulary"]:
    with torch.inference_mode(False):
        return torch.tensor(ids, device=device)


def strand_sum(h: Float[Tensor, "*tokens doubled"]) -> Float[Tensor, "*tokens width"]:
    """The sum of both strands' features. Its mean over a text is that of the reverse complement.

    Args:
        h: Features of a Caduceus network, which hold both strands.

    Returns:
        Features of half the width, for a classifier of texts.

    Example:
        >>> strand_sum(torch.tensor([1.0, 2.0, 30.0, 40.0]))
        tensor([41., 32.])
    """
    first, second = h.chunk(2, -1)
    return first + second.flip(-1)


class StrandHead(nn.Linear):
    """Logits from the features of both strands: W h_1 + W[complements] h_2, h_2 reversed in width.

    The matrix W may be the embedding's. There is no bias, which the complement would have to preserve.
    With `post_hoc`, training sees one strand in both halves, and logits are W (h_1 + h_2).
    """

    def __init__(self, weight: Tensor, complement_ids: tuple[int, ...], post_hoc: bool) -> None:
        super().__init__(1, 1, bias=False, device="meta")  # the weight is another's
        self.weight = weight
        self.out_features, half = weight.shape
        self.in_features = 2 * half
        self.complement_ids, self.post_hoc = complement_ids, post_hoc

    def forward(self, h: Float[Tensor, "*tokens doubled"]) -> Float[Tensor, "*tokens vocabulary"]:
        if self.post_hoc and self.training:
            return F.linear(strand_sum(h), self.weight)
        first, second = h.chunk(2, -1)
        complements = _complements(self.complement_ids, h.device)
        other = F.linear(second.flip(-1), self.weight.index_select(0, complements))
        return F.linear(first, self.weight) + other


@BACKBONES.register("caduceus")
class Caduceus(BiMamba):
    """BiMamba whose predictions for the reverse complement of DNA are the reverse complement of its own.

    Features hold both strands: [f(x), reversed f(rc(x))], where `reversed` flips positions and width. The
    variant `ps` (parameter sharing) is equivariant in training and evaluation. The variant `ph`
    (post hoc) trains f on x alone, in both halves, and averages x and rc(x) in evaluation.
    """

    tokens_only = True

    @dataclass(frozen=True)
    class Config(MambaConfig):
        width: int = 118
        variant: str = option("ps", among=VARIANTS)

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        if vocabulary.complement_ids is None:
            raise UnmaskError(
                "backbone caduceus needs a tokenizer with complements: set data.tokenizer.kind dna"
            )
        self.complement_ids = vocabulary.complement_ids
        self.post_hoc = config.variant == "ph"
        weight = cast(nn.Parameter, self.head.weight)
        self.head = StrandHead(weight, self.complement_ids, self.post_hoc)

    def compute(self, call: Call) -> Float[Tensor, "*tokens width"]:
        """Features of both strands, twice as wide as the network."""
        self.refuse(call.rule)
        if self.post_hoc and self.training:
            h = self.run(call.inputs, call.condition, call.valid, None)
            h = torch.cat([h, h.flip(-1)], -1)
        else:
            h = self._both(call.inputs, call.condition, call.valid)
        h = h / 2 if self.post_hoc else h
        return h if call.at is None else taken(h, call.at)

    def _both(self, inputs: Inputs, condition: Tensor | None, valid: Tensor | None) -> Features:
        """[f(x), reversed f(rc(x))], from one forward pass over both strands."""
        rows = torch.cat([inputs, self.reverse_complement(inputs)])
        if condition is not None and len(condition) > 1:
            condition = condition.repeat(2)
        if valid is not None:
            valid = torch.cat([valid, valid.flip(1)])
        h, other = self.run(rows, condition, valid, None).chunk(2)
        return torch.cat([h, other.flip(1, 2)], -1)

    def hidden(
        self,
        inputs: Inputs,
        condition: Tensor | None = None,
        *,
        valid: Tensor | None = None,
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length width"]:
        """Features for classification: the sum of both strands, whose mean over a text has no strand."""
        return strand_sum(self.features(inputs, condition, valid=valid))

    def replace_head(self, outputs: int) -> None:
        """Replaces the head by a new one, which reads the sum of both strands.

        Args:
            outputs: Number of outputs of the new head.
        """
        super().replace_head(outputs)
        self.head = nn.Linear(self.width // 2, outputs, device=self.head.weight.device)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def reverse_complement(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """The reverse complement of rows. Padding at the end moves to the start.

        Args:
            tokens: Token ids.

        Returns:
            The ids of the other strand, read in its own direction.
        """
        return _complements(self.complement_ids, tokens.device)[tokens].flip(1)
