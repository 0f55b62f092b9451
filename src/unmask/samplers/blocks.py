"""Blocks from left to right: a masked sampler fills each block after a cache of the text before it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.diffusion.denoiser import BlockContext, BlockDenoiser, Denoiser
from unmask.errors import UnmaskError
from unmask.options import check_options, option
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.core.window import Window, end_texts, window_seeds
from unmask.samplers.sampler import SAMPLERS, Sampler


@SAMPLERS.register("blocks")
@dataclass(frozen=True)
class Blocks(Sampler):
    """Texts of any length of a model of block diffusion, block by block, with an exact cache.

    A block sees the blocks before it and no later ones. A finished block is final text. A row ends
    at EOS. Beyond `window` tokens, the latest half of a window is the context of the next blocks.
    """

    windowed = True
    blocks = True
    block: int = option(0, ge=0, help="tokens of a block; 0 takes the smallest of training")
    window: int = option(1024, ge=1, help="most tokens that the network reads")
    inner: Sampler = field(default_factory=Ancestral)
    lead: int = 0

    def __post_init__(self) -> None:
        check_options(self)

    def unwrapped(self) -> Sampler:
        return self.inner.unwrapped()

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. All rows finish a block before the next block begins."""
        if not isinstance(denoiser, BlockDenoiser):
            raise UnmaskError(
                "the sampler blocks needs a model of block_diffusion without guidance: give another "
                "sampler, such as semi_autoregressive"
            )
        block = self.block or denoiser.block
        if not block:
            raise UnmaskError(
                "this model was trained on whole rows only: give sampler ancestral, or train with "
                "method.blocks such as 4,0"
            )
        if block + self.lead > self.window:
            raise UnmaskError(
                f"a block of {block} tokens does not fit into the {self.window} tokens that the "
                "model reads: give a smaller block"
            )
        return self._frames(denoiser, block, SamplerState(denoiser, canvas, task))

    def _frames(self, denoiser: BlockDenoiser, block: int, state: SamplerState) -> Iterator[Frame]:
        length = state.z.shape[1]
        text = _Text(denoiser, block, self.window // block * block, self.lead)
        for number, start in enumerate(range(0, length, block)):
            span = slice(start, min(start + block, length))
            masked = state.masked
            if not masked[:, span].any():
                continue
            context, alive = text.before(state, masked.any(1), start)
            writing = masked[alive][:, span].any(1).nonzero()[:, 0]
            rows = alive[writing]
            seeds = window_seeds(state, rows, number, "block")
            some = context if len(writing) == len(alive) else context.of_rows(writing)
            window = Window(rows, span)
            yield from window.fill(state, self.inner, some, state.z[rows, span], seeds)
            if end_texts(state):
                yield state.frame()


class _Text:
    """The context of the rows that are not finished, moved on from block to block."""

    def __init__(self, denoiser: BlockDenoiser, block: int, window: int, lead: int) -> None:
        self._denoiser, self._block, self._window, self._lead = denoiser, block, window, lead
        self._context: BlockContext | None = None
        self._rows = torch.empty(0, dtype=torch.long)
        self._first = self._end = (
            0  # place 0 of the context, as a column, and the column it ends at
        )

    def before(
        self, state: SamplerState, unfinished: Bool[Tensor, "rows"], start: int
    ) -> tuple[BlockContext, Int[Tensor, "alive"]]:
        """The context of a block, and the rows that it has.

        Args:
            state: The state of all rows.
            unfinished: True at rows with masks.
            start: First column of the block.

        Returns:
            The context of the tokens before the block, and its rows.
        """
        rows = unfinished.nonzero()[:, 0]
        context = self._context
        if context is None or start - self._first + self._block > self._window:
            return self._restarted(state, rows, start), rows
        if len(rows) < len(self._rows):
            context.keep(unfinished[self._rows].nonzero()[:, 0])
            self._rows = rows
        context.append(state.z[rows, self._end : start])
        self._end = start
        return context, rows

    def _restarted(
        self, state: SamplerState, rows: Int[Tensor, "alive"], start: int
    ) -> BlockContext:
        """A new context: the text before a column, or its latest half window behind the first tokens."""
        z, kept = state.z[rows], start
        if start + self._block > self._window:
            kept = max(self._window // 2 // self._block * self._block, self._lead)
            kept = -(-kept // self._block) * self._block
            if kept + self._block > self._window:
                kept = 0
        lead = self._lead if 0 < kept < start else 0
        context = self._denoiser.context(len(rows), self._window, self._block)
        context.append(torch.cat([z[:, :lead], z[:, start - kept + lead : start]], 1))
        self._context, self._rows = context, rows
        self._first, self._end = start - kept, start
        return context
