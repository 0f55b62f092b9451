"""Blocks from left to right: a masked sampler fills each block after a cache of the text before it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.diffusion.denoiser import BlockContext, BlockDenoiser, Denoiser, RowDenoiser
from unmask.errors import UnmaskError
from unmask.options import check_options, option
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.core.window import Window, end_texts, window_seeds
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import At, LogProbabilities, Times, Tokens


@SAMPLERS.register("blocks")
@dataclass(frozen=True)
class Blocks(Sampler):
    """Texts in blocks from left to right, each filled by another sampler.

    With a model of block diffusion, texts have any length: a block sees the blocks before it, in an
    exact cache, and no later ones. Beyond `window` tokens, the latest half of a window is the context
    of the next blocks. Any other model reads the whole row, also the masks of later blocks. A
    finished block is final text, and a row ends at EOS.
    """

    windowed = True
    blocks = True
    block: int = option(0, ge=0, help="tokens of a block; 0 takes the smallest of training")
    window: int = option(
        0, ge=0, help="most tokens that the network reads; 0 takes the model's length"
    )
    aligned: bool = option(
        False, help="blocks of whole rows begin at multiples of `block`, not at the first mask"
    )
    first: bool = option(
        False, help="write the first token of a block before the others (Fast-dLLM v2)"
    )
    inner: Sampler = field(default_factory=Ancestral)
    lead: int = 0

    def __post_init__(self) -> None:
        check_options(self)

    def unwrapped(self) -> Sampler:
        return self.inner.unwrapped()

    @property
    def one_path(self) -> bool:
        return self.inner.one_path

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. All rows finish a block before the next block begins."""
        if not isinstance(denoiser, BlockDenoiser):
            if not self.block:
                raise UnmaskError(
                    "this model has no block size of its own: give one, such as blocks:block=32"
                )
            return self._in_whole_rows(SamplerState(denoiser, canvas, task))
        block = self.block or denoiser.block
        if not block:
            raise UnmaskError(
                "this model was trained on whole rows only: give sampler ancestral, or train with "
                "method.blocks such as 4,0"
            )
        window = self.window or canvas.tokens.shape[1] + block
        if block + self.lead > window:
            raise UnmaskError(
                f"a block of {block} tokens does not fit into the {window} tokens that the "
                "model reads: give a smaller block"
            )
        length = canvas.tokens.shape[1]
        whole = -(-length // block) * block  # a longer cache than the text stays empty
        text = _Text(denoiser, block, min(window // block * block, whole), self.lead)
        return self._frames(text, block, SamplerState(denoiser, canvas, task))

    def _frames(self, text: "_Text", block: int, state: SamplerState) -> Iterator[Frame]:
        length = state.z.shape[1]
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
            for inner in [_FirstToken()] * self.first + [self.inner]:
                yield from window.fill(state, inner, some, state.z[rows, span], seeds)
            if end_texts(state):
                yield state.frame()

    def _in_whole_rows(self, state: SamplerState) -> Iterator[Frame]:
        """Frames of a model that reads whole rows. The first block of a row begins at its first mask."""
        firsts = state.masked.long().argmax(1)
        if self.aligned:
            firsts = firsts // self.block * self.block
        length = state.z.shape[1]
        for first in firsts.unique().tolist():
            rows = (firsts == first).nonzero()[:, 0]
            for number, start in enumerate(range(first, length, self.block)):
                span = slice(start, min(start + self.block, length))
                rows = rows[state.masked[rows, first:].any(1)]
                writing = rows[state.masked[rows, span].any(1)]
                if len(writing):
                    seeds = window_seeds(state, writing, number, "block")
                    part = state.z[writing, span]
                    some = _rows_of(state.denoiser, writing, len(state.z))
                    around = _WholeRow(some, state, writing, span)
                    window = Window(writing, span)
                    yield from window.fill(state, self.inner, around, part, seeds)
                if end_texts(state):
                    yield state.frame()


class _FirstToken(Sampler):
    """Writes the first token of the rows that begin with a mask."""

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        state = SamplerState(denoiser, canvas, task)
        places = state.masked
        places[:, 1:] = False
        if places.any():
            yield state.reveal(places, state.now, state.uniforms("token"))


@dataclass(frozen=True)
class _WholeRow:
    """log x_theta at tokens of a block, by a denoiser that reads the whole rows around it."""

    denoiser: Denoiser
    state: SamplerState
    rows: Int[Tensor, "writing"]
    span: slice

    @property
    def cost(self) -> int:
        """Network calls per row in each denoiser call."""
        return getattr(self.denoiser, "cost", 1)

    def of_rows(self, rows: Int[Tensor, "read"]) -> "_WholeRow":
        """The denoiser of some of these rows.

        Args:
            rows: Their indices among these rows.

        Returns:
            The denoiser.
        """
        some = _rows_of(self.denoiser, rows, len(self.rows))
        return _WholeRow(some, self.state, self.rows[rows], self.span)

    def __call__(self, z_t: Tokens, t: Times, at: At) -> LogProbabilities:
        z = self.state.z[self.rows]
        z[:, self.span] = z_t
        masked = (z == self.state.canvas.mask_id).double().mean(1).cpu()
        t = self.state.task.schedule.inverse(1 - masked).detach()
        rows, columns = at
        return self.denoiser(z, t, (rows, columns + self.span.start))


def _rows_of(denoiser: Denoiser, rows: Int[Tensor, "read"], total: int) -> Denoiser:
    """The denoiser of some of its rows."""
    if len(rows) == total or not isinstance(denoiser, RowDenoiser):
        return denoiser
    return denoiser.of_rows(rows)


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
