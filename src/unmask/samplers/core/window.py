"""A part of some rows, which a sampler fills while the rest of the rows stays as it is."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.randomness import child_seed
from unmask.samplers.core.canvas import Canvas, Frame, shown
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import Allow, Process
from unmask.shapes import At, Tokens


def window_seeds(
    state: SamplerState, rows: Int[Tensor, "writing"], number: int, kind: str
) -> list[int]:
    """The seeds of some rows for one of their windows.

    Args:
        state: The state of all rows.
        rows: The rows.
        number: Number of the window.
        kind: Kind of the window; each kind has seeds of its own.

    Returns:
        A seed for each of the rows.
    """
    return [child_seed(state.task.seeds[row], number, kind) for row in rows.tolist()]


def end_texts(state: SamplerState) -> bool:
    """Fills the rows that have drawn EOS with EOS.

    Args:
        state: The state of the rows.

    Returns:
        True if a row has changed.
    """
    eos_id = state.task.eos_id
    if eos_id is None:
        return False
    ended = (state.canvas.open & state.task.ends(state.z)).any(1) & state.masked.any(1)
    if not ended.any():
        return False
    state.fill(state.masked & ended[:, None], eos_id)
    return True


@dataclass(frozen=True)
class Window:
    """Some columns of some rows. A sampler sees them as its own canvas, behind `lead` other tokens."""

    rows: Int[Tensor, "writing"]
    span: slice
    lead: int = 0

    def fill(
        self, state: SamplerState, sampler: Any, denoiser: Denoiser, part: Tokens, seeds: list[int]
    ) -> Iterator[Frame]:
        """Fills the window with a sampler.

        Args:
            state: The state of all rows, which gets the tokens of the window.
            sampler: The sampler.
            denoiser: log x_theta at tokens of the window.
            part: The canvas of the sampler, with masks at the positions to fill.
            seeds: A seed for each row of the window.

        Yields:
            Frames of all rows.
        """
        task = state.task.rows(seeds)
        whole = _WholeRows(state.z, self.rows, self.span, self.lead)
        if task.allow is not None:
            task = replace(task, allow=whole.allow(task.allow))
        task = replace(task, processors=tuple(map(whole.process, task.processors)))
        if task.text is not None:
            task = replace(task, text=task.text.part(self.rows, self.span.start - self.lead))
        rows, span = self.rows, self.span
        text = slice(self.lead, self.lead + span.stop - span.start)
        canvas = Canvas(part, state.canvas.mask_id)
        calls_before, cpu_rows = state.calls.clone(), rows.cpu()
        for frame in shown(sampler.generate(denoiser, canvas, task), task):
            state.z[rows, span] = frame.tokens[:, text]
            state.confidence[rows, span] = frame.confidence[:, text]
            state.calls[cpu_rows] = calls_before[cpu_rows] + frame.calls
            state.t[cpu_rows] = frame.t
            settled = None
            if frame.settled is not None:
                settled = torch.ones_like(state.masked)
                settled[rows, span] = frame.settled[:, text]
            yield state.frame(settled)


@dataclass(frozen=True)
class _WholeRows:
    """Passes whole rows to a constraint or logits processor, while a sampler fills a window."""

    z: Tokens
    rows: Int[Tensor, "writing"]
    span: slice
    lead: int

    def allow(self, allow: Allow) -> Allow:
        return lambda z, at: allow(*self._whole(z, at))

    def process(self, process: Process) -> Process:
        return lambda log_probabilities, z, at: process(log_probabilities, *self._whole(z, at))

    def _whole(self, z: Int[Tensor, "rows window"], at: At) -> tuple[Tokens, At]:
        """The whole rows with the window's tokens, and the positions in these rows."""
        rows, columns = at
        whole = self.z[self.rows]
        whole[:, self.span] = z[:, self.lead : self.lead + self.span.stop - self.span.start]
        return whole, (rows, columns - self.lead + self.span.start)
