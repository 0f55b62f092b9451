"""Mamba (arXiv 2312.00752): selective state spaces, causal or in both directions."""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.layers.attention import Features
from unmask.backbones.layers.ops import gated, modulate
from unmask.backbones.layers.state import RecurrentState, State
from unmask.backbones.layers.transformer_block import NORMS
from unmask.extensions.dna.backbones.mixer_stack import (
    Mask,
    Memory,
    MixerBlock,
    MixerConfig,
    MixerStack,
)
from unmask.extensions.dna.layers.gated_sum import Direction, gated_sum
from unmask.extensions.dna.layers.selective_scan import selective_scan
from unmask.extensions.dna.layers.short_convolution import short_convolution
from unmask.options import option

DELTA = 1e-3, 0.1, 1e-4  # range of the initial step sizes, and their smallest value


@dataclass(frozen=True)
class MambaConfig(MixerConfig):
    """Shape of a Mamba network; the defaults are those of the MDLM paper's DNA models."""

    states: int = option(16, ge=1, le=2**10)  # states of each channel
    expand: int = option(2, ge=1, le=2**6)  # channels of a block per unit of width
    convolution: int = option(4, ge=1, le=2**8)  # positions of the short convolution


class SelectiveSSM(nn.Module):
    """One direction of a block: short convolution, then a state space with selected Δ, B and C."""

    undecayed: ClassVar = ("A_log",)  # matrices without weight decay

    def __init__(self, config: MambaConfig) -> None:
        super().__init__()
        channels, rank = config.expand * config.width, -(-config.width // 16)
        self.sizes = [rank, config.states, config.states]  # of Δ's low rank, B and C
        self.convolution = nn.Conv1d(channels, channels, config.convolution, groups=channels)
        self.x_proj = nn.Linear(channels, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(rank, channels)
        rates = torch.arange(1, config.states + 1, dtype=torch.float32)
        self.A_log = nn.Parameter(rates.log().repeat(channels, 1))
        self.D = nn.Parameter(torch.ones(channels))
        nn.init.uniform_(self.dt_proj.weight, -(rank**-0.5), rank**-0.5)
        low, high, least = DELTA
        delta = torch.exp(torch.rand(channels) * math.log(high / low) + math.log(low))
        delta = delta.clamp(min=least)
        with torch.no_grad():  # softplus(bias) is delta
            self.dt_proj.bias.copy_(delta + torch.log(-torch.expm1(-delta)))

    def forward(
        self,
        u: Float[Tensor, "rows length channels"],
        valid: Mask | None,
        memory: Memory | None,
        layer: int,
        flipped: bool,
    ) -> Direction:
        """Outputs and inputs of the scan, and D;
        from the last position to the first if `flipped`.
        """
        x = self._convolved(u, memory, layer, flipped)
        dt, B, C = self.x_proj(x).split(self.sizes, -1)
        with torch.autocast(x.device.type, enabled=False):  # Δ needs precision
            delta = F.softplus(self.dt_proj(dt.to(self.dt_proj.weight.dtype)))
        if valid is not None:
            # Δ = 0 leaves the states unchanged
            delta = delta * (valid.flip(1) if flipped else valid)
        state = None if memory is None else memory.get((layer, "states"))
        y, last = selective_scan(x, delta, -torch.exp(self.A_log), B, C, state)
        if memory is not None:
            memory[layer, "states"] = last
        return y, x, self.D

    def _convolved(self, u: Tensor, memory: Memory | None, layer: int, flipped: bool) -> Tensor:
        """The short convolution. With a state, it starts with the last inputs before these."""
        weight, start = self.convolution.weight[:, 0], 0
        if memory is not None:
            start, length = weight.shape[1] - 1, u.shape[1]
            before = memory.get((layer, "inputs"))
            u = F.pad(u, (0, 0, start, 0)) if before is None else torch.cat([before, u], 1)
            memory[layer, "inputs"] = u[:, length:]
        return short_convolution(u, weight, cast(Tensor, self.convolution.bias), start, flipped)


class MambaBlock(MixerBlock):
    """Norm, gated state spaces and residual connection.

    Both directions share the input and output projections (BiMamba of arXiv 2403.03234).
    """

    parts = 1
    matrices: ClassVar = {"in_proj": 2, "out_proj": 1}  # as in `Block.matrices`

    def __init__(self, config: MambaConfig, directions: int) -> None:
        super().__init__(config)
        channels = config.expand * config.width
        self.norm = NORMS["rms"](config.width)
        self.in_proj = nn.Linear(config.width, 2 * channels, bias=False)
        self.directions = nn.ModuleList(SelectiveSSM(config) for _ in range(directions))
        self.out_proj = nn.Linear(channels, config.width, bias=False)
        with torch.no_grad():
            self.out_proj.weight.div_(config.depth**0.5)

    def mixed(
        self, x: Features, layer: int, valid: Mask | None, c: Tensor | None, memory: Memory | None
    ) -> Features:
        shift, scale, gate = self.condition(c)
        u, z = self.in_proj(modulate(self.norm(x), shift, scale)).chunk(2, -1)
        if valid is not None:
            u = u * valid
        found = [
            direction(u, valid, None if flipped else memory, layer, bool(flipped))
            for flipped, direction in enumerate(self.directions)
        ]
        return x + gated(self.out_proj(gated_sum(z, found)), gate)


@BACKBONES.register("mamba")
class Mamba(MixerStack):
    """Causal Mamba: decoding needs the same time and memory for every token of a text."""

    causal = True
    directions: ClassVar[int] = 1

    @dataclass(frozen=True)
    class Config(MambaConfig):
        pass

    def block(self) -> MambaBlock:
        return MambaBlock(self.config, self.directions)

    def last_norm(self) -> nn.Module:
        return NORMS["rms"](self.config.width)

    def new_state(self, rows: int, capacity: int) -> State:
        """An empty state, whose size does not depend on the number of tokens."""
        return RecurrentState()


@BACKBONES.register("bimamba")
class BiMamba(Mamba):
    """Mamba in both directions, with shared input and output projections."""

    causal = False
    directions = 2

    @dataclass(frozen=True)
    class Config(MambaConfig):
        pass
