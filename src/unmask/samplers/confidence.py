"""Confidence samplers: score all masked positions and write tokens at the best ones.

With the exact denoiser, texts have the exact distribution if each step writes one token, at a
position that is chosen before the token is drawn. Several tokens per step need fewer network calls,
but they are drawn independently of each other, which is an approximation.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from unmask.cancellation import raise_if_cancelled
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.schedule import Schedule
from unmask.options import check_options, option
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState, View
from unmask.samplers.core.time_grid import check_grid, grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Places, Times

Scores = Float[Tensor, "rows length"]  # -inf at positions without a score
Counts = Int[Tensor, "rows"]
LARGEST_NOISE = 1e6
COUNTS = ("schedule", "even", "share")
_LAST_TIME = 1e-3  # at which Dream's last step begins, whose time is not 0


@dataclass(frozen=True)
class Counted(Sampler):
    """Writes a number of tokens per step, at the highest scores.

    The number follows the noise schedule, or it is the same in all steps (`even`). It can also be the
    whole part of the expected number (`share`), and the last step writes the rest. The score gets Gumbel noise, scaled by `noise` * t. So the noise decreases towards the end.
    """

    steps: int = option(128, help="denoising steps")
    grid: str = option("uniform", help="uniform, cosine, or times such as 1,0.5,0")
    noise: float = option(0.0, ge=0, le=LARGEST_NOISE, help="scale of Gumbel noise on the score")
    counts: str = option(
        "schedule", among=COUNTS, help="tokens of a step: schedule, even (LLaDA) or share (Dream)"
    )
    sharpened: bool = option(
        False, help="score the distribution after temperature, top_k and top_p (Dream, SDAR)"
    )

    def __post_init__(self) -> None:
        check_grid(self.grid, self.steps)
        check_options(self)

    @property
    def one_path(self) -> bool:
        return self.noise == 0 and not self.redraws

    @property
    def redraws(self) -> bool:
        """True if a step draws all masked tokens and remasks those of the lowest confidence."""
        return False

    @abstractmethod
    def score(self, view: View) -> Float[Tensor, "tokens"]:
        """Confidence of the network at each position of the view."""

    def select(
        self, state: SamplerState, view: View, count: Counts, noise: Scores | float
    ) -> Places:
        """True at the positions of a view at which a step writes, `count` of each row."""
        scored = sharpened(state, view) if self.sharpened else view
        return self.chosen(dense(state, view, self.score(scored)) + noise, count)

    def chosen(self, scores: Scores, count: Counts) -> Places:
        """True at the positions at which a step writes."""
        return highest(scores, count)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. The network reads a row only in steps that write into it."""
        state = SamplerState(denoiser, canvas, task)
        uniforms = state.uniforms("token")
        times = grid_times(self.grid, self.steps)
        left = masks_left(canvas.open.sum(1), task.schedule, times)
        for step, t in enumerate(times[:-1]):
            raise_if_cancelled()
            count = self._count(state, step, left)
            places = state.masked & (count > 0)[:, None]
            if not places.any():
                continue
            now = t.expand(len(state.z))
            noise = gumbel(state, self.noise, now, step)
            for part in state.parts(places):
                view = state.look(part, now)
                if self.redraws:
                    state.write(view, state.uniforms("token", step))
                    kept = self.chosen(dense(state, view, self._drawn(state, view)) + noise, count)
                    state.hide(part & ~kept)
                else:
                    state.write(part_of(view, self.select(state, view, count, noise)), uniforms)
            yield state.frame()

    def _count(self, state: SamplerState, step: int, left: Int[Tensor, "steps rows"]) -> Counts:
        """Number of tokens of each row that a step writes."""
        masks = state.masked.sum(1)
        if self.counts == "even":
            openings = state.canvas.open.sum(1)
            return openings // self.steps + (step < openings % self.steps)
        if self.counts == "share":
            return masks if step == self.steps - 1 else _whole_part(masks, step, self.steps)
        return masks - left[step]

    def _drawn(self, state: SamplerState, view: View) -> Float[Tensor, "tokens"]:
        """Log-probability of the drawn tokens."""
        at = (view.rows, view.columns)
        if not self.sharpened:
            return state.confidence[at].log()
        scored = sharpened(state, view).log_probabilities
        return scored.gather(1, state.z[at][:, None])[:, 0]


@SAMPLERS.register("confidence")
@dataclass(frozen=True)
class Confidence(Counted):
    """Writes at positions whose likeliest token has the highest probability (MaskGIT, LLaDA)."""

    drawn: bool = option(False, help="score the drawn token: low-confidence remasking")
    threshold: float = option(
        1.0, gt=0, le=1, help="probability above which a token is written too; 1 for none"
    )

    @property
    def redraws(self) -> bool:
        return self.drawn

    def chosen(self, scores: Scores, count: Counts) -> Places:
        best = super().chosen(scores, count)
        return best if self.threshold == 1 else best | (scores > math.log(self.threshold))

    def score(self, view: View) -> Float[Tensor, "tokens"]:
        return view.log_probabilities.amax(-1)


@SAMPLERS.register("margin")
@dataclass(frozen=True)
class Margin(Counted):
    """Writes at positions with the largest margin between the two likeliest tokens."""

    def score(self, view: View) -> Float[Tensor, "tokens"]:
        best, second = view.log_probabilities.exp().topk(2, -1).values.unbind(-1)
        return (best - second).log()


