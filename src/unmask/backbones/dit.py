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
from unmask.backbones.layers.attention import AttentionInputs, AttentionRule, attention_inputs
from unmask.backbones.layers.dropout import Keys
from unmask.backbones.layers.inference_weights import is_plain
from unmask.backbones.layers.ops import modulate, taken
from unmask.backbones.layers.packed_batch import Call, PackedBatch, PackedForward
from unmask.backbones.layers.state import State
from unmask.backbones.layers.transformer_block import (
    Block,
    TransformerConfig,
    embedding,
    zero_linear,
)
from unmask.errors import UnmaskError
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary


class NoiseLevel(nn.Module):
    """Embeds sigma: 256 sinusoids, then an MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))

    @property
    def dtype(self) -> torch.dtype:
        weight: Tensor = self.mlp[0].weight  # type: ignore[assignment]
        return weight.dtype  # not from `parameters()`, which is empty in a DataParallel replica

    def forward(self, sigma: Float[Tensor, "rows"]) -> Float[Tensor, "rows condition"]:
        powers = torch.arange(128, device=sigma.device, dtype=torch.float32) / 128
        angles = sigma.float()[:, None] * torch.exp(-math.log(10_000) * powers)
        waves = torch.cat([angles.cos(), angles.sin()], -1)
        return self.mlp(waves.to(self.dtype))


@BACKBONES.register("dit")
class DiT(Backbone):
    """Bidirectional transformer with adaLN and rotary positions: the network of the MDLM paper."""

    compiled = "trunk"

    @dataclass(frozen=True)
    class Config(TransformerConfig):
        condition_width: int = 128
        time_conditioning: bool = False
        gate: float = 0.0  # initial value of the residual gates; 0 is adaLN-Zero
        zero_out: bool = (
            False  # the blocks' output matrices start at zero; needs a gate that is not 0
        )

        def __post_init__(self) -> None:
            TransformerConfig.__post_init__(self)
            if not 1 <= self.condition_width <= 2**17:
                raise UnmaskError(
                    f"condition_width must lie between 1 and {2**17:,}, not {self.condition_width}"
                )
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
                *(config.width, config.heads, config.dropout, config.condition_width, config.gate),
                by_row=config.time_conditioning,
                zero_out=config.zero_out,
            )
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width, bias=False)
        self.modulation = zero_linear(config.condition_width, 2 * config.width)
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
        """Features of the inputs. `condition` is sigma; without time conditioning, sigma = 0 is used."""
        if self.usable and not self.time_conditioning:
            condition = None
        elif condition is None or not self.time_conditioning:
            condition = torch.zeros(1, device=inputs.device)
        head_width = self.config.width // self.config.heads
        seen = attention_inputs(
            inputs.shape[1], head_width, inputs.device, valid, positions, rule, state
        )
        return self.trunk(inputs, condition, seen, self.keys(inputs), at=at)

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """Features of several calls in one pass."""
        side = PackedForward(calls, self.config.width // self.config.heads, causal=False)
        condition = None if self.usable else torch.zeros(1, device=side.tokens.device)
        if self.time_conditioning:
            condition = side.condition
        # uncompiled, since each packed batch has its own shape
        trunk = partial(DiT.trunk, self, side.tokens, condition, side.seen, None)
        if side.at is not None and self.time_conditioning:
            # with `at`, `trunk` reads one condition per row, but a packed row has several
            return side.apart(taken(trunk(None), side.at))
        return side.apart(trunk(side.at))

    def trunk(
        self,
        inputs: Inputs,
        condition: Float[Tensor, "times"]
        | None,  # one for all rows, or one per row; more are padding
        seen: AttentionInputs | PackedBatch,
        keys: Keys | None,
        at: Int[Tensor, "tokens"] | None,
    ) -> Float[Tensor, "*tokens width"]:
        """The network without its head; the last block computes the tokens `at` only.

        Args:
            inputs: token ids, or vectors of a method that diffuses vectors.
            condition: noise levels; None if the frozen weights contain the modulation by sigma = 0.
            seen: positions and masks of the attention.
            keys: dropout key of each row; None without dropout.
            at: indices of the tokens to compute, into the flattened batch; None for all.

        Returns:
            The features.
        """
        c = None if condition is None else F.silu(self.noise_level(condition))
        x = self.embedding(inputs)
        last = len(self.blocks) - 1
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, seen, c, keys, at if layer == last else None)
        if c is None:
            return F.layer_norm(x, x.shape[-1:], *self.final)
        final = self.modulation(c)
        final = seen.by_token(final) if self.time_conditioning else final[:, None]
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
