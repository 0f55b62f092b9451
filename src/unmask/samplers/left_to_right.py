"""One token at a time, in reading order."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser, ReadsCausally
from unmask.runtime.device import to_device
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Uniforms

PATIENCE = 32  # tokens between two looks at what a GPU has written


@SAMPLERS.register("left_to_right")
@dataclass(frozen=True)
class LeftToRight(Sampler):
    """One token at a time in reading order: the only order of an autoregressive model (KV cache)."""

    exact = causal = True

    def generate(self, denoise: Denoiser, canvas: Canvas, plan: SamplingTask) -> Iterator[Frame]:
        """A row that has drawn EOS is done: what would follow is EOS too, and costs nothing.

        On a GPU that is seen now and then only: what a row writes meanwhile is overwritten.
        """
        draft = SamplerState(denoise, canvas, plan)
        progress = _Progress(draft)
        write = _Writing(draft, progress.t)
        patience = patience_with(draft)
        for number, column in enumerate(progress.columns, 1):
            rows = progress.rows(column)
            if not len(rows):
                continue
            write(rows, column)
            if number % patience == 0:
                progress.look()
            if plan.watched:
                progress.show()
            yield draft.frame()
        ended = progress.look()
        progress.show()
        if ended:
            yield draft.frame()


def patience_with(draft: SamplerState) -> int:
    """How many tokens may be written before somebody looks whether a text has ended."""
    looks = draft.plan.watched or draft.plan.allow is not None
    return 1 if looks or draft.z.device.type == "cpu" else PATIENCE


class _Writing:
    """Writes columns: by reading on, or by asking as any other denoiser is asked, which reads all rows."""

    def __init__(self, draft: SamplerState, t: Float64[Tensor, "rows length"]) -> None:
        self._draft, self._t = draft, t
        self._uniforms: Uniforms = draft.uniforms("token")
        self._read = draft.denoise.reading() if isinstance(draft.denoise, ReadsCausally) else None
        self._rows = self._sent = torch.empty(0, dtype=torch.long)

    def __call__(self, rows: Int[Tensor, "asked"], column: int) -> None:
        draft = self._draft
        if not torch.equal(rows, self._rows):
            self._rows, self._sent = rows, to_device(rows, draft.z.device)
        here = self._sent
        if self._read is not None and draft.plan.simple:
            flat = here * draft.z.shape[1] + column
            chance = self._uniforms.view(-1)[flat.to(self._uniforms.device)]
            chosen = self._read(draft.z, column, here, draft.plan.manner, chance)
            draft.z.view(-1).index_copy_(0, flat, chosen[:, 0].long())
            draft.confidence.view(-1).index_copy_(0, flat, chosen[:, 1].float())
            return
        at = (here, torch.full_like(here, column))
        if self._read is not None:
            said = self._read(draft.z, column, here)
        else:
            said = draft.denoise(draft.z, self._t[:, column], at)
        draft.write(draft.seen(at, said), self._uniforms)


class _Progress:
    """How far each row has come: its last call, and whether its text has ended."""

    def __init__(self, draft: SamplerState) -> None:
        self._draft, self._open = draft, draft.canvas.open.cpu()
        self.columns = self._open.any(0).nonzero()[:, 0].tolist()
        self._last = torch.full((len(draft.z),), -1)  # the column of the last call
        self._ended = torch.zeros(len(draft.z), dtype=torch.bool)
        left = self._open.flip(1).cumsum(1).flip(1)  # masks there are when a column is asked for
        self.t = draft.plan.schedule.inverse(1 - left.double() / draft.z.shape[1]).detach()
        self._calls = self._open.cumsum(1) * getattr(draft.denoise, "cost", 1)

    def rows(self, column: int) -> Int[Tensor, "asked"]:
        """The rows that are to be asked at a column, which is then their last."""
        asked = self._open[:, column] & ~self._ended
        self._last.masked_fill_(asked, column)
        return asked.nonzero()[:, 0]

    def look(self) -> bool:
        """Rows in which EOS was drawn are done, and behind it is EOS; are there any new ones?"""
        draft, eos = self._draft, self._draft.plan.eos_id
        if eos is None:
            return False
        place = torch.arange(draft.z.shape[1])
        drawn = (draft.z.cpu() == eos) & self._open & (place <= self._last[:, None])
        ended = (drawn.any(1) & ~self._ended).nonzero()[:, 0]
        if not len(ended):
            return False
        self._ended[ended] = True
        self._last[ended] = drawn[ended].int().argmax(1)
        behind = self._open & self._ended[:, None] & (place > self._last[:, None])
        draft.fill(to_device(behind, draft.z.device), eos)
        return True

    def show(self) -> None:
        """The calls and the times of rows, as if nobody had asked behind their end."""
        rows = (self._last >= 0).nonzero()[:, 0]
        self._draft.calls[rows] = self._calls[rows, self._last[rows]]
        self._draft.t[rows] = self.t[rows, self._last[rows]]