@SAMPLERS.register("entropy")
@dataclass(frozen=True)
class Entropy(Counted):
    """Writes at positions whose distribution has the lowest entropy."""

    def score(self, view: View) -> Float[Tensor, "tokens"]:
        return -entropy_of(view)


@dataclass(frozen=True)
class _Bounded(Sampler):
    """Writes all tokens within a bound, at least one per step.
    The share of masks gives the time t.
    """

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        state = SamplerState(denoiser, canvas, task)
        uniforms = state.uniforms("token")
        step = 0
        while state.masked.any():
            t = state.now
            for part in state.parts(state.masked):
                view = state.look(part, t)
                state.write(part_of(view, self.choose(state, view, t, step)), uniforms)
            yield state.frame()
            step += 1

    @abstractmethod
    def choose(self, state: SamplerState, view: View, t: Times, step: int) -> Places:
        """The positions at which to write."""


@SAMPLERS.register("entropy_bound")
@dataclass(frozen=True)
class EntropyBound(_Bounded):
    """Writes the tokens of lowest entropy,
    while their entropies without the largest sum to <= gamma.

    The sum bounds the mutual information of these tokens, which independent draws ignore.
    """

    gamma: float = option(0.1, ge=0, help="bound on the sum of entropies of a step, in nats")
    noise: float = option(0.0, ge=0, le=LARGEST_NOISE, help="scale of Gumbel noise on the score")

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def one_path(self) -> bool:
        return self.noise == 0

    def choose(self, state: SamplerState, view: View, t: Times, step: int) -> Places:
        entropy = entropy_of(view)
        scores = dense(state, view, -entropy) + gumbel(state, self.noise, t, step)
        order = scores.argsort(dim=1, descending=True, stable=True)
        ordered = dense(state, view, entropy).gather(1, order)  # unmasked positions last, at -inf
        masked = ordered > -math.inf
        ordered = ordered.where(masked, 0.0)
        accepted = masked & (ordered.cumsum(1) - ordered.cummax(1).values <= self.gamma)
        accepted[:, 0] = masked[:, 0]
        return torch.zeros_like(accepted).scatter(1, order, accepted)


@SAMPLERS.register("threshold")
@dataclass(frozen=True)
class Threshold(_Bounded):
    """Writes where the likeliest token exceeds a probability,
    and always at the best position of a row.
    """

    threshold: float = option(0.9, gt=0, le=1, help="probability that a token must exceed")
    noise: float = option(
        0.0, ge=0, le=LARGEST_NOISE, help="scale of Gumbel noise on the log-probability, times t"
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def one_path(self) -> bool:
        return self.noise == 0

    def choose(self, state: SamplerState, view: View, t: Times, step: int) -> Places:
        scores = dense(state, view, view.log_probabilities.amax(-1))
        scores = scores + gumbel(state, self.noise, t, step)
        best = highest(scores, state.masked.any(1).long())
        return best | (scores > math.log(self.threshold))


def masks_left(
    openings: Counts, schedule: Schedule, times: Float64[Tensor, "times"]
) -> Int[Tensor, "steps rows"]:
    """Number of masks of a row after each step: n (1 - alpha_s) / (1 - alpha_1)
    for n open positions.

    A half rounds down, also under rounding errors of alpha. The last step leaves no mask.
    """
    alpha = schedule.alpha(times).detach()
    share = (1 - alpha[1:]) / (1 - alpha[0])
    share[-1] = 0.0
    expected = (share[:, None] * openings.cpu()).round(decimals=9)
    return (expected - 0.5).ceil().long().to(openings.device)


def _whole_part(masks: Counts, step: int, steps: int) -> Counts:
    """The whole part of the number of masks that a step reveals, in fp32 as Dream computes it."""
    t, s = torch.linspace(1, _LAST_TIME, steps + 1)[step : step + 2]
    return (masks.cpu().float() * (1 - s / t)).long().to(masks.device)


def sharpened(state: SamplerState, view: View) -> View:
    """A view after top-k, top-p and temperature, except temperature 0, under which all scores are 1."""
    task = state.task if state.task.temperature else replace(state.task, temperature=1.0)
    at = (view.rows, view.columns)
    return View(*at, task.sharpened(view.log_probabilities, state.z, at).log_softmax(-1))


def entropy_of(view: View) -> Float[Tensor, "tokens"]:
    """Entropy of the distribution at each position, in nats."""
    return torch.special.entr(view.log_probabilities.exp()).sum(-1)


def dense(state: SamplerState, view: View, values: Float[Tensor, "tokens"]) -> Scores:
    """Values of a view in the shape of the batch: finite at its positions, -inf elsewhere."""
    scores = values.new_full(state.z.shape, -math.inf)
    scores[view.rows, view.columns] = values.clamp(min=torch.finfo(values.dtype).min)
    return scores


def gumbel(state: SamplerState, noise: float, t: Times, step: int) -> Scores | float:
    """Gumbel noise for the scores, scaled by `noise` * t, from the seed of each row."""
    if noise == 0:
        return 0.0
    u = state.uniforms("order", step).clamp(min=2.0**-54)
    scaled = noise * t[:, None] * -torch.log(-torch.log(u.cpu()))
    return scaled.to(state.z.device, torch.float32)


def highest(scores: Scores, count: Counts) -> Places:
    """True at the `count` highest scores of each row; ties go to the left."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    return order.argsort(1) < count[:, None]


def part_of(view: View, places: Places) -> View:
    """The part of a view at some positions."""
    return view.only(places[view.rows, view.columns])
