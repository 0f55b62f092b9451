"""What every network offers: features of a token sequence, and a head that scores them where asked."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.layers.attention import Rule
from unmask.backbones.layers.dropout import Keys, draw_keys
from unmask.backbones.layers.inference_weights import Freezable
from unmask.backbones.layers.ops import ALIGNED
from unmask.backbones.layers.packed_batch import Call
from unmask.backbones.layers.state import KVCache
from unmask.registry import Registry
from unmask.shapes import Tokens


class Backbone(Freezable, ABC):
    """tokens -> features -> logits, the last step only where somebody needs it."""

    causal: ClassVar[bool] = False  # does a token see only those before it?
    # what is worth compiling; not the tables of rotary angles, which a compiler would work out
    # again for every number that is rotated
    compiled: ClassVar[str] = "features"
    head: nn.Linear
    time_conditioning: bool = False
    longest: int | None = None  # tokens of a row, where positions are learned; None is any number
    dropout_keys: Keys | None = None  # of the rows to come, in training
    frozen: tuple[Tensor, Tensor] | None = None  # the head's weight and bias

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
        at: Int[Tensor, "tokens"] | None = None,
    ) -> Float[Tensor, "*tokens width"]:
        """What the head reads, at every token; `valid` is False on padding, which nobody attends to.

        Whoever needs some tokens only says which: `at` counts them through all rows, none twice.
        """

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """Features of several calls, each what it is alone; networks that can share the work.

        All calls want all of their tokens, or all of them want some.
        """
        return [
            self.features(tokens, condition, positions=positions, cache=cache, at=at)
            for tokens, condition, positions, cache, at in calls
        ]

    def keys(self, tokens: Tokens) -> Keys | None:
        """What decides the dropout of each row: the first of the keys that were set, or else fresh ones."""
        if not self.training:
            return None
        if self.dropout_keys is None:
            return draw_keys(len(tokens), tokens.device)
        return self.dropout_keys[: len(tokens)]

    def logits(self, h_at: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocabulary"]:
        """Scores at chosen features."""
        if self.usable is None:
            return self.head(h_at)
        weight, bias = self.usable
        return F.linear(h_at.to(weight.dtype), weight, bias)[..., : self.head.out_features]

    def freeze(self, dtype: torch.dtype) -> None:
        """Works out once, for inference, the weights as products of this precision read them."""
        missing = -self.head.out_features % ALIGNED if self.head.weight.is_cuda else 0
        weight, bias = self.head.weight.detach().to(dtype), self.head.bias.detach().to(dtype)
        self.edition += 1  # not thawed meanwhile: another thread may be reading
        self.frozen = F.pad(weight, (0, 0, 0, missing)), F.pad(bias, (0, missing))

    def __getstate__(self) -> dict[str, Any]:
        """A copy is not compiled: what was compiled reads the weights of the original."""
        return {name: value for name, value in vars(self).items() if name != self.compiled}


BACKBONES: Registry[Backbone] = Registry("backbone")
