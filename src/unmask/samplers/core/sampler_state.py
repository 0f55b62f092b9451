"""State of the rows during sampling, with the steps that predict, write and mask tokens."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.cancellation import raise_if_cancelled
from unmask.diffusion.denoiser import Denoiser, RowDenoiser
from unmask.randomness import row_uniforms
from unmask.runtime.device import to_device
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.shapes import At, LogProbabilities, Places, Times, Uniforms

GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are a sequence of low discrepancy
MOST_POSITIONS = 8192  # of one network call; each has a distribution over the vocabulary


@dataclass(frozen=True)
class View:
    """Distributions at some positions, over the tokens that are allowed there."""

    rows: Int[Tensor, "tokens"]
    columns: Int[Tensor, "tokens"]
    log_probabilities: LogProbabilities

    def only(self, kept: Bool[Tensor, "tokens"]) -> "View":
        """A part of the view.

        Args:
            kept: True at the positions to keep.

        Returns:
            The view at these positions.
        """
        return View(self.rows[kept], self.columns[kept], self.log_probabilities[kept])


class SamplerState:
    """Tokens, their confidence, and the network calls of each row.

    The network reads only rows with a position to predict. A row depends on its own seed only.
    """

    def __init__(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> None:
        self.denoiser, self.canvas, self.task = denoiser, canvas, task
        self.z = canvas.tokens.clone()
        self.confidence = (~canvas.open).float()
        self.calls = torch.zeros(len(self.z), dtype=torch.long)
        self.t = torch.ones(len(self.z), dtype=torch.float64)
        self._open_count = canvas.open.sum(1)
        self._free = canvas.free
        self._shown = canvas.tokens
        self._started = time.perf_counter()

    @property
    def masked(self) -> Places:
        """True at masks."""
        return self.z == self.canvas.mask_id

    @property
    def now(self) -> Times:
        """The time of each row at which alpha_t equals its share of unmasked tokens."""
        visible = 1 - self.masked.double().mean(1).cpu()
        return self.task.schedule.inverse(visible).detach()

    def uniforms(self, name: str, step: int = 0) -> Uniforms:
        """Uniforms of each row for a step, one per position.

        Args:
            name: Purpose of the numbers. Each name has its own random stream.
            step: Number of the step.

        Returns:
            Numbers in [0, 1), a function of (seed of the row, name, step).
        """
        raise_if_cancelled()
        # Apple's GPUs have no float64
        device = "cpu" if self.z.device.type == "mps" else self.z.device
        return row_uniforms(self.task.seeds, name, self.z.shape[1], step).to(device)

    def spread_uniforms(self, name: str, step: int = 0) -> Uniforms:
        """Uniforms of each row that are close to each other only at positions far apart.

        They are the multiples of the golden ratio modulo 1, with a random shift of each row. The
        open positions of a row are counted, so given tokens do not bring others together.

        Args:
            name: Purpose of the numbers, as for `uniforms`.
            step: Number of the step.

        Returns:
            Numbers in [0, 1), each with a uniform distribution.
        """
        shift = self.uniforms(name, step)[:, :1]
        return (shift + (self.canvas.open.cumsum(1) - 1).to(shift) * GOLDEN) % 1

    def parts(self, places: Places) -> Iterator[Places]:
        """Splits positions into parts of whole rows,
        since a call for all of them may need too much memory.

        Args:
            places: True at the positions.

        Yields:
            Parts of about MOST_POSITIONS positions.
        """
        counted = places.sum(1).cumsum(0)
        group = (counted - 1) // MOST_POSITIONS
        for number in group[places.any(1)].unique():
            yield places & (group == number)[:, None]

    def look(self, places: Places, t: Times) -> View:
        """Calls the network for the rows that have a position in `places`.

        Args:
            places: True at the positions to predict.
            t: Time of each row.

        Returns:
            The distributions at these positions.
        """
        places = places.cpu()
        rows, columns = places.nonzero(as_tuple=True)
        is_read = places.any(1)
        index = is_read.cumsum(0) - 1  # index of each row among those that the network reads
        self.count(is_read.nonzero()[:, 0], t[is_read])
        device = self.z.device
        rows, index, columns = to_device(torch.stack([rows, index[rows], columns]), device)
        read = None if is_read.all() else to_device(is_read.nonzero()[:, 0], device)
        return self.predict((rows, columns), (index, columns), read, t[is_read])

    def predict(self, at: At, read_at: At, read: Int[Tensor, "read"] | None, t: Times) -> View:
        """Calls the network for some rows. The CPU does not wait for the device.

        Args:
            at: Rows and columns of the positions, on the device.
            read_at: The same, with indices into `read` for rows.
            read: The rows that the network reads, on the device; None for all.
            t: Time of each row read, on the CPU.

        Returns:
            The distributions at the positions.
        """
        z, denoiser = self.z, self.denoiser
        if read is not None:
            z = self.z[read]
            denoiser = denoiser.of_rows(read) if isinstance(denoiser, RowDenoiser) else denoiser
        return self.seen(at, denoiser(z, t, read_at))

    def seen(self, at: At, log_probabilities: LogProbabilities) -> View:
        """A view of a network's output, restricted to the allowed tokens.

        Args:
            at: Rows and columns of the positions.
            log_probabilities: The network's distributions there.

        Returns:
            The view.
        """
        return View(*at, self.task.restrict(log_probabilities, self.z, at))

    def count(self, rows: Int[Tensor, "read"], t: Times) -> None:
        """Counts a network call.

        Args:
            rows: The rows that the network reads.
            t: Time of each of these rows.
        """
        self.calls[rows] += getattr(self.denoiser, "cost", 1)
        self.t[rows] = t

    def write(self, view: View, uniforms: Uniforms) -> None:
        """Draws and writes a token at each position of a view.

        Under a constraint, the tokens of a row are drawn one after the other.

        Args:
            view: Distributions at the positions.
            uniforms: One number per position of the batch.
        """
        greedy = self._greedy()
        first = True
        for part in self._draws(view):
            at = (part.rows, part.columns)
            log_probabilities = part.log_probabilities
            if not first:
                log_probabilities = self.task.restrict(log_probabilities, self.z, at)
            drawn = uniforms[at[0].to(uniforms.device), at[1].to(uniforms.device)]
            likeliest = None if greedy is None else greedy[part.rows]
            tokens = self.task.choose(log_probabilities, drawn, self.z, at, likeliest)
            self.z[at] = tokens
            self.confidence[at] = log_probabilities.gather(1, tokens[:, None])[:, 0].exp().float()
            first = False

    def reveal(self, places: Places, t: Times, uniforms: Uniforms) -> Frame:
        """Calls the network at positions and writes tokens there.

        Args:
            places: True at the positions.
            t: Time of each row.
            uniforms: One number per position of the batch.

        Returns:
            The frame after it.
        """
        self.write(self.look(places, t), uniforms)
        return self.frame()

    def hide(self, places: Places) -> None:
        """Masks tokens again.

        Args:
            places: True at these tokens.
        """
        self.z.masked_fill_(places, self.canvas.mask_id)
        self.confidence.masked_fill_(places, 0.0)

    def fill(self, places: Places, token: int) -> None:
        """Writes a given token, with confidence 1.

        Args:
            places: True at the positions.
            token: Id of the token.
        """
        self.z.masked_fill_(places, token)
        self.confidence.masked_fill_(places, 1.0)

    def frame(self, settled: Places | None = None) -> Frame:
        """The state as a frame.

        Args:
            settled: For a sampler that revises, True at positions that no later step masks.

        Returns:
            A copy if `watched` is set; otherwise later steps change the frame.
        """
        seconds = time.perf_counter() - self._started
        if not self.task.watched:
            return Frame(self.z, self._free, self.confidence, self.calls, self.t, seconds)
        changed = self.z != self._shown
        self._shown = self.z.clone()
        confidence, calls, t = self.confidence.clone(), self.calls.clone(), self.t.clone()
        if settled is not None:
            settled = settled & ~self.masked
        return Frame(self._shown, changed, confidence, calls, t, seconds, settled)

    def _greedy(self) -> Bool[Tensor, "rows"] | None:
        """True at rows in their tail, where hybrid takes the likeliest token;
        None for other strategies.
        """
        if self.task.strategy != "hybrid":
            return None
        return self.masked.sum(1) <= self.task.tail * self._open_count

    def _draws(self, view: View) -> list[View]:
        """The parts of the view that are drawn at once; under a constraint, one token per row."""
        if self.task.allow is None or not len(view.rows):
            return [view]
        index = torch.arange(len(view.rows), device=view.rows.device)
        order = view.rows.argsort(stable=True)
        first = torch.searchsorted(view.rows[order], view.rows[order])
        rank = torch.empty_like(index)  # of each position within its row
        rank[order] = index - first
        return [view.only(rank == number) for number in range(int(rank.max()) + 1)]
