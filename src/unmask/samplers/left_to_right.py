"""Left-to-right sampling, one token of each row per step."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from unmask.diffusion.denoiser import CausalDenoiser, Denoiser
from unmask.runtime.device import to_device
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Uniforms

EOS_INTERVAL = 32  # tokens between two checks for EOS on a GPU


@SAMPLERS.register("left_to_right")
@dataclass(frozen=True)
class LeftToRight(Sampler):
    """One token at a time from left to right, as an autoregressive model needs it,
    with a KV cache.
    """

    exact = causal = True

    @property
    def one_path(self) -> bool:
        return True

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. A row ends at its first EOS;
        EOS fills the rest without network calls.

        A GPU checks for EOS every EOS_INTERVAL tokens only.
        EOS then overwrites tokens behind the end.
        """
        state = SamplerState(denoiser, canvas, task)
        progress = _Progress(state)
        write = _ColumnWriter(state, progress.t)
        interval = eos_interval(state)
        for number, column in enumerate(progress.columns, 1):
            rows = progress.rows(column)
            if not len(rows):
                continue
            write(rows, column)
            if number % interval == 0:
                progress.end_rows()
            if task.watched:
                progress.update_calls()
            yield state.frame()
        ended = progress.end_rows()
        progress.update_calls()
        if ended:
            yield state.frame()


def eos_interval(state: SamplerState) -> int:
    """Number of tokens between two checks for EOS."""
    each_token = state.task.watched or state.task.allow is not None
    return 1 if each_token or state.z.device.type == "cpu" else EOS_INTERVAL


class _ColumnWriter:
    """Writes the tokens of some rows at a column, with cached decoding if the denoiser has it."""

    def __init__(self, state: SamplerState, t: Float64[Tensor, "rows length"]) -> None:
        self._state, self._t = state, t
        self._uniforms: Uniforms = state.uniforms("token")
        denoiser = state.denoiser
        self._decoder = denoiser.decoder() if isinstance(denoiser, CausalDenoiser) else None
        self._rows = self._device_rows = torch.empty(0, dtype=torch.long)

    def __call__(self, rows: Int[Tensor, "writing"], column: int) -> None:
        state = self._state
        if not torch.equal(rows, self._rows):
            self._rows, self._device_rows = rows, to_device(rows, state.z.device)
        rows = self._device_rows
        if self._decoder is not None and state.task.simple:
            flat = rows * state.z.shape[1] + column
            uniforms = self._uniforms.view(-1)[flat.to(self._uniforms.device)]
            chosen = self._decoder(state.z, column, rows, state.task.token_sampler, uniforms)
            state.z.view(-1).index_copy_(0, flat, chosen[:, 0].long())
            state.confidence.view(-1).index_copy_(0, flat, chosen[:, 1].float())
            return
        at = (rows, torch.full_like(rows, column))
        if self._decoder is not None:
            log_probabilities = self._decoder(state.z, column, rows)
        else:
            log_probabilities = state.denoiser(state.z, self._t[:, column], at)
        state.write(state.seen(at, log_probabilities), self._uniforms)


class _Progress:
    """Progress of each row: the column of its last call, and True if its text has ended."""

    def __init__(self, state: SamplerState) -> None:
        self._state, self._open = state, state.canvas.open.cpu()
        self.columns = self._open.any(0).nonzero()[:, 0].tolist()
        self._last = torch.full((len(state.z),), -1)  # the column of the last call
        self._ended = torch.zeros(len(state.z), dtype=torch.bool)
        left = self._open.flip(1).cumsum(1).flip(1)  # masks left at the call for each column
        self.t = state.task.schedule.inverse(1 - left.double() / state.z.shape[1]).detach()
        self._calls = self._open.cumsum(1) * getattr(state.denoiser, "cost", 1)

    def rows(self, column: int) -> Int[Tensor, "writing"]:
        """The rows to write at a column, which becomes their last column."""
        writing = self._open[:, column] & ~self._ended
        self._last.masked_fill_(writing, column)
        return writing.nonzero()[:, 0]

    def end_rows(self) -> bool:
        """Ends the rows that have drawn EOS and fills them with EOS. True if a row has ended."""
        state, eos = self._state, self._state.task.eos_id
        if eos is None:
            return False
        column = torch.arange(state.z.shape[1])
        drawn = state.task.ends(state.z).cpu() & self._open & (column <= self._last[:, None])
        ended = (drawn.any(1) & ~self._ended).nonzero()[:, 0]
        if not len(ended):
            return False
        self._ended[ended] = True
        self._last[ended] = drawn[ended].int().argmax(1)
        behind = self._open & self._ended[:, None] & (column > self._last[:, None])
        state.fill(to_device(behind, state.z.device), eos)
        return True

    def update_calls(self) -> None:
        """Sets the calls and the time of each row. Calls after its end do not count."""
        rows = (self._last >= 0).nonzero()[:, 0]
        self._state.calls[rows] = self._calls[rows, self._last[rows]]
        self._state.t[rows] = self.t[rows, self._last[rows]]
