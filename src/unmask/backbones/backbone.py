"""The seam of networks: features of a sequence, and a head that scores them at chosen places."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.layers.attention import AttentionRule
from unmask.backbones.layers.dropout import Keys, draw_keys
from unmask.backbones.layers.inference_weights import InferenceWeights
from unmask.backbones.layers.ops import ALIGNED
from unmask.backbones.layers.packed_batch import Call
from unmask.backbones.layers.state import KVState, State
from unmask.registry import Registry
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary


class Backbone(InferenceWeights, ABC):
    """inputs -> features -> logits; the head is computed at chosen places only.

    A method that diffuses vectors replaces `embedding`, which then reads vectors, and `head`, which then
    writes vectors.
    """

    causal: bool = False  # a token sees only those before it; a Config with this field decides
    # what is worth compiling; not the tables of rotary angles, which a compiler would work out
    # again for every number that is rotated
    compiled: ClassVar[str] = "features"
    embedding: nn.Module  # token ids to features
    head: nn.Linear  # features to a score of each id
    time_conditioning: bool = False
    longest: int | None = None  # tokens of a row, where positions are learned; None is any number
    dropout_keys: Keys | None = None  # of the rows to come, in training
    frozen: tuple[Tensor, Tensor] | None = None  # the head's weight and bias

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config = config  # the backbone's own Config

    @abstractmethod
    def features(
        self,
        inputs: Inputs,
        condition: Float[Tensor, "rows"] | None = None,
        *,
        valid: Bool[Tensor, "rows length"] | None = None,
        positions: Int[Tensor, "length"] | None = None,
        rule: AttentionRule | None = None,
        state: State | None = None,
        at: Int[Tensor, "tokens"] | None = None,
    ) -> Float[Tensor, "*tokens width"]:
        """The input of the head.

        Args:
            inputs: token ids, or vectors if the method diffuses vectors.
            condition: the noise level of each row, for networks with time conditioning.
            valid: False at padding, which changes nothing elsewhere.
            positions: the places of the inputs in their text; 0, 1, … unless given.
            rule: (query positions, key positions) to True where attention is allowed.
            state: the network's memory of the tokens before these, which is brought up to date.
            at: the tokens to compute, counted through all rows, none twice; all unless given.

        Returns:
            features [rows, length, width], or [tokens, width] with `at`.
        """

    def new_state(self, rows: int, capacity: int) -> State:
        """An empty memory for `rows` texts of up to `capacity` tokens, which `features` fills."""
        return KVState(capacity)

    @property
    def width(self) -> int:
        """The width of the features."""
        return self.head.in_features

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """Features of several calls, each what it is alone; networks that can share the work.

        All calls want all of their tokens, or all of them want some.
        """
        return [
            self.features(tokens, condition, positions=positions, state=state, at=at)
            for tokens, condition, positions, state, at in calls
        ]

    def keys(self, inputs: Inputs) -> Keys | None:
        """What decides the dropout of each row: the first of the keys that were set, or else fresh ones."""
        if not self.training:
            return None
        if self.dropout_keys is None:
            return draw_keys(len(inputs), inputs.device)
        return self.dropout_keys[: len(inputs)]

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
