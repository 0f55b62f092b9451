"""Locally typical sampling (Meister et al., 2023), as a logits processor."""

from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.generation.logits_processor import LOGITS_PROCESSORS, LogitsProcessor
from unmask.options import option


@LOGITS_PROCESSORS.register("typical")
class Typical(LogitsProcessor):
    """Keeps the tokens whose information is nearest to the entropy, until they make up a mass."""

    @dataclass(frozen=True)
    class Options:
        """Settings of typical sampling."""

        mass: float = option(0.95, gt=0, le=1, help="share of the probability to keep")

    def __call__(self, log_probs: Tensor, ids: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        """Excludes the tokens after the mass is reached. The first token always stays."""
        log_probs = log_probs.log_softmax(-1)
        entropy = torch.special.entr(log_probs.exp()).sum(-1, keepdim=True)
        order = (log_probs + entropy).abs().argsort(dim=-1, stable=True)
        chances = log_probs.gather(-1, order).exp()
        barred = chances.cumsum(-1) - chances >= self.options.mass
        return log_probs.masked_fill(barred.scatter(-1, order, barred), float("-inf"))
