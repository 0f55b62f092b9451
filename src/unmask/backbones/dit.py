"""The diffusion transformer: bidirectional, conditioned on the noise level through adaLN."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.base import BACKBONES, Backbone, Features, Rule, Tokens
from unmask.backbones.cache import KVCache
from unmask.backbones.transformer import (
    Block,
    TransformerConfig,
    attended,
    embedding,
    modulate,
    zero_linear,
)


class NoiseLevel(nn.Module):
    """Embeds sigma: 256 sinusoids, then an MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))

    @property
    def dtype(self) -> torch.dtype:
        return next(self.mlp.parameters()).dtype

    def forward(self, sigma: Float[Tensor, "rows"]) -> Float[Tensor, "rows condition"]:
        powers = torch.arange(128, device=sigma.device, dtype=torch.float32) / 128
        angles = sigma.float()[:, None] * torch.exp(-math.log(10_000) * powers)
        waves = torch.cat([angles.cos(), angles.sin()], -1)
        return self.mlp(waves.to(self.dtype))


@BACKBONES.register("dit")
class DiT(Backbone):
    """Bidirectional transformer with adaLN and rotary positions: the paper's network."""

    @dataclass(frozen=True)
    class Config(TransformerConfig):
        condition_width: int = 128
        time_conditioning: bool = False
        gate: float = 0.0  # where the blocks' residual gates start; 0 is adaLN-Zero

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.time_conditioning = config.time_conditioning
        self.embedding = embedding(vocabulary, config.width)
        self.noise_level = NoiseLevel(config.condition_width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.dropout, config.condition_width, config.gate)
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width, bias=False)
        self.modulation = zero_linear(config.condition_width, 2 * config.width)
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
        """`condition` is sigma; a network without time conditioning reads sigma = 0."""
        if condition is None or not self.time_conditioning:
            condition = torch.zeros(1, device=tokens.device)
        c = F.silu(self.noise_level(condition))
        head_width = self.config.width // self.config.heads
        seen = attended(tokens.shape[1], head_width, tokens.device, valid, positions, mask, cache)
        x = self.embedding(tokens)
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, seen, c)
        shift, scale = self.modulation(c)[:, None].chunk(2, -1)
        return modulate(self.norm(x), shift, scale)
