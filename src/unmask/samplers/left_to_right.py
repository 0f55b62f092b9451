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

PATIENCE = 32  # tokens between two checks for EOS on a GPU


@SAMPLERS.register("left_to_right")
@dataclass(frozen=True)
class LeftToRight(Sampler):
    """One token at a time from left to right: the only order of an autoregressive model (KV cache)."""

    exact = causal = True

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. A row ends at its first EOS; EOS fills the rest without network calls.

        A GPU checks for EOS every PATIENCE tokens only. EOS then overwrites tokens behind the end.
        """
        state = SamplerState(denoiser, canvas, task)
        progress = _Progress(state)
        write = _Writing(state, progress.t)
        patience = patience_with(state)
        for number, column in enumerate(progress.columns, 1):
            rows = progress.rows(column)
            if not len(rows):
                continue
            write(rows, column)
            if number % patience == 0:
                progress.look()
            if task.watched:
                progress.show()
            yield state.frame()
        ended = progress.look()
        progress.show()
        if ended:
            yield state.frame()


def patience_with(state: SamplerState) -> int:
    """Number of tokens between two checks for EOS."""
    looks = state.task.watched or state.task.allow is not None
    return 1 if looks or state.z.device.type == "cpu" else PATIENCE


class _Writing:
    """Writes a column of some rows, with cached decoding if the denoiser has it."""

    def __init__(self, state: SamplerState, t: Float64[Tensor, "rows length"]) -> None:
        self._state, self._t = state, t
        self._uniforms: Uniforms = state.uniforms("token")
        denoiser = state.denoiser
        self._decoder = denoiser.decoder() if isinstance(denoiser, CausalDenoiser) else None
        self._rows = self._sent = torch.empty(0, dtype=torch.long)

    def __call__(self, rows: Int[Tensor, "asked"], column: int) -> None:
        state = self._state
        if not torch.equal(rows, self._rows):
            self._rows, self._sent = rows, to_device(rows, state.z.device)
        here = self._sent
        if self._decoder is not None and state.task.simple:
            flat = here * state.z.shape[1] + column
            chance = self._uniforms.view(-1)[flat.to(self._uniforms.device)]
            chosen = self._decoder(state.z, column, here, state.task.token_sampler, chance)
            state.z.view(-1).index_copy_(0, flat, chosen[:, 0].long())
            state.confidence.view(-1).index_copy_(0, flat, chosen[:, 1].float())
            return
        at = (here, torch.full_like(here, column))
        if self._decoder is not None:
            said = self._decoder(state.z, column, here)
        else:
            said = state.denoiser(state.z, self._t[:, column], at)
        state.write(state.seen(at, said), self._uniforms)


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

    def rows(self, column: int) -> Int[Tensor, "asked"]:
        """The rows to write at a column, which becomes their last column."""
        asked = self._open[:, column] & ~self._ended
        self._last.masked_fill_(asked, column)
        return asked.nonzero()[:, 0]

    def look(self) -> bool:
        """Ends the rows that have drawn EOS and fills them with EOS. True if a row has ended."""
        state, eos = self._state, self._state.task.eos_id
        if eos is None:
            return False
        place = torch.arange(state.z.shape[1])
        drawn = (state.z.cpu() == eos) & self._open & (place <= self._last[:, None])
        ended = (drawn.any(1) & ~self._ended).nonzero()[:, 0]
        if not len(ended):
            return False
        self._ended[ended] = True
        self._last[ended] = drawn[ended].int().argmax(1)
        behind = self._open & self._ended[:, None] & (place > self._last[:, None])
        state.fill(to_device(behind, state.z.device), eos)
        return True

    def show(self) -> None:
        """Sets the calls and the time of each row, without the calls behind its end."""
        rows = (self._last >= 0).nonzero()[:, 0]
        self._state.calls[rows] = self._calls[rows, self._last[rows]]
        self._state.t[rows] = self.t[rows, self._last[rows]]
