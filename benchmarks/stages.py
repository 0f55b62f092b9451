"""Commands of Python that run side by side for a limited time: used by dna_all.py and control_all.py."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ENDED = 5.0  # seconds in which a command that is ended may save its state


class Stages:
    """Runs the commands of one stage after those of another.

    Args:
        log: file that receives the output of all commands.
        collect: called twice a second and after each stage; copies results.
        ended: seconds in which a command that is ended may save its state.
    """

    def __init__(
        self, log: Path, collect: Callable[[], None] = lambda: None, ended: float = ENDED
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self.collect, self.ended = log, collect, ended
        self.start = time.perf_counter()

    def run(self, jobs: Mapping[str, Sequence[str]], until: float) -> None:
        """Starts commands side by side, waits for them, and ends those that are not done after `until` seconds."""
        if self.seconds() >= until:
            return
        with self.log.open("a") as log:
            running = {
                name: subprocess.Popen(
                    [sys.executable, "-u", *command], stdout=log, stderr=subprocess.STDOUT
                )
                for name, command in jobs.items()
            }
            while running and self.seconds() < until:
                time.sleep(0.5)
                self.collect()
                for name in [name for name, job in running.items() if job.poll() is not None]:
                    code = running.pop(name).returncode
                    self.say(f"{name}: done" if code == 0 else f"{name}: failed with code {code}")
            for job in running.values():
                job.terminate()
            for name, job in running.items():
                try:
                    job.wait(self.ended)
                except subprocess.TimeoutExpired:
                    job.kill()
                    job.wait()
                self.say(f"{name}: ended by its limit")
        self.collect()

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    def say(self, message: str) -> None:
        """Prints a message with the seconds since the start."""
        print(f"[{self.seconds():.0f} s] {message}", flush=True)
