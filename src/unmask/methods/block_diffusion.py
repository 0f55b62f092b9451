"""Block diffusion (BD3-LM, arXiv 2503.09573): diffusion within blocks, blocks from left to right.

One network serves several block sizes, if training alternates them. A block size of 0 is the whole
row, which is plain MDLM.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn import functional as F

from unmask.backbones.layers.attention_rules import NoisyCleanRule, full_rule
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.process import masked_tokens
from unmask.diffusion.schedule import Learned, Schedule
from unmask.diffusion.time_sampler import Noise, RowNoise, TimeFirst, TimeSampler
from unmask.errors import UnmaskError
from unmask.methods.compute.block_denoiser import GraphBlocks, PlainBlocks
from unmask.methods.masked_diffusion import ENDS, MaskedDiffusion
from unmask.methods.mdlm import MDLM
from unmask.methods.method import METHODS, Method
from unmask.options import option
from unmask.randomness import RowStream
from unmask.shapes import Batch, Tensors, Tokens, Valid

WHOLE = 0  # the block size of whole rows
TIMES = ("block", "row")


@dataclass(frozen=True)
class BlockNoise(Noise):
    """Noise of rows in blocks of one size. Times and importance are by token, equal in a block."""

    by_token = ("t", "importance", "masked", "unfinished")

    t: Float64[Tensor, "rows length"]
    importance: Float64[Tensor, "rows length"]
    block: int = field(default=WHOLE, kw_only=True)


@METHODS.register("block_diffusion")
class BlockDiffusion(MDLM):
    """Masked diffusion in blocks: each block is denoised given the blocks before it.

    Training alternates the block sizes, and all rows of a step have the same. The bound is that of
    one block size, `block`.
    """

    capabilities = replace(MaskedDiffusion.capabilities, any_network=True, blocks=True)

    @dataclass(frozen=True)
    class Config(MDLM.Config):
        loss_weight: str = "uniform"
        # block sizes in tokens that training alternates, step by step; 0 is the whole row
        blocks: tuple[int, ...] = option((4, 16, 0), ge=0)
        block: int = option(-1, ge=-1)  # of the bound; -1 = the first of blocks
        times: str = option("block", among=TIMES)  # one time for each block, or for each row
        noise_range: tuple[float, float] = (0.0, 1.0)  # shares of masked tokens in training
        draws: int = option(1, ge=1, le=16)  # of z_t in training, which share one pass over x

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.blocks:
                raise UnmaskError("blocks must be block sizes such as [4, 16, 0], not []")
            if not 0 <= self.noise_range[0] < self.noise_range[1] <= 1:
                raise UnmaskError(
                    f"noise_range must rise within [0, 1], not {list(self.noise_range)}"
                )

    config: Config
    sampler = "blocks"

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        if self.backbone.time_conditioning:
            raise UnmaskError(
                "each block has its own time, but the network reads one noise level for each row: "
                "set backbone.time_conditioning false"
            )
        if isinstance(self.schedule, Learned):
            raise UnmaskError("block diffusion has a fixed schedule: set schedule loglinear")
        self.rule = full_rule
        self.block = config.blocks[0] if config.block < 0 else config.block
        self.whole_rows = WHOLE in config.blocks
        self.smallest = min((block for block in config.blocks if block), default=WHOLE)
        if not self.smallest:
            self.sampler = "ancestral"
        self._graph_blocks: GraphBlocks | None = None

    def denoiser(self) -> Denoiser:
        if not self.serving.fixed:
            return PlainBlocks(self)
        if self._graph_blocks is None or self._graph_blocks.edition != self.edition:
            self._graph_blocks = GraphBlocks(self)
        return self._graph_blocks

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> BlockNoise:
        draw = super().noise
        return self._in_blocks(self.block, stream, valid, partial(draw, time_sampler=time_sampler))

    def training_noise(self, stream: RowStream, valid: Valid) -> BlockNoise:
        """Noise of the block size of a step, with the training weights in its importance."""
        blocks, length = self.config.blocks, valid.shape[1]
        for block in blocks:
            if block and length % block:
                raise UnmaskError(
                    f"blocks of {block} tokens do not divide rows of {length}: change method.blocks "
                    "or data.length"
                )
        draw, low_high = super().noise, self.config.noise_range

        def weighted(some: RowStream, places: Valid) -> Noise:
            sampler = self.time_sampler
            clipped = sampler if low_high == (0, 1) else Clipped(sampler, *low_high)
            return self.weighted(draw(some, places, clipped))

        return self._in_blocks(self._training_block(stream), stream, valid, weighted)

    def loss_tensors(self, batch: Batch, stream: RowStream) -> dict[str, Tensor]:
        draws = self.config.draws
        if draws == 1 or not self._training_block(stream):
            return super().loss_tensors(batch, stream)
        here = range(stream.rows.start * draws, stream.rows.stop * draws)
        several = replace(stream, rows=here, total=stream.total * draws)
        repeated = batch.part(torch.arange(len(batch.x)).repeat_interleave(draws))
        noise = self.training_noise(several, repeated.scored)
        tensors = self.tensors_of(repeated, replace(noise, importance=noise.importance / draws))
        return tensors | {"draws": torch.zeros(draws, dtype=torch.bool)}

    def _training_block(self, stream: RowStream) -> int:
        """The block size of a training step."""
        return self.config.blocks[stream.step % len(self.config.blocks)]

    def _in_blocks(
        self, block: int, stream: RowStream, valid: Valid, draw: Callable[[RowStream, Valid], Noise]
    ) -> BlockNoise:
        """Noise drawn for each block as for a row of its own, or for whole rows."""
        rows, length = valid.shape
        size = block if block and self.config.times == "block" else max(length, 1)
        padded = F.pad(valid, (0, -length % size))
        number = padded.shape[1] // size  # blocks of a row
        here = range(stream.rows.start * number, stream.rows.stop * number)
        parts = replace(stream, rows=here, total=stream.total * number)
        drawn = draw(parts, padded.view(rows * number, size))

        def by_token(value: Tensor) -> Tensor:
            wide = value if value.ndim == 2 else value[:, None].expand(-1, size)
            return wide.reshape(rows, number * size)[:, :length]

        tensors = {name: by_token(getattr(drawn, name)) for name in BlockNoise.by_token}
        others = {one.name: getattr(drawn, one.name) for one in fields(Noise)}
        return BlockNoise(**{**others, **tensors}, block=block)

    def noise_key(self, noise: RowNoise) -> Float64[Tensor, "rows columns"]:
        assert isinstance(noise, BlockNoise)
        weight = self._weights(noise).float().double()
        return torch.cat([noise.masked, noise.unfinished, weight * noise.masked], 1).double()

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        assert isinstance(noise, BlockNoise)
        weights = [self._weights(noise)]
        tensors = self.masked_tensors(batch, noise.masked, noise.t[:, 0], weights)
        ends = self._end_tensors(batch, noise) if full_bound else {}
        if noise.block:
            # its length is the block size, which the loss needs without waiting for the device
            size = torch.zeros(noise.block, dtype=torch.bool)
            tensors["block"] = size
            ends |= {f"{name} block": size for name in ENDS if f"{name} x" in ends}
        return tensors | ends

    def _weights(self, noise: BlockNoise) -> Float64[Tensor, "rows length"]:
        """The weight of each token, as in MDLM but at the time of its block."""
        weight, *_ = self.loss_inputs(noise.t.flatten())
        return weight.view_as(noise.t) * noise.importance

    def network_inputs(self, tensors: Tensors) -> tuple[Tokens, dict[str, Any]]:
        """z_t, or [z_t ; x] in blocks: one pass computes all blocks, each after the ones before."""
        if "block" not in tensors:
            return super().network_inputs(tensors)
        x, z_t, at, valid = tensors["x"], tensors["z_t"], tensors["at"], tensors.get("valid")
        length, draws = x.shape[1], len(tensors["draws"]) if "draws" in tensors else 1

        def row(noisy: Tensor, clean: Tensor) -> Tensor:
            """The draws of a row, then its text without noise."""
            return torch.cat([noisy.view(-1, draws * length), clean[::draws]], 1)

        return row(z_t, x), {
            "valid": None if valid is None else row(valid, valid),
            "positions": torch.arange(length, device=x.device).repeat(draws + 1),
            "rule": NoisyCleanRule(length, len(tensors["block"]), draws),
            "at": at + at // (draws * length) * length,
        }


def with_block(method: Method, block: int) -> Method:
    """A copy of a method with the bound of another block size; it shares the network.

    Args:
        method: A model of block diffusion. Another method raises an error.
        block: Tokens of a block; 0 is the whole row.

    Returns:
        The copy. A block size that was not trained gives a valid bound, but a loose one.
    """
    if not isinstance(method, BlockDiffusion):
        raise UnmaskError(
            f"{METHODS.name_of(method)} has no blocks: leave block out, or give a model of method "
            "block_diffusion"
        )
    other = copy.copy(method)
    other.block = block
    return other


@dataclass(frozen=True)
class Clipped(TimeSampler):
    """The times of another time sampler, moved so that the shares of masked tokens lie in a range.

    The training loss is then a mean over the shares in [low, high]. It is no bound.
    """

    inner: TimeSampler
    low: float
    high: float

    @torch.no_grad()
    def draw(self, stream: RowStream, valid: Valid, schedule: Schedule, steps: int = 0) -> Noise:
        if steps or not isinstance(self.inner, TimeFirst):
            raise UnmaskError(
                "noise_range needs times in continuous time: set time_sampler stratified"
            )
        t, importance = self.inner.row_times(stream)
        share = self.low + (self.high - self.low) * (1 - schedule.alpha(t))
        moved = schedule.inverse(1 - share)
        importance = importance * schedule.alpha_prime(t) / schedule.alpha_prime(moved)
        u = stream.uniform("mask", valid.shape[1])
        masked = masked_tokens(u, 1 - share, valid)
        return Noise(moved, masked, importance, 0.0, torch.zeros_like(masked))
