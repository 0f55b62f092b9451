"""Steps that are not finite, and losses that jump: what is skipped, what is told, when to go back."""

import math
from dataclasses import dataclass

from torch import Tensor

from unmask.training.train_state import TrainingState
from unmask.training.training_config import TrainingConfig

_SETTLED = 100  # losses before the usual one is known
_REACH = 100  # losses in the running average of the usual one


class Diverged(Exception):
    """So many `steps` in a row were not finite: go back to the last good checkpoint."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"{steps} steps in a row")
        self.steps = steps


def unusable(loss: Tensor, norm: Tensor) -> Tensor:
    """1 if the step must leave the weights alone, 0 if not; on the device, nobody waits for it."""
    return 1 - (loss.isfinite() & norm.isfinite()).float()


def longest(state: TrainingState) -> int:
    """The most steps in a row that were skipped since the last log line, and those that led up to it."""
    most, row = 0, state.streak
    for pair in state.pending:
        row = 0 if finite(*pair) else row + 1
        most = max(most, row)
    return most


@dataclass(frozen=True)
class Review:
    """The steps since the last log line: finite losses and norms, how many not, and what jumped."""

    losses: list[float]
    norms: list[float]
    skipped: int
    longest: int  # most of them in a row
    spikes: list[dict[str, float]]

    @property
    def loss(self) -> float:
        """The mean of those that were finite."""
        return math.fsum(self.losses) / len(self.losses) if self.losses else math.nan

    def to_dict(self) -> dict[str, float]:
        """For a log line, which has no place for a number that is not finite."""
        numbers = {"loss": self.loss, "norm": max(self.norms)} if self.losses else {}
        return numbers | ({"skipped": self.skipped} if self.skipped else {})


def review(state: TrainingState, config: TrainingConfig) -> Review:
    """Take note of the pending steps; a function of the state alone, so that a resumed run agrees."""
    skipped = sum(not finite(*pair) for pair in state.pending)
    found = Review([], [], skipped, longest(state), [])
    first = state.step - len(state.pending) + 1
    for step, (loss, norm) in enumerate(state.pending, first):
        if not finite(loss, norm):
            state.streak += 1
            continue
        state.streak = 0
        found.losses.append(loss)
        found.norms.append(norm)
        if _jumps(loss, state, config.spike):
            found.spikes.append({"step": step, "loss": loss, "usual": state.level})
        else:
            _learn(loss, state)
    state.skipped += found.skipped
    state.pending.clear()
    return found


def finite(loss: float, norm: float) -> bool:
    """Whether the step was taken."""
    return math.isfinite(loss) and math.isfinite(norm)


def in_a_row(state: TrainingState) -> int:
    """How many of the newest steps were skipped, those since the last log line counted."""
    for back, pair in enumerate(reversed(state.pending)):
        if finite(*pair):
            return back
    return state.streak + len(state.pending)


def settled(state: TrainingState, limit: int) -> bool:
    """Whether all is well: a run that goes back to here will not find the same trouble again."""
    return not in_a_row(state) and not 0 < limit <= longest(state)


def _jumps(loss: float, state: TrainingState, limit: float) -> bool:
    """Whether a loss lies more than `limit` deviations above the usual one."""
    if not limit or state.counted < _SETTLED:
        return False
    return loss > state.level + limit * math.sqrt(state.spread)


def _learn(loss: float, state: TrainingState) -> None:
    """A running mean and variance of the losses that did not jump."""
    state.counted += 1
    share = 1 / min(state.counted, _REACH)
    away = loss - state.level
    state.level += share * away
    state.spread = (1 - share) * (state.spread + share * away * away)
