"""A run's state on the disk: kept, taken up again, gone back to."""

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
    """Checkpoints of a run: the main process looks for them and writes them, all processes load."""

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

    def keep(self, state: TrainingState, good: bool) -> None:
        """Have this moment written; a good one is one to go back to."""
        parts = self.snapshot.take()
        content: dict[str, Any] = {
            "state": state.to_dict(),
            "good": good,
            "fingerprint": self.fingerprint,
        }
        if self.stream:
            content["stream"] = self.stream.place
        if self.group.main:
            self.saver.save(state.step, parts, content, log_sizes(self.run))
        self.saver.asked = state.step

    def newest(self, known: Path | None) -> TrainingState | None:
        """Where the newest intact checkpoint stands, taken up; None if there is none.

        One that is `known` is not looked for and held against its hashes a second time.
        """
        return self._taken_up(lambda: self._tidied(known or self._newest()))

    def last_good(self) -> TrainingState | None:
        """Where the last good checkpoint stands, taken up."""
        return self._taken_up(self._good_one)

    def _taken_up(self, find: Callable[[], str]) -> TrainingState | None:
        found = self.group.told(find)
        if not found:
            return None
        self.snapshot.load(Path(found))
        told = self.group.told(lambda: checkpoint.standing_at(self.run, Path(found), self.say))
        self.saver.stand_at(Path(found))
        content = json.loads(told)
        if self.stream:
            self.stream.go_to(content.get("stream"))
        return TrainingState.from_dict(content["state"])

    def _newest(self) -> Path | None:
        found = checkpoint.recovered(self.run, self.say)
        if found:
            checkpoint.agree(self.run, found, self.fingerprint)
        self.run.mkdir(parents=True, exist_ok=True)
        return found

    def _good_one(self) -> str:
        found = checkpoint.last_good(self.run, self.say)
        return self._tidied(found) if found else ""

    def _tidied(self, found: Path | None) -> str:
        """The name of the checkpoint to load, the logs brought to where it stands."""
        checkpoint.restore(self.run, found, self.say)
        return str(found or "")
