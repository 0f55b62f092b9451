"""Training health: non-finite steps, loss spikes and the condition for a rollback."""

import math
from dataclasses import dataclass

from torch import Tensor

from unmask.training.train_state import TrainingState
from unmask.training.training_config import TrainingConfig

_FIRST_LOSSES = 100  # number of losses before spikes are detected
_WINDOW = 100  # number of losses in the running mean


class Diverged(Exception):
    """`steps` steps in a row were not finite: the run must return to the last good checkpoint."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"{steps} steps in a row")
        self.steps = steps


def not_finite(loss: Tensor, norm: Tensor) -> Tensor:
    """1 if the loss or the gradient norm is not finite, else 0.

    The result stays on the device, so the host does not wait for it.
    """
    return 1 - (loss.isfinite() & norm.isfinite()).float()


def longest(state: TrainingState) -> int:
    """The longest sequence of skipped steps since the last log line;
    it may begin before the line.
    """
    result, streak = 0, state.streak
    for pair in state.pending:
        streak = 0 if finite(*pair) else streak + 1
        result = max(result, streak)
    return result


@dataclass(frozen=True)
class Review:
    """Statistics of the steps since the last log line."""

    losses: list[float]  # of finite steps
    norms: list[float]  # gradient norms of finite steps
    skipped: int  # number of non-finite steps
    longest: int  # longest sequence of them
    spikes: list[dict[str, float]]

    @property
    def loss(self) -> float:
        """The mean of the finite losses; NaN if there are none."""
        return math.fsum(self.losses) / len(self.losses) if self.losses else math.nan

    def to_dict(self) -> dict[str, float]:
        """The numbers of a log line, without those that are not finite."""
        numbers = {"loss": self.loss, "norm": max(self.norms)} if self.losses else {}
        return numbers | ({"skipped": self.skipped} if self.skipped else {})


def review(state: TrainingState, config: TrainingConfig) -> Review:
    """Moves the pending steps of `state` into its statistics, and returns a summary of them.

    The result depends on the state only, so a resumed run computes the same.
    """
    skipped = sum(not finite(*pair) for pair in state.pending)
    summary = Review([], [], skipped, longest(state), [])
    first = state.step - len(state.pending) + 1
    for step, (loss, norm) in enumerate(state.pending, first):
        if not finite(loss, norm):
            state.streak += 1
            continue
        state.streak = 0
        summary.losses.append(loss)
        summary.norms.append(norm)
        if _is_spike(loss, state, config.spike):
            summary.spikes.append({"step": step, "loss": loss, "usual": state.level})
        else:
            _update_statistics(loss, state)
    state.skipped += summary.skipped
    state.pending.clear()
    return summary


def finite(loss: float, norm: float) -> bool:
    """True if loss and gradient norm are finite: the step changed the weights."""
    return math.isfinite(loss) and math.isfinite(norm)


def in_a_row(state: TrainingState) -> int:
    """The number of skipped steps at the end of the run so far."""
    for back, pair in enumerate(reversed(state.pending)):
        if finite(*pair):
            return back
    return state.streak + len(state.pending)


def healthy(state: TrainingState, limit: int) -> bool:
    """True if the newest step is finite and fewer than `limit` skipped steps came in a row.

    Only such a state is saved for rollbacks: from another one the run would diverge again.
    """
    return not in_a_row(state) and not 0 < limit <= longest(state)


def _is_spike(loss: float, state: TrainingState, limit: float) -> bool:
    """True if a loss is more than `limit` standard deviations above the running mean."""
    if not limit or state.counted < _FIRST_LOSSES:
        return False
    return loss > state.level + limit * math.sqrt(state.spread)


def _update_statistics(loss: float, state: TrainingState) -> None:
    """Updates the running mean and variance with a loss that is not a spike."""
    state.counted += 1
    share = 1 / min(state.counted, _WINDOW)
    deviation = loss - state.level
    state.level += share * deviation
    state.spread = (1 - share) * (state.spread + share * deviation * deviation)
