"""Saves, resumes and rolls back checkpoints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unmask.data.rows.stream_rows import StreamLoader
from unmask.training.checkpoints import checkpoint
from unmask.training.checkpoints.background_writer import BackgroundWriter
from unmask.training.checkpoints.snapshot import Snapshot
from unmask.training.distributed.process_group import ProcessGroup
from unmask.training.logs.run_log import log_sizes
from unmask.training.train_state import TrainingState


class Checkpointer:
    """The checkpoints of a run: the main process finds and writes them, all processes load them."""

    def __init__(
        self,
        run: Path,
        fingerprint: dict[str, Any],
        snapshot: Snapshot,
        saver: BackgroundWriter,
        group: ProcessGroup,
        say: Callable[[str], None],
        stream: StreamLoader | None = None,
    ) -> None:
        self.run, self.fingerprint, self.stream = run, fingerprint, stream
        self.snapshot, self.saver, self.group, self.say = snapshot, saver, group, say
        self.ended = False  # True if the loaded checkpoint has no tensors

    def save(self, state: TrainingState, good: bool, ended: bool = False) -> None:
        """Starts writing a checkpoint of the present state.

        Args:
            state: the counters of the run.
            good: True if a rollback may use the checkpoint.
            ended: True leaves the tensors out, for a run that is complete.
        """
        parts = {} if ended else self.snapshot.take()
        content: dict[str, Any] = {
            "state": state.to_dict(),
            "good": good,
            "ended": ended,
            "fingerprint": self.fingerprint,
        }
        if self.stream:
            content["stream"] = self.stream.position
        if self.group.main:
            self.saver.save(state.step, parts, content, log_sizes(self.run))
        self.saver.requested = state.step

    def newest(self, known: Path | None) -> TrainingState | None:
        """Loads the newest intact checkpoint and returns its state, or None if there is none.

        Args:
            known: that checkpoint, if the caller has checked its hashes and configuration.
        """
        return self._load(lambda: self._reset_logs(known or self._find_newest()))

    def last_good(self) -> TrainingState | None:
        """Loads the last good checkpoint and returns its state, or None if there is none."""
        return self._load(self._find_good)

    def _load(self, find: Callable[[], str]) -> TrainingState | None:
        found = self.group.broadcast(find)
        if not found:
            return None
        text = self.group.broadcast(lambda: checkpoint.state_at(self.run, Path(found), self.say))
        content = json.loads(text)
        self.ended = content.get("ended") is True
        if not self.ended:
            self.snapshot.load(Path(found))
        self.saver.resume_from(Path(found))
        if self.stream:
            self.stream.go_to(content.get("stream"))
        return TrainingState.from_dict(content["state"])

    def _find_newest(self) -> Path | None:
        found = checkpoint.recovered(self.run, self.say)
        if found:
            checkpoint.agree(self.run, found, self.fingerprint)
        self.run.mkdir(parents=True, exist_ok=True)
        return found

    def _find_good(self) -> str:
        found = checkpoint.last_good(self.run, self.say)
        return self._reset_logs(found) if found else ""

    def _reset_logs(self, found: Path | None) -> str:
        """Resets the logs to a checkpoint; returns the checkpoint's path, or an empty text."""
        checkpoint.restore(self.run, found, self.say)
        return str(found or "")
