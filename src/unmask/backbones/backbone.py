"""Interface of the networks: features of a sequence, and logits at chosen positions."""

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.layers.attention import Call
from unmask.backbones.layers.attention_rules import AttentionRule
from unmask.backbones.layers.dropout import Keys, draw_keys
from unmask.backbones.layers.inference_weights import InferenceWeights, is_plain
from unmask.backbones.layers.ops import ALIGNED
from unmask.backbones.layers.state import KVState, SourceState, State
from unmask.registry import Registry
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary


class Backbone(InferenceWeights, ABC):
    """A network: inputs -> features -> logits, with logits at chosen positions only.

    A method that diffuses vectors replaces `embedding` by a module that reads vectors, and `head`
    by one that returns vectors.
    """

    causal: bool = False  # a token attends to earlier tokens only; a Config field overrides it
    # Name of the method to compile. Subclasses name one that gets the rotary angles as an argument:
    # compiled code would recompute the angles for every rotated element.
    compiled: ClassVar[str] = "features"
    recomputes: ClassVar[bool] = False  # True: a step of decoding computes all earlier tokens again
    rules: ClassVar[bool] = False  # True: any attention rule and a KV cache serve the network
    onnx: ClassVar[bool] = True  # False: an ONNX file cannot hold the network
    pairs: ClassVar[bool] = False  # True: reads rows of pairs only
    tokens_only: ClassVar[bool] = False  # True: reads token ids and no vectors
    embedding: nn.Module  # token ids -> features
    head: nn.Linear  # features -> logits
    time_conditioning: bool = False
    static: bool = True  # False: shapes inside depend on values, so no CUDA graph holds the network
    longest: int | None = None  # most tokens of a row if positions are learned; None: no limit
    longest_source: int | None = None  # most tokens of a source with BOS and EOS; None: no limit
    longest_target: int | None = None  # most tokens of a target with its EOS; None: no limit
    dropout_keys: Keys | None = None  # keys of the rows of the next training batch
    frozen: tuple[Tensor, Tensor | None] | None = None  # the head's weight and bias for inference

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config = config  # the backbone's own Config

    def compute(self, call: Call) -> Float[Tensor, "*tokens width"]:
        """The network without its head: features of the inputs of a call.

        Each network defines it. Callers use `features`.

        Args:
            call: The arguments of `features`.

        Returns:
            Features [rows, length, width], or [tokens, width] with `call.at`.
        """
        raise NotImplementedError

    def features(
        self,
        inputs: Inputs,
        condition: Float[Tensor, "#rows"] | None = None,
        *,
        valid: Bool[Tensor, "rows length"] | None = None,
        positions: Int[Tensor, "length"] | None = None,
        rule: AttentionRule | None = None,
        state: State | None = None,
        at: Int[Tensor, "tokens"] | None = None,
    ) -> Float[Tensor, "*tokens width"]:
        """Features of the inputs, which the head reads.

        Args:
            inputs: Token ids, or vectors if the method diffuses vectors.
            condition: The noise level of each row, for networks with time conditioning.
            valid: False at padding. Padding does not change the features of other tokens.
            positions: The position of each input in its text; 0, 1, … by default.
            rule: (query places, key places) -> True where attention is allowed. The place of a
                token is its index among the inputs and the tokens of the state before them.
            state: Keys and values of earlier tokens. The call appends those of `inputs`.
            at: Distinct indices of the tokens to compute, into the flattened batch; all by default.

        Returns:
            Features [rows, length, width], or [tokens, width] with `at`.
        """
        return self.compute(Call(inputs, condition, positions, state, at, valid, rule))

    def hidden(
        self,
        inputs: Inputs,
        condition: Float[Tensor, "rows"] | None = None,
        *,
        valid: Bool[Tensor, "rows length"] | None = None,
        segments: Int[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows length width"]:
        """Features for classification and embeddings: those before the layers of a masked-LM head.

        Args:
            inputs: Token ids.
            condition: The noise level of each row, for networks with time conditioning.
            valid: False at padding.
            segments: 0 in the first sentence of a pair and 1 in the second. Only networks with an
                embedding of segments read it.

        Returns:
            Features [rows, length, width]. By default they are those of `features`.
        """
        return self.features(inputs, condition, valid=valid)

    def adapted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of an initial network, in the layout of this one.

        Args:
            tensors: The weights by name.

        Returns:
            The weights; by default unchanged.
        """
        return dict(tensors)

    def replace_head(self, outputs: int) -> None:
        """Replaces the head over the vocabulary by a new one, for a method that predicts no tokens.

        Layers that only the old head reads are dropped.

        Args:
            outputs: Number of outputs of the new head.
        """
        old = self.head.weight
        self.head = nn.Linear(self.width, outputs, device=old.device, dtype=old.dtype)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @property
    def predicts_length(self) -> bool:
        """True if the network predicts the length of a target from its source."""
        return False

    def encode(
        self, inputs: Int[Tensor, "rows length"], valid: Bool[Tensor, "rows length"] | None = None
    ) -> SourceState | None:
        """Encodes the sources of rows of pairs, for later calls of `features`.

        Args:
            inputs: Token ids.
            valid: False at padding.

        Returns:
            A state with the encoded sources; None for a network without an encoder.
        """
        return None

    def new_state(self, rows: int, capacity: int) -> State:
        """An empty state, which calls of `features` fill.

        Args:
            rows: Number of rows of the batch.
            capacity: Most tokens of a row.

        Returns:
            A state of length 0.
        """
        return KVState(capacity)

    @property
    def width(self) -> int:
        """The width of the features."""
        return self.head.in_features

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """Features of several calls, equal to those of separate calls.

        Subclasses pack the calls into one forward pass.

        Args:
            calls: Arguments of each call. Either all calls have `at`, or none has.

        Returns:
            The features of each call.
        """
        return [self.compute(call) for call in calls]

    def keys(self, inputs: Inputs) -> Keys | None:
        """Dropout keys of the rows of a batch.

        Args:
            inputs: The batch.

        Returns:
            The first of `dropout_keys`, or random keys if none are set; None in evaluation mode.
        """
        if not self.training:
            return None
        if self.dropout_keys is None:
            return draw_keys(len(inputs), inputs.device)
        return self.dropout_keys[: len(inputs)]

    def logits(self, h_at: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocabulary"]:
        """Logits of chosen features.

        Args:
            h_at: Features of the positions to score.

        Returns:
            Logits over the vocabulary.
        """
        if self.usable is None:
            return self.head(h_at)
        weight, bias = self.usable
        return F.linear(h_at.to(weight.dtype), weight, bias)[..., : self.head.out_features]

    @property
    def plain(self) -> bool:
        """True if no module outside the blocks has an adapter, a hook or quantised weights."""
        return is_plain(self.head)

    @property
    def usable(self) -> Any:
        if self.frozen is None or torch.is_grad_enabled() or not self.plain:
            return None
        return self.frozen

    def freeze(self, dtype: torch.dtype) -> None:
        """Casts the weights for inference, once, and pads the head for a GPU.

        A network that is not plain has no frozen weights afterwards.

        Args:
            dtype: Precision of the matrix products.
        """
        if not self.plain:
            self.thaw()
            return
        padding = -self.head.out_features % ALIGNED if self.head.weight.is_cuda else 0
        weight, bias = self.head.weight.detach().to(dtype), cast("Tensor | None", self.head.bias)
        bias = None if bias is None else F.pad(bias.detach().to(dtype), (0, padding))
        self.edition += 1  # not `thaw`, which drops weights that another thread may be reading
        padded = F.pad(weight, (0, 0, 0, padding)) if padding else weight  # a pad of 0 copies too
        self.frozen = padded, bias


BACKBONES: Registry[Backbone] = Registry("backbone")
