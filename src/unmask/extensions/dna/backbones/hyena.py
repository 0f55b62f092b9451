"""Hyena (arXiv 2302.10866) of order 2 in HyenaDNA's form: implicit long convolutions and gates."""

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.layers.attention import Features
from unmask.backbones.layers.ops import EPS, gated, modulate
from unmask.backbones.layers.state import State, TokenState
from unmask.errors import UnmaskError
from unmask.extensions.dna.backbones.mixer_stack import (
    Mask,
    Memory,
    MixerBlock,
    MixerConfig,
    MixerStack,
)
from unmask.extensions.dna.layers.short_convolution import short_convolution
from unmask.options import option
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary

WAVES = 2  # cosines and sines of a position
FREQUENCY = 10.0  # initial frequency of the sine activations
FAST, SLOW = 0.3, 1.5  # share of the longest row in which the fastest and the slowest filter decay
DECAYED = 1e-2  # remaining share of a filter after that time


class LongFilter(nn.Module):
    """A causal filter of any length: a sine MLP of the position, in an exponential window."""

    undecayed: ClassVar = ("first.weight", "second.weight", "third.weight", "last.weight")

    def __init__(self, channels: int, width: int, positions: int) -> None:
        super().__init__()
        self.positions = positions
        self.first = nn.Linear(1 + 2 * WAVES, width)
        self.second, self.third = nn.Linear(width, width), nn.Linear(width, width)
        self.last = nn.Linear(width, channels, bias=False)
        self.frequency = nn.Parameter(torch.full((width,), FREQUENCY))

    def forward(
        self, length: int, device: torch.device, dtype: torch.dtype
    ) -> Float[Tensor, "length channels"]:
        """The filter's values at the distances 0, 1, …, length - 1."""
        distance = torch.arange(length, device=device, dtype=dtype)[:, None]
        time = distance / max(1, self.positions - 1)
        bands = torch.linspace(1e-4, WAVES - 1, WAVES, device=device, dtype=dtype)
        angles = bands * (2 * math.pi / self.positions) * distance
        h = torch.cat([time, angles.cos(), -angles.sin()], -1)
        for layer in (self.first, self.second, self.third):
            h = torch.sin(self.frequency * layer(h))
        channels = self.last.out_features
        rates = torch.linspace(1 / SLOW, 1 / FAST, channels, device=device, dtype=dtype)
        return self.last(h) * torch.exp(math.log(DECAYED) * rates * time)


class HyenaBlock(MixerBlock):
    """Long convolution between two gates, then an MLP,
    each after a norm and with a residual sum.
    """

    parts = 2
    matrices: ClassVar = {"in_proj": 3, "out_proj": 1, "up": 1, "down": 1}  # as in `Block.matrices`

    def __init__(self, config: "Hyena.Config") -> None:
        super().__init__(config)
        width, inner = config.width, config.inner or 4 * config.width
        self.norm, self.mlp_norm = (nn.LayerNorm(width, EPS) for _ in range(2))
        self.in_proj = nn.Linear(width, 3 * width)
        self.short = nn.Conv1d(3 * width, 3 * width, 3, groups=3 * width)
        self.filter = LongFilter(width, config.filter_width, config.positions)
        self.D = nn.Parameter(torch.randn(width))
        self.out_proj = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        for linear in (self.in_proj, self.out_proj, self.up, self.down):
            last = linear is self.out_proj or linear is self.down
            nn.init.normal_(linear.weight, std=0.02 / (2 * config.depth) ** 0.5 if last else 0.02)
            nn.init.zeros_(linear.bias)

    def mixed(
        self, x: Features, layer: int, valid: Mask | None, c: Tensor | None, memory: Memory | None
    ) -> Features:
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.condition(c)
        u = self.in_proj(modulate(self.norm(x), shift, scale))
        u = u if valid is None else u * valid
        weight, bias = self.short.weight[:, 0], cast(Tensor, self.short.bias)
        u = short_convolution(u, weight, bias, silu=False)
        out_gate, in_gate, v = u.chunk(3, -1)
        v = v * in_gate
        v = v if valid is None else v * valid
        x = x + gated(self.out_proj(out_gate * self._convolved(v)), gate)
        h = modulate(self.mlp_norm(x), mlp_shift, mlp_scale)
        return x + gated(self.down(F.gelu(self.up(h), approximate="tanh")), mlp_gate)

    def _convolved(self, v: Features) -> Features:
        """Causal convolution with the long filter, by FFTs of twice the length in float32."""
        length, size = v.shape[1], 2 * v.shape[1]
        dtype = torch.promote_types(v.dtype, torch.float32)
        with torch.autocast(v.device.type, enabled=False):
            wide = v.to(dtype)
            k = self.filter(length, v.device, self.filter.last.weight.dtype).to(dtype)
            spectrum = torch.fft.rfft(wide, size, 1) * torch.fft.rfft(k, size, 0)
            y = torch.fft.irfft(spectrum, size, 1)[:, :length]
            return torch.addcmul(y, wide, self.D.to(dtype)).to(v.dtype)


@BACKBONES.register("hyena")
class Hyena(MixerStack):
    """Causal Hyena with implicit long filters; it has no state,
    so decoding reads the text again.
    """

    causal = True
    recomputes = True

    @dataclass(frozen=True)
    class Config(MixerConfig):
        depth: int = option(2, ge=1, le=2**10)
        positions: int = option(1024, ge=1, le=2**24)  # most tokens of a row
        inner: int = option(0, ge=0)  # width of the MLP; 0 is four times the width
        filter_width: int = option(64, ge=1, le=2**12)  # width of the MLP that computes a filter

        def __post_init__(self) -> None:
            MixerConfig.__post_init__(self)
            if self.inner > 64 * self.width:
                raise UnmaskError(f"inner must be {64 * self.width:,} at most, not {self.inner}")

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.longest = config.positions

    def block(self) -> HyenaBlock:
        return HyenaBlock(self.config)

    def last_norm(self) -> nn.Module:
        return nn.LayerNorm(self.config.width, EPS)

    def new_state(self, rows: int, capacity: int) -> State:
        """An empty state, which holds the tokens of the text."""
        return TokenState()

    def run(
        self, inputs: Inputs, condition: Tensor | None, valid: Tensor | None, state: State | None
    ) -> Features:
        if state is None:
            return super().run(inputs, condition, valid, None)
        assert isinstance(state, TokenState), "a network without a state needs a TokenState"
        start = state.length
        text = state.append(inputs)
        return super().run(text, condition, None, None)[:, start:]
