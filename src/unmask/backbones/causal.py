"""Causal transformer of the autoregressive baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.layers.attention import AttentionInputs, AttentionRule, attention_inputs
from unmask.backbones.layers.dropout import Keys
from unmask.backbones.layers.packed_batch import Call, PackedBatch, PackedForward
from unmask.backbones.layers.state import GraphKVState, State
from unmask.backbones.layers.transformer_block import (
    Block,
    TransformerConfig,
    embedding,
    zero_linear,
)
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary


@BACKBONES.register("causal")
class Causal(Backbone):
    """Causal transformer with rotary positions and a KV cache."""

    causal = True
    compiled = "trunk"

    @dataclass(frozen=True)
    class Config(TransformerConfig):
        pass

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.embedding = embedding(vocabulary.size, config.width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.dropout) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width, bias=False)
        self.head = zero_linear(config.width, vocabulary.size)

    def features(
        self,
        inputs: Inputs,
        condition: Tensor | None = None,
        *,
        valid: Tensor | None = None,
        positions: Tensor | None = None,
        rule: AttentionRule | None = None,
        state: State | None = None,
        at: Int[Tensor, "tokens"] | None = None,
    ) -> Float[Tensor, "*tokens width"]:
        """Features of the inputs. With a state, `inputs` are the tokens that follow it."""
        head_width = self.config.width // self.config.heads
        seen = attention_inputs(
            inputs.shape[1], head_width, inputs.device, valid, positions, rule, state, causal=True
        )
        # A growing cache has a new shape in every call. The compiler would recompile each time.
        grows = state is not None and not isinstance(state, GraphKVState)
        trunk = partial(Causal.trunk, self) if grows else self.trunk
        h = trunk(inputs, seen, self.keys(inputs), at=at)
        if state is not None:
            state.advance(inputs.shape[1])
        return h

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """Features of several calls, from one forward pass; each call keeps its own cache."""
        side = PackedForward(calls, self.config.width // self.config.heads, causal=True)
        h = side.apart(Causal.trunk(self, side.tokens, side.seen, None, side.at))
        for call in calls:
            if call.state is not None:
                call.state.advance(call.tokens.shape[1])
        return h

    def trunk(
        self,
        inputs: Inputs,
        seen: AttentionInputs | PackedBatch,
        keys: Keys | None,
        at: Int[Tensor, "tokens"] | None,
    ) -> Float[Tensor, "*tokens width"]:
        """Embedding, blocks and final norm; the last block computes the tokens `at` only.

        Args:
            inputs: Token ids.
            seen: Rotation, mask and cache of attention.
            keys: Dropout keys of the rows; None for no dropout.
            at: Indices of the tokens to compute, into the flattened batch; None for all.

        Returns:
            Features [rows, length, width], or [tokens, width] with `at`.
        """
        x = self.embedding(inputs)
        last = len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, seen, None, keys, at if layer == last else None)
        return self.norm(x)

    @torch.no_grad()
    def freeze(self, dtype: torch.dtype) -> None:
        super().freeze(dtype)
        if self.frozen is None:
            return
        for block in self.blocks:
            assert isinstance(block, Block)
            block.freeze(None, dtype)
