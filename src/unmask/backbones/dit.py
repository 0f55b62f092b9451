"""The diffusion transformer: bidirectional, conditioned on the noise level through adaLN."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.layers.attention import AttentionInputs, Call
from unmask.backbones.layers.dropout import Keys
from unmask.backbones.layers.inference_weights import is_plain
from unmask.backbones.layers.ops import EPS, modulate, taken
from unmask.backbones.layers.packed_batch import PackedBatch, PackedForward
from unmask.backbones.layers.transformer_block import (
    NORMS,
    Block,
    BlockConfig,
    embedding,
    head,
    zero_linear,
)
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary


class NoiseLevel(nn.Module):
    """Embeds sigma: 256 sinusoids, then an MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))

    @property
    def dtype(self) -> torch.dtype:
        # not from `parameters()`, which is empty in a DataParallel replica
        weight: Tensor = self.mlp[0].weight  # type: ignore[assignment]
        # a quantised weight is of an integer type, and its layer takes fp32
        return weight.dtype if weight.is_floating_point() else torch.float32

    def forward(self, sigma: Float[Tensor, "rows"]) -> Float[Tensor, "rows condition"]:
        powers = torch.arange(128, device=sigma.device, dtype=torch.float32) / 128
        angles = sigma.float()[:, None] * torch.exp(-math.log(10_000) * powers)
        waves = torch.cat([angles.cos(), angles.sin()], -1)
        return self.mlp(waves.to(self.dtype))


@BACKBONES.register("dit")
class DiT(Backbone):
    """Bidirectional transformer with adaLN and rotary positions: the network of the MDLM paper."""

    compiled = "trunk"
    rules = True

    @dataclass(frozen=True)
    class Config(BlockConfig):
        condition_width: int = option(128, ge=1, le=2**17)
        time_conditioning: bool = False
        gate: float = 0.0  # initial value of the residual gates; 0 is adaLN-Zero

        def __post_init__(self) -> None:
            BlockConfig.__post_init__(self)
            if self.zero_out and not self.gate:
                raise UnmaskError(
                    "zero_out with closed gates (gate 0) leaves the blocks without gradients: set gate 1"
                )

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.time_conditioning = config.time_conditioning
        self.embedding = embedding(vocabulary.size, config.width)
        self.noise_level = NoiseLevel(config.condition_width)
        self.blocks = nn.ModuleList(
            Block(
                **config.block(layer),
                condition_width=config.condition_width,
                gate=config.gate,
                by_row=config.time_conditioning,
            )
            for layer in range(config.depth)
        )
        self.norm = NORMS[config.norm](config.width)
        self.modulation = zero_linear(config.condition_width, 2 * config.width)
        self.head = head(config, self.embedding)

    def compute(self, call: Call) -> Float[Tensor, "*tokens width"]:
        """Features of the inputs. `condition` is sigma; without time conditioning, sigma = 0 is used."""
        condition = self._noise(call)
        attention = call.attention(self.config.rotary)
        # uncompiled with a state, as in `Causal.compute`
        trunk = self.trunk if call.state is None else partial(DiT.trunk, self)
        h = trunk(call.inputs, condition, attention, self.keys(call.inputs), at=call.at)
        if call.state is not None:
            call.state.advance(call.inputs.shape[1])
        return h

    def _noise(self, call: Call) -> Tensor | None:
        """The noise levels of a call; None if the frozen weights contain the modulation by sigma = 0."""
        if self.usable and not self.time_conditioning:
            return None
        if call.condition is None or not self.time_conditioning:
            return torch.zeros(1, device=call.inputs.device)
        return call.condition

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """Features of several calls, from one forward pass."""
        packed = PackedForward(calls, self.config.rotary, causal=False)
        condition = None if self.usable else torch.zeros(1, device=packed.tokens.device)
        if self.time_conditioning:
            condition = packed.condition
        # uncompiled, since each packed batch has its own shape
        trunk = partial(DiT.trunk, self, packed.tokens, condition, packed.attention, None)
        if packed.at is not None and self.time_conditioning:
            # with `at`, `trunk` expects one noise level per row, but a packed row has several
            return packed.unpack(taken(trunk(None), packed.at))
        return packed.unpack(trunk(packed.at))

    def trunk(
        self,
        inputs: Inputs,
        condition: Float[Tensor, "times"] | None,
        attention: AttentionInputs | PackedBatch,
        keys: Keys | None,
        at: Int[Tensor, "tokens"] | None,
    ) -> Float[Tensor, "*tokens width"]:
        """The network without its head; the last block computes the tokens `at` only.

        Args:
            inputs: Token ids, or vectors if the method diffuses vectors.
            condition: One noise level for all rows, or one per row and then padding. None if the
                frozen weights contain the modulation by sigma = 0.
            attention: Rotation and mask of attention.
            keys: Dropout keys of the rows; None for no dropout.
            at: Indices of the tokens to compute, into the flattened batch; None for all.

        Returns:
            Features [rows, length, width], or [tokens, width] with `at`.
        """
        c = None if condition is None else F.silu(self.noise_level(condition))
        x = self.embedding(inputs)
        first, last = None, len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            x, v = block(x, layer, attention, c, keys, at if layer == last else None, first)
            first = v if self.config.value_residual and first is None else first
        if c is None:
            gain, shift = self.final
            if self.config.norm == "rms":
                return F.rms_norm(x, x.shape[-1:], gain, EPS) + shift
            return F.layer_norm(x, x.shape[-1:], gain, shift)
        final = self.modulation(c)
        final = attention.by_token(final) if self.time_conditioning else final[:, None]
        if at is not None:
            by_row = final.expand(len(inputs), -1, -1)
            final = by_row[at // inputs.shape[1]][:, 0] if self.time_conditioning else final[0]
        shift, scale = final.chunk(2, -1)
        return modulate(self.norm(x), shift, scale)

    @property
    def plain(self) -> bool:
        mlp = self.noise_level.mlp
        return is_plain(self.head, self.norm, self.modulation, mlp, mlp[0], mlp[2])

    @torch.no_grad()
    def freeze(self, dtype: torch.dtype) -> None:
        super().freeze(dtype)
        if self.frozen is None:
            return
        c = F.silu(self.noise_level(torch.zeros(1, device=self.head.weight.device)))
        for block in self.blocks:
            assert isinstance(block, Block)
            block.freeze(c, dtype)
        shift, scale = self.modulation(c)[0].chunk(2)
        self.final = self.norm.weight * (1 + scale), shift


@BACKBONES.register("modern_dit")
class ModernDiT(DiT):
    """The DiT with the settings that learn fastest (benchmarks/README.md, "Learning per step")."""

    @dataclass(frozen=True)
    class Config(DiT.Config):
        dropout: float = 0.0
        qk_norm: bool = True
        mlp: str = "swiglu"
        tied_head: bool = True
        zero_out: bool = True
        gate: float = 1.0
        value_residual: bool = True
