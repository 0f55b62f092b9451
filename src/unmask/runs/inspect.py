"""What is in a run folder, and whether it is what was written; nothing is changed."""

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
from unmask.training.checkpoints.checkpoint import CARRIED, SEALED, by_step, step_of, wrong_with
from unmask.training.logs.run_log import LOGS
from unmask.training.train_state import Saved, TrainingState, read_saved

_LOOKS = 10  # at what changes while it is looked at
_PAUSE = 0.2  # seconds between them


@dataclass(frozen=True)
class Part:
    """A file or folder of a run, and all that is wrong with it."""

    name: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Standing:
    """A run as a list shows it."""

    run: Path
    state: str  # training | finished | stopped | begun
    step: int
    steps: int | None
    nats: float | None  # of the best validation
    error: float | None
    size: int  # bytes
    damaged: tuple[str, ...] | None  # parts; None if nobody looked


def is_run(folder: Path) -> bool:
    """Whether a folder looks like what `train` leaves."""
    return (folder / "checkpoints").is_dir() or (folder / "config.yaml").is_file()


def inspect(run: Path) -> list[Part]:
    """Every part of a run, or of an exported model, held against its hashes."""
    exported = (run / MANIFEST).is_file() and not is_run(run)  # in whatever format
    if exported or (run / "model.json").is_file():
        return [Part(run.name, tuple(damages(run)))]
    if not is_run(run):
        raise UnmaskError(f"{run} is no run: it has neither config.yaml nor checkpoints")
    best, model = run / "checkpoints" / "best", run / "model"
    sealed = _looked(run, run / MANIFEST, partial(_sealed, run), ", ".join(SEALED))
    checkpoints = {path: _looked(run, path, partial(wrong_with, path)) for path in by_step(run)}
    others = [_looked(run, each, partial(damages, each)) for each in (best, model) if each.is_dir()]
    intact = [path for path, part in checkpoints.items() if part and not part.problems]
    found = intact[-1] if intact else None
    logs = [
        _looked(run, run / name, partial(_log, run / name, found), name)
        for name in _logs(run, found)
    ]
    return [part for part in (sealed, *checkpoints.values(), *others, *logs) if part]


def standing(run: Path, thorough: bool = True) -> Standing:
    """Where a run stands; `thorough` reads every byte of it."""
    saved = _newest_saved(run)
    state = saved.state if saved else TrainingState()
    damaged = tuple(part.name for part in inspect(run) if part.problems) if thorough else None
    return Standing(
        run,
        _activity(run, bool(saved)),
        state.step,
        saved.steps if saved else None,
        state.best_nats if state.best_step else None,
        state.best_error if state.best_step else None,
        _size(run),
        damaged,
    )


def _looked(
    run: Path, path: Path, look: Callable[[], Iterator[str]], name: str = ""
) -> Part | None:
    """A part, and what is wrong with it; None if it has gone, unless it must be there and has a `name`.

    While the run trains it may have been replaced under one's eyes: only what is wrong with a thing
    that stays is wrong.
    """
    for _ in range(_LOOKS):
        live, before = in_use(run), _stamp(path)
        problems = tuple(look())
        if not problems or not live:
            return Part(name or _name(path), problems)
        time.sleep(_PAUSE)
        now = _stamp(path)
        if now is None and not name:
            return None
        if now == before:
            return Part(name or _name(path), problems)
    return None


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes when a file is written to or something else takes its place."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size


def _size(run: Path) -> int:
    """Bytes, without what is being written or removed."""
    total = 0
    for folder, inside, files in os.walk(run):
        inside[:] = [name for name in inside if not name.startswith(".")]
        for name in files:
            with suppress(OSError):  # gone meanwhile
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _newest_saved(run: Path) -> Saved | None:
    """What the newest checkpoint says whose state can be read."""
    looked: list[Path] = []
    while (found := by_step(run)) != looked:  # others may have taken their place
        for path in reversed(found):
            if not any(damages(path, "state.json")):
                with suppress(Damaged):
                    return read_saved(path)
        looked = found
    return None


def _activity(run: Path, begun: bool) -> str:
    if in_use(run):
        return "training"
    if (run / "model").is_dir():
        return "finished"
    return "stopped" if begun else "begun"


def _sealed(run: Path) -> Iterator[str]:
    """Checkpoints written by the trainer alone have nothing beside them."""
    if (run / MANIFEST).exists() or any((run / name).exists() for name in SEALED):
        yield from damages(run)


def _logs(run: Path, found: Path | None) -> list[str]:
    there = [run, *([found / CARRIED] if found else [])]
    return [name for name in LOGS if any((folder / name).exists() for folder in there)]


def _log(log: Path, found: Path | None) -> Iterator[str]:
    """A log must begin as the newest intact checkpoint carries it, and go on in whole lines."""
    begins = _content(found / CARRIED / log.name) if found else b""
    now = _content(log)
    if in_use(log.parent):
        now = now[: now.rfind(b"\n") + 1]  # the last line may be on its way
    if not now.startswith(begins):
        yield f"it is not what {_name(found)} carries" if found and now else "it is missing"
    elif not whole_lines(now[len(begins) :]):
        yield "it has a line that is cut short; training drops it"


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() else b""
    except OSError:
        return b""


def _name(path: Path) -> str:
    return "/".join(path.parts[-2:]) if path.parent.name == "checkpoints" else path.name


def last_step(run: Path) -> int | None:
    """The step that training would go on from."""
    intact = [step_of(path) for path in by_step(run) if not any(wrong_with(path))]
    return intact[-1] if intact else None
