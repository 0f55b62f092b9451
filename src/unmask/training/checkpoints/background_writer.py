"""Writes checkpoints in a background thread, from host copies made at the step."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.files.storage import is_full
from unmask.training.checkpoints import checkpoint
from unmask.training.checkpoints.checkpoint import Retention

Parts = Mapping[str, Mapping[str, Tensor]]


class BackgroundWriter:
    """The background writer of a run.

    All saves of a kind share one set of host copies, so a save waits for the one before it.
    The next call raises an error that occurred while writing.
    """

    def __init__(self, run: Path, retention: Retention) -> None:
        self.run, self.retention = run, retention
        self.last: Path | None = None  # newest checkpoint that is complete on the disk
        self.requested: int | None = None  # step of the newest save, finished or not
        self.copies: dict[str, Tensor] = {}
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self.tasks: dict[str, tuple[str, Future[Path | None]]] = {}  # newest task of each kind

    def save(self, step: int, parts: Parts, state: dict[str, Any], logs: Mapping[str, int]) -> None:
        """Starts writing a checkpoint of the present tensors.

        Args:
            step: the optimizer steps done.
            parts: tensors by file and name.
            state: the content of state.json.
            logs: the size of each log file in bytes.
        """
        self.requested = step

        def write(copies: Parts) -> Path:
            return checkpoint.save(self.run, step, self.retention, copies, state, logs)

        self._start("regular", f"the checkpoint at step {step}", parts, write)

    def save_best(self, weights: Mapping[str, Tensor], state: dict[str, Any]) -> None:
        """Starts writing the weights with the best validation bound."""

        def write(copies: Parts) -> None:
            checkpoint.save_best(self.run, copies["best"], state)

        self._start("best", "the best weights", {"best": weights}, write)

    def resume_from(self, found: Path) -> None:
        """Records a loaded checkpoint as the newest one."""
        self.last, self.requested = found, checkpoint.step_of(found)

    def check(self) -> None:
        """Raises the error of a save that has failed, without waiting for running saves."""
        if done := [kind for kind, (_, task) in self.tasks.items() if task.done()]:
            self.wait(*done)

    def wait(self, *kinds: str) -> None:
        """Waits until all saves, or all of these kinds, are on the disk."""
        for kind in kinds or list(self.tasks):
            if kind in self.tasks:
                self._finish(*self.tasks.pop(kind))

    def _finish(self, what: str, task: Future[Path | None]) -> None:
        try:
            self.last = task.result() or self.last
        except OSError as error:
            if is_full(error):
                raise
            raise UnmaskError(
                f"training stopped: {what} could not be written: {error.strerror}: "
                f"{error.filename}; last good checkpoint: {self.last or 'none yet'}"
            ) from error

    def close(self) -> None:
        """Waits for a running save and stops the thread."""
        self.writer.shutdown()

    def _start(
        self, kind: str, what: str, parts: Parts, write: Callable[[Parts], Path | None]
    ) -> None:
        self.wait(kind)
        copies, ready = self._copy(parts)

        def run() -> Path | None:
            if ready:
                ready.synchronize()
            return write(copies)

        self.tasks[kind] = (what, self.writer.submit(run))

    def _copy(self, parts: Parts) -> tuple[Parts, torch.cuda.Event | None]:
        """Host copies in memory that is allocated once, and the event at which they are complete.

        The copies precede the next step in the GPU's queue, so the loop does not wait for them.
        The event is None without a GPU.
        """
        on_gpu = False
        copied: dict[str, dict[str, Tensor]] = {part: {} for part in parts}
        for part, tensors in parts.items():
            for name, tensor in tensors.items():
                key, gpu = f"{part}/{name}", tensor.is_cuda
                if key not in self.copies:
                    self.copies[key] = torch.empty_like(tensor, device="cpu", pin_memory=gpu)
                copied[part][name] = self.copies[key].copy_(tensor.detach(), non_blocking=gpu)
                on_gpu |= gpu
        return copied, torch.cuda.current_stream().record_event() if on_gpu else None
