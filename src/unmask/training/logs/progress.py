"""Progress display of training: a bar in a terminal or notebook, plain lines elsewhere."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unmask.runtime.notebook import CellOutput

_INTERVAL = 5.0  # seconds between two plain lines


def bound(nats: float, error: float) -> str:
    """A bound as text, with its standard error unless that is zero."""
    return f"{nats:.4f} ± {error:.4f}" if error else f"{nats:.4f}"


class ProgressDisplay:
    """Displays step, loss, best bound, tokens per second and remaining time."""

    def __init__(
        self, step: int, steps: int, say: Callable[[str], None], hidden: bool = False
    ) -> None:
        self.steps = steps
        self.say = say
        self.first, self.began, self.printed_at = step, time.monotonic(), float("-inf")
        console = Console()
        self.place = CellOutput() if console.is_jupyter and not hidden else None
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
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

    def advance(self, step: int) -> None:
        """Moves the bar to `step`."""
        self.bar.update(self.task, completed=step)
        self._draw()

    def show(self, step: int, loss: float, best: str, tokens_per_second: float) -> None:
        """Displays new numbers. Plain lines appear at most every five seconds, and at the last step."""
        parts = [f"loss {loss:.4f}", f"{tokens_per_second:,.0f} tokens/s"]
        if best:
            parts.insert(1, f"bound {best}")
        self.bar.update(self.task, text=" · ".join(parts))
        now = time.monotonic()
        plain = self.bar.disable and self.place is None
        if plain and (now - self.printed_at > _INTERVAL or step == self.steps):
            self.printed_at = now
            left = (now - self.began) / max(1, step - self.first) * (self.steps - step)
            clock = f"{int(left) // 60}:{int(left) % 60:02d} left"
            self.say(" · ".join([f"step {step}/{self.steps}", *parts, clock]))

    def _draw(self, at_once: bool = False) -> None:
        """Draws the bar in the output of a notebook cell, where rich's own display needs widgets."""
        if self.place:
            self.place.show(self.bar.make_tasks_table(self.bar.tasks), at_once)
