"""What every network offers: features of a token sequence, and a head that scores them where asked."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.backbones.cache import KVCache
from unmask.registry import Registry

Tokens = Int[Tensor, "rows length"]
Features = Float[Tensor, "rows length width"]
# (query positions, key positions) -> may the query see the key?
Rule = Callable[[Tensor, Tensor], Tensor]


class Backbone(nn.Module, ABC):
    """tokens -> features -> logits, the last step only where somebody needs it."""

    causal: ClassVar[bool] = False  # does a token see only those before it?
    head: nn.Linear
    time_conditioning: bool = False

    @abstractmethod
    def features(
        self,
        tokens: Tokens,
        condition: Float[Tensor, "rows"] | None = None,
        *,
        valid: Bool[Tensor, "rows length"] | None = None,
        positions: Int[Tensor, "length"] | None = None,
        mask: Rule | None = None,
        cache: KVCache | None = None,
    ) -> Features:
        """What the head reads, at every token; `valid` is False on padding, which nobody attends to."""

    def logits(self, h_at: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocabulary"]:
        """Scores at chosen features."""
        return self.head(h_at)


BACKBONES: Registry[Backbone] = Registry("backbone")


def attention_mask(
    queries: Int[Tensor, "queries"],
    keys: Int[Tensor, "keys"],
    valid: Bool[Tensor, "rows keys"] | None,
    rule: Rule | None,
) -> Bool[Tensor, "#rows 1 #queries keys"] | None:
    """Who may see whom: the rule over positions, and never padding; None when everybody sees everybody."""
    seen = None if rule is None else rule(queries[:, None], keys[None, :])[None, None]
    if valid is None:
        return seen
    real = valid[:, None, None, :]
    return real if seen is None else torch.logical_and(real, seen)
