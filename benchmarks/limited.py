"""Commands that run side by side within a limited time."""

import math
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

SAVING = 30.0  # seconds in which a command that is stopped may save its state

Name = TypeVar("Name")


def side_by_side(
    commands: Mapping[Name, Sequence[str]],
    log: Callable[[Name], Path],
    slots: int | None = None,
    seconds: float = math.inf,
) -> Iterator[tuple[Name, int, float]]:
    """Runs commands and yields name, exit code and seconds since the start of each that has ended.

    Args:
        commands: The commands by name, in the order in which they start.
        log: The file that receives the output of a command.
        slots: Commands at a time; by default all.
        seconds: Time limit. Then nothing more starts, and running commands are interrupted, so that a run saves its state.
    """
    start, waiting = time.perf_counter(), dict(commands)
    running: dict[Name, subprocess.Popen[bytes]] = {}
    while waiting or running:
        if time.perf_counter() - start > seconds:
            waiting.clear()
            for process in running.values():
                process.send_signal(signal.SIGINT)
            for process in running.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(SAVING)
                process.kill()
                process.wait()
        while waiting and len(running) < (slots or len(commands)):
            name = next(iter(waiting))
            with log(name).open("a") as file:
                running[name] = subprocess.Popen(
                    waiting.pop(name), stdout=file, stderr=subprocess.STDOUT
                )
        for name in [name for name, process in running.items() if process.poll() is not None]:
            yield name, running.pop(name).returncode, time.perf_counter() - start
        time.sleep(0.2)
