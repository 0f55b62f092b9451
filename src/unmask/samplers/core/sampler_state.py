"""The text while it is written: look where the network is asked, write what is drawn, hide what is taken back."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.randomness import row_uniforms
from unmask.runtime.device import to_device
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.shapes import At, LogProbabilities, Places, Times, Uniforms

MOST_PLACES = 8192  # that are looked at together: each has a distribution over the vocabulary


@dataclass(frozen=True)
class View:
    """What the network says at some places, over the tokens that may be drawn there."""

    rows: Int[Tensor, "tokens"]
    columns: Int[Tensor, "tokens"]
    log_probabilities: LogProbabilities

    def only(self, kept: Bool[Tensor, "tokens"]) -> "View":
        """The same at fewer places."""
        return View(self.rows[kept], self.columns[kept], self.log_probabilities[kept])


class SamplerState:
    """Tokens, the confidence in each, and the network calls of each row.

    A row is asked for only when it has a place to look at, and what it becomes depends on its own
    seed alone.
    """

    def __init__(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> None:
        self.denoiser, self.canvas, self.task = denoiser, canvas, task
        self.z = canvas.tokens.clone()
        self.confidence = (~canvas.open).float()
        self.calls = torch.zeros(len(self.z), dtype=torch.long)
        self.t = torch.ones(len(self.z), dtype=torch.float64)
        self._openings = canvas.open.sum(1)
        self._free = canvas.free
        self._shown = canvas.tokens
        self._begun = time.perf_counter()

    @property
    def masked(self) -> Places:
        """The places still to fill."""
        return self.z == self.canvas.mask_id

    @property
    def now(self) -> Times:
        """The diffusion time at which as much of a text is masked: alpha_t is the share that is visible."""
        visible = 1 - self.masked.double().mean(1).cpu()
        return self.task.schedule.inverse(visible).detach()

    def uniforms(self, name: str, step: int = 0) -> Uniforms:
        """Random numbers of this row and step, one a place."""
        # torch knows no doubles on Apple's GPUs
        device = "cpu" if self.z.device.type == "mps" else self.z.device
        return row_uniforms(self.task.seeds, name, self.z.shape[1], step).to(device)

    def parts(self, places: Places) -> Iterator[Places]:
        """The places some rows at a time, for samplers that look at all of them."""
        behind = places.sum(1).cumsum(0)
        group = (behind - 1) // MOST_PLACES
        for number in group[places.any(1)].unique():
            yield places & (group == number)[:, None]

    def look(self, places: Places, t: Times) -> View:
        """Asks the network at `places`, in the rows that have one."""
        places = places.cpu()
        rows, columns = places.nonzero(as_tuple=True)
        asked = places.any(1)
        index = asked.cumsum(0) - 1  # of each row among those that the network reads
        self.count(asked.nonzero()[:, 0], t[asked])
        device = self.z.device
        rows, index, columns = to_device(torch.stack([rows, index[rows], columns]), device)
        among = None if asked.all() else to_device(asked.nonzero()[:, 0], device)
        return self.ask((rows, columns), (index, columns), among, t[asked])

    def ask(self, at: At, asked_at: At, read: Int[Tensor, "read"] | None, t: Times) -> View:
        """What the network says at places, where it reads some rows only and counts those.

        All but t is on the device already, and the CPU does not wait for it.
        """
        z = self.z if read is None else self.z[read]
        return self.seen(at, self.denoiser(z, t, asked_at))

    def seen(self, at: At, log_probabilities: LogProbabilities) -> View:
        """What was said, over the tokens that may be drawn."""
        return View(*at, self.task.restrict(log_probabilities, self.z, at))

    def count(self, rows: Int[Tensor, "asked"], t: Times) -> None:
        """Counts a call of the network for rows, at their times."""
        self.calls[rows] += getattr(self.denoiser, "cost", 1)
        self.t[rows] = t

    def write(self, view: View, uniforms: Uniforms) -> None:
        """Draws tokens where the view looks; under a constraint, one a row after the other."""
        greedy = self._greedy()
        first = True
        for part in self._turns(view):
            at = (part.rows, part.columns)
            log_probabilities = part.log_probabilities
            if not first:
                log_probabilities = self.task.restrict(log_probabilities, self.z, at)
            chance = uniforms[at[0].to(uniforms.device), at[1].to(uniforms.device)]
            likeliest = None if greedy is None else greedy[part.rows]
            tokens = self.task.choose(log_probabilities, chance, self.z, at, likeliest)
            self.z[at] = tokens
            self.confidence[at] = log_probabilities.gather(1, tokens[:, None])[:, 0].exp().float()
            first = False

    def reveal(self, places: Places, t: Times, uniforms: Uniforms) -> Frame:
        """Looks, writes and shows."""
        self.write(self.look(places, t), uniforms)
        return self.frame()

    def hide(self, places: Places) -> None:
        """Masks what was written."""
        self.z.masked_fill_(places, self.canvas.mask_id)
        self.confidence.masked_fill_(places, 0.0)

    def fill(self, places: Places, token: int) -> None:
        """Writes a token that nobody needs to be asked for."""
        self.z.masked_fill_(places, token)
        self.confidence.masked_fill_(places, 1.0)

    def frame(self) -> Frame:
        """The draft as it is now: a copy of it, if somebody watches."""
        seconds = time.perf_counter() - self._begun
        if not self.task.watched:
            return Frame(self.z, self._free, self.confidence, self.calls, self.t, seconds)
        changed = self.z != self._shown
        self._shown = self.z.clone()
        confidence, calls, t = self.confidence.clone(), self.calls.clone(), self.t.clone()
        return Frame(self._shown, changed, confidence, calls, t, seconds)

    def _greedy(self) -> Bool[Tensor, "rows"] | None:
        """The rows whose next tokens are not drawn but the likeliest, where some are and some are not."""
        if self.task.strategy != "hybrid":
            return None
        return self.masked.sum(1) <= self.task.tail * self._openings

    def _turns(self, view: View) -> list[View]:
        """All at once, unless a token may forbid another in the same row."""
        if self.task.allow is None or not len(view.rows):
            return [view]
        before = torch.arange(len(view.rows), device=view.rows.device)
        order = view.rows.argsort(stable=True)
        first = torch.searchsorted(view.rows[order], view.rows[order])
        turn = torch.empty_like(before)
        turn[order] = before - first
        return [view.only(turn == number) for number in range(int(turn.max()) + 1)]
