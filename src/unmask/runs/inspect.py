"""Read-only inspection of a run folder: its parts, their damages and the state of the run."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.files.jsonl import whole_lines
from unmask.files.lock import in_use
from unmask.files.storage import MANIFEST, Damaged, damages
from unmask.training.checkpoints.checkpoint import RUN_COPIES, SEALED, by_step, step_of, wrong_with
from unmask.training.logs.run_log import LOGS
from unmask.training.train_state import Saved, TrainingState, read_saved

_ATTEMPTS = 10  # checks of a part that changes meanwhile
_PAUSE = 0.2  # seconds between two checks


@dataclass(frozen=True)
class Part:
    """A file or folder of a run, and its damages."""

    name: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunStatus:
    """The state of a run: one line of `unmask runs`."""

    run: Path
    state: str  # training | finished | stopped | begun
    step: int
    steps: int | None
    nats: float | None  # bound of the best validation
    error: float | None  # its standard error
    size: int  # bytes
    damaged: tuple[str, ...] | None  # damaged parts; None if they were not checked


def is_run(folder: Path) -> bool:
    """True if a folder has the checkpoints or the config.yaml of a run."""
    return (folder / "checkpoints").is_dir() or (folder / "config.yaml").is_file()


def inspect(run: Path) -> list[Part]:
    """Every part of a run or an exported model, checked against its hashes."""
    exported = (run / MANIFEST).is_file() and not is_run(run)  # a model in any format
    if exported or (run / "model.json").is_file():
        return [Part(run.name, tuple(damages(run)))]
    if not is_run(run):
        raise UnmaskError(
            f"{run} is no run: it has neither config.yaml nor checkpoints; "
            "give a folder that 'unmask train' made"
        )
    best, model = run / "checkpoints" / "best", run / "model"
    sealed = _checked(run, run / MANIFEST, partial(_sealed_damages, run), ", ".join(SEALED))
    checkpoints = {path: _checked(run, path, partial(wrong_with, path)) for path in by_step(run)}
    folders = [path for path in (best, model) if path.is_dir()]
    others = [_checked(run, path, partial(damages, path)) for path in folders]
    intact = [path for path, part in checkpoints.items() if part and not part.problems]
    newest = intact[-1] if intact else None
    logs = [
        _checked(run, run / name, partial(_log_damages, run / name, newest), name)
        for name in _logs(run, newest)
    ]
    return [part for part in (sealed, *checkpoints.values(), *others, *logs) if part]


def status_of(run: Path, thorough: bool = True) -> RunStatus:
    """The state of a run.

    Args:
        run: the run folder.
        thorough: True to check the hashes of all files.
    """
    saved = _newest_saved(run)
    state = saved.state if saved else TrainingState()
    damaged = tuple(part.name for part in inspect(run) if part.problems) if thorough else None
    return RunStatus(
        run,
        _activity(run, bool(saved)),
        state.step,
        saved.steps if saved else None,
        state.best_nats if state.best_step else None,
        state.best_error if state.best_step else None,
        folder_size(run),
        damaged,
    )


def _checked(
    run: Path, path: Path, find_damages: Callable[[], Iterator[str]], name: str = ""
) -> Part | None:
    """A part with its damages, or None if an optional part disappeared during the check.

    A running training may replace a file during the check. So a damage counts only if the file is
    the same before and after the check.

    Args:
        run: the run folder.
        path: the file or folder to check.
        find_damages: yields the damages.
        name: the name of a part that must exist; "" for an optional part.
    """
    for _ in range(_ATTEMPTS):
        training, before = in_use(run), _stamp(path)
        problems = tuple(find_damages())
        if not problems or not training:
            return Part(name or _name(path), problems)
        time.sleep(_PAUSE)
        after = _stamp(path)
        if after is None and not name:
            return None
        if after == before:
            return Part(name or _name(path), problems)
    return None


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Inode, change time and size of a file, which differ after a write or a replacement."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size


def folder_size(run: Path) -> int:
    """The bytes of a run folder, without hidden folders of unfinished writes."""
    total = 0
    for folder, inside, files in os.walk(run):
        inside[:] = [name for name in inside if not name.startswith(".")]
        for name in files:
            with suppress(OSError):  # deleted meanwhile
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _newest_saved(run: Path) -> Saved | None:
    """The content of the newest state.json that can be read."""
    tried: list[Path] = []
    while (found := by_step(run)) != tried:  # training may replace checkpoints meanwhile
        for path in reversed(found):
            if not any(damages(path, "state.json")):
                with suppress(Damaged):
                    return read_saved(path)
        tried = found
    return None


def _activity(run: Path, has_checkpoint: bool) -> str:
    if in_use(run):
        return "training"
    if (run / "model").is_dir():
        return "finished"
    return "stopped" if has_checkpoint else "begun"


def _sealed_damages(run: Path) -> Iterator[str]:
    """Damages of the files in the run's manifest, which a `Trainer` used alone does not write."""
    if (run / MANIFEST).exists() or any((run / name).exists() for name in SEALED):
        yield from damages(run)


def _logs(run: Path, newest: Path | None) -> list[str]:
    """The logs that the run folder or its newest checkpoint has."""
    folders = [run, *([newest / RUN_COPIES] if newest else [])]
    return [name for name in LOGS if any((folder / name).exists() for folder in folders)]


def _log_damages(log: Path, newest: Path | None) -> Iterator[str]:
    """Damages of a log: it must begin with the checkpoint's copy and continue in whole lines."""
    copy = _content(newest / RUN_COPIES / log.name) if newest else b""
    content = _content(log)
    if in_use(log.parent):
        content = content[: content.rfind(b"\n") + 1]  # the last line may be incomplete
    if not content.startswith(copy):
        if newest and content:
            yield f"it differs from the copy in {_name(newest)}"
        else:
            yield "it is missing"
    elif not whole_lines(content[len(copy) :]):
        yield "it has an incomplete line; training drops it"


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() else b""
    except OSError:
        return b""


def _name(path: Path) -> str:
    return "/".join(path.parts[-2:]) if path.parent.name == "checkpoints" else path.name


def last_step(run: Path) -> int | None:
    """The step at which training would resume; None without an intact checkpoint."""
    intact = [step_of(path) for path in by_step(run) if not any(wrong_with(path))]
    return intact[-1] if intact else None
