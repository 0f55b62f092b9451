"""Progress display of training: a bar in a terminal or notebook, plain lines elsewhere."""

import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from unmask.runtime.notebook import CellOutput

_INTERVAL = 5.0  # seconds between two plain lines


def bound(nats: float, error: float) -> str:
    """A bound as text, with its standard error unless that is zero; "?" if it is unknown."""
    if math.isinf(error):  # one row, drawn once
        return f"{nats:.4f} ± ?"
    return f"{nats:.4f} ± {error:.4f}" if error else f"{nats:.4f}"


def duration(seconds: float) -> str:
    """A time span as text, such as 4:05 or 2:30:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class MeasureProgress:
    """Prints the share of a measurement that is done, at most every five seconds."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self.name, self.say = name, say
        self.printed_at = time.monotonic()

    def __call__(self, share: float) -> None:
        if share < 1 and time.monotonic() - self.printed_at > _INTERVAL:
            self.printed_at = time.monotonic()
            self.say(f"{self.name}: {share:.0%}")


class ProgressDisplay:
    """Displays step, loss, best bound, tokens per second and remaining time."""

    def __init__(
        self,
        step: int,
        steps: int,
        say: Callable[[str], None],
        hidden: bool = False,
        seconds: float = 0.0,  # until the end, if time ends the run; 0 if steps do
        validate_every: int | None = None,  # steps; 0 = after the last one; None = no validation
        pause: float = 0.0,  # seconds of a validation, as far as it is known
    ) -> None:
        self.steps, self.seconds = steps, seconds
        self.validate_every, self.pause = validate_every, pause
        self.say = say
        self.hidden = hidden
        self.first, self.began, self.printed_at = step, time.monotonic(), float("-inf")
        self.started = self.began
        console = Console()
        self.place = CellOutput() if console.is_jupyter and not hidden else None
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            disable=hidden or not console.is_terminal,
        )
        self.task = self.bar.add_task("training", total=steps, completed=step, text="")

    def __enter__(self) -> "ProgressDisplay":
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()
        self._draw(at_once=True)

    def advance(self, step: int, loss: Callable[[], float] | None = None) -> None:
        """Moves the bar to `step`; shows the loss after the first two steps and after a pause.

        Args:
            step: the optimizer steps done.
            loss: computes the loss of the last step, for which it waits for the device.
        """
        self.bar.update(self.task, completed=step)
        done = step - self.first
        due = done <= 2 or time.monotonic() - self.printed_at > 2 * _INTERVAL
        if due and loss is not None and not self.hidden and step < self.steps:
            self._print(step, [f"loss {loss():.4f}"])
        if done == 1:
            self.began = time.monotonic()  # the first step is slower than the others
        self._draw()

    def paused(self, seconds: float) -> None:
        """Counts a validation: its time is no time of steps."""
        self.pause = seconds
        self.began += seconds

    def show(self, step: int, loss: float, best: str, tokens_per_second: float) -> None:
        """Displays new numbers. Plain lines appear at most every five seconds,
        and at the last step.
        """
        parts = [f"loss {loss:.4f}", f"{tokens_per_second:,.0f} tokens/s"]
        if best:
            parts.insert(1, f"bound {best}")
        if time.monotonic() - self.printed_at > _INTERVAL or step == self.steps:
            self._print(step, parts)
        else:
            self.bar.update(self.task, text=" · ".join(parts))

    def _print(self, step: int, parts: list[str]) -> None:
        """Displays numbers with the seconds of a step and the end, once two steps are done."""
        self.printed_at = time.monotonic()
        if step - self.first > 1:
            each = (self.printed_at - self.began) / (step - self.first - 1)
            left = each * (self.steps - step) + self.pause * self._validations(step)
            if self.seconds:
                left = min(left, max(0.0, self.seconds - (self.printed_at - self.started)))
            end = datetime.now() + timedelta(seconds=left)
            parts = [*parts, f"{each:.3g} s/step"]
            if left:
                parts += [f"{duration(left)} left, until {end:%H:%M}"]
        self.bar.update(self.task, text=" · ".join(parts))
        if self.bar.disable and self.place is None:
            of = "" if self.seconds else f"/{self.steps}"
            self.say(" · ".join([f"step {step}{of}", *parts]))

    def _validations(self, step: int) -> int:
        """The number of validations after `step`."""
        if self.validate_every is None or step >= self.steps:
            return 0
        every = self.validate_every or self.steps
        return -(-self.steps // every) - step // every

    def _draw(self, at_once: bool = False) -> None:
        """Draws the bar in the output of a notebook cell,
        where rich's own display needs widgets.
        """
        if self.place:
            self.place.show(self.bar.make_tasks_table(self.bar.tasks), at_once)
