"""The left-to-right transformer of the autoregressive baseline."""

from dataclasses import dataclass

from torch import Tensor, nn

from unmask.backbones.base import BACKBONES, Backbone, Features, Rule, Tokens
from unmask.backbones.cache import KVCache
from unmask.backbones.transformer import (
    Block,
    TransformerConfig,
    attended,
    embedding,
    zero_linear,
)


@BACKBONES.register("causal")
class Causal(Backbone):
    """Causal transformer with rotary positions and a KV cache."""

    causal = True

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
    ) -> Features:
        """With a cache, `tokens` are the next ones and what came before is not computed again."""
        head_width = self.config.width // self.config.heads
        seen = attended(
            tokens.shape[1], head_width, tokens.device, valid, positions, mask, cache, causal=True
        )
        x = self.embedding(tokens)
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, seen, None)
        if cache is not None:
            cache.advance(tokens.shape[1])
        return self.norm(x)
