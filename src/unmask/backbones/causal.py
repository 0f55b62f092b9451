"""The left-to-right transformer of the autoregressive baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.layers.attention import Attended, Rule, attended
from unmask.backbones.layers.dropout import Keys
from unmask.backbones.layers.packed_batch import Call, SideBySide, Together
from unmask.backbones.layers.state import KVCache, OneMore
from unmask.backbones.layers.transformer_block import (
    Block,
    TransformerConfig,
    embedding,
    zero_linear,
)
from unmask.shapes import Tokens


@BACKBONES.register("causal")
class Causal(Backbone):
    """Causal transformer with rotary positions and a KV cache."""

    causal = True
    compiled = "trunk"

    @dataclass(frozen=True)
    class Config(TransformerConfig):
        pass

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding(vocabulary, config.width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.dropout) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width, bias=False)
        self.head = zero_linear(config.width, vocabulary)

    def features(
        self,
        tokens: Tokens,
        condition: Tensor | None = None,
        *,
        valid: Tensor | None = None,
        positions: Tensor | None = None,
        mask: Rule | None = None,
        cache: KVCache | None = None,
        at: Int[Tensor, "tokens"] | None = None,
    ) -> Float[Tensor, "*tokens width"]:
        """With a cache, `tokens` are the next ones and what came before is not computed again."""
        head_width = self.config.width // self.config.heads
        seen = attended(
            tokens.shape[1], head_width, tokens.device, valid, positions, mask, cache, causal=True
        )
        # a cache that grows is another shape with every call, and would be compiled anew each time
        grows = cache is not None and not isinstance(cache, OneMore)
        trunk = partial(Causal.trunk, self) if grows else self.trunk
        h = trunk(tokens, seen, self.keys(tokens), at=at)
        if cache is not None:
            cache.advance(tokens.shape[1])
        return h

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """In one pass, each call with its own cache."""
        side = SideBySide(calls, self.config.width // self.config.heads, causal=True)
        h = side.apart(Causal.trunk(self, side.tokens, side.seen, None, side.at))
        for call in calls:
            if call.cache is not None:
                call.cache.advance(call.tokens.shape[1])
        return h

    def trunk(
        self,
        tokens: Tokens,
        seen: Attended | Together,
        keys: Keys | None,
        at: Int[Tensor, "tokens"] | None,
    ) -> Float[Tensor, "*tokens width"]:
        """Everything that is learned but the head; the last block knows which tokens are wanted."""
        x = self.embedding(tokens)
        last = len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, seen, None, keys, at if layer == last else None)
        return self.norm(x)

    @torch.no_grad()
    def freeze(self, dtype: torch.dtype) -> None:
        super().freeze(dtype)
        for block in self.blocks:
            assert isinstance(block, Block)
            block.freeze(None, dtype)
