"""Causal transformer of the autoregressive baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.layers.attention import AttentionInputs, Call
from unmask.backbones.layers.dropout import Keys
from unmask.backbones.layers.packed_batch import PackedBatch, PackedForward
from unmask.backbones.layers.state import GraphKVState
from unmask.backbones.layers.transformer_block import (
    NORMS,
    Block,
    BlockConfig,
    embedding,
    head,
)
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary


@BACKBONES.register("causal")
class Causal(Backbone):
    """Causal transformer with rotary positions and a KV cache."""

    causal = rules = True
    compiled = "trunk"

    @dataclass(frozen=True)
    class Config(BlockConfig):
        pass

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.embedding = embedding(vocabulary.size, config.width)
        self.blocks = nn.ModuleList(Block(**config.block(layer)) for layer in range(config.depth))
        self.norm = NORMS[config.norm](config.width)
        self.head = head(config, self.embedding)

    def compute(self, call: Call) -> Float[Tensor, "*tokens width"]:
        """Features of the inputs. With a state, the inputs are the tokens after those in its cache."""
        inputs, state = call.inputs, call.state
        attention = call.attention(self.config.rotary, self.causal)
        # uncompiled: a growing cache has a new shape in every call, and each would be compiled
        grows = state is not None and not isinstance(state, GraphKVState)
        trunk = partial(type(self).trunk, self) if grows else self.trunk
        h = trunk(inputs, attention, self.keys(inputs), at=call.at)
        if state is not None:
            state.advance(inputs.shape[1])
        return h

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """Features of several calls, from one forward pass; each call keeps its own cache."""
        packed = PackedForward(calls, self.config.rotary, self.causal)
        h = packed.unpack(type(self).trunk(self, packed.tokens, packed.attention, None, packed.at))
        for call in calls:
            if call.state is not None:
                call.state.advance(call.inputs.shape[1])
        return h

    def trunk(
        self,
        inputs: Inputs,
        attention: AttentionInputs | PackedBatch,
        keys: Keys | None,
        at: Int[Tensor, "tokens"] | None,
    ) -> Float[Tensor, "*tokens width"]:
        """Embedding, blocks and final norm; the last block computes the tokens `at` only.

        Args:
            inputs: Token ids.
            attention: Rotation, mask and cache of attention.
            keys: Dropout keys of the rows; None for no dropout.
            at: Indices of the tokens to compute, into the flattened batch; None for all.

        Returns:
            Features [rows, length, width], or [tokens, width] with `at`.
        """
        x = self.embedding(inputs)
        first, last = None, len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            x, v = block(x, layer, attention, None, keys, at if layer == last else None, first)
            first = v if self.config.value_residual and first is None else first
        return self.norm(x)

    @torch.no_grad()
    def freeze(self, dtype: torch.dtype) -> None:
        super().freeze(dtype)
        if self.frozen is None:
            return
        for block in self.blocks:
            assert isinstance(block, Block)
            block.freeze(None, dtype)


@BACKBONES.register("modern_causal")
class ModernCausal(Causal):
    """The causal transformer with the same settings as `modern_dit`."""

    @dataclass(frozen=True)
    class Config(Causal.Config):
        dropout: float = 0.0
        qk_norm: bool = True
        mlp: str = "swiglu"
        tied_head: bool = True
        zero_out: bool = True
        value_residual: bool = True
