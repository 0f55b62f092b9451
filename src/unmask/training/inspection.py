"""What is in a run folder, and whether it is what was written; nothing is changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UnmaskError
from unmask.training.checkpoint import CARRIED, SEALED, by_step, step_of, wrong_with
from unmask.training.lock import in_use
from unmask.training.logging import LOGS, whole_lines
from unmask.training.storage import MANIFEST, damages, read_json


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
    if (run / "model.json").is_file():
        return [Part(run.name, tuple(damages(run)))]
    if not is_run(run):
        raise UnmaskError(f"{run} is no run: it has neither config.yaml nor checkpoints")
    checkpoints = [(path, tuple(wrong_with(path))) for path in by_step(run)]
    parts = [Part(", ".join(SEALED), tuple(_sealed(run)))]
    parts += [Part(_name(path), problems) for path, problems in checkpoints]
    for folder in (run / "checkpoints" / "best", run / "model"):
        if folder.is_dir():
            parts.append(Part(_name(folder), tuple(damages(folder))))
    intact = [path for path, problems in checkpoints if not problems]
    found = intact[-1] if intact else None
    return parts + [Part(name, tuple(_log(run / name, found))) for name in _logs(run, found)]


def standing(run: Path, thorough: bool = True) -> Standing:
    """Where a run stands; `thorough` reads every byte of it."""
    state, steps = _newest_state(run)
    damaged = tuple(part.name for part in inspect(run) if part.problems) if thorough else None
    known = bool(state.get("best_step"))
    return Standing(
        run,
        _activity(run, state),
        state.get("step", 0),
        steps,
        state["best_nats"] if known else None,
        state["best_error"] if known else None,
        sum(path.stat().st_size for path in run.rglob("*") if path.is_file()),
        damaged,
    )


def _newest_state(run: Path) -> tuple[dict[str, Any], int | None]:
    """The counters of the newest checkpoint whose state can be read, and where it was to go."""
    for path in reversed(by_step(run)):
        if not any(damages(path, "state.json")):
            content = read_json(path / "state.json")
            training = content["fingerprint"].get("training", {})
            return content["state"], training.get("steps")
    return {}, None


def _activity(run: Path, state: dict[str, Any]) -> str:
    if in_use(run):
        return "training"
    if (run / "model").is_dir():
        return "finished"
    return "stopped" if state else "begun"


def _sealed(run: Path) -> Iterator[str]:
    """Checkpoints written by the trainer alone have nothing beside them."""
    if (run / MANIFEST).exists() or any((run / name).exists() for name in SEALED):
        yield from damages(run)


def _logs(run: Path, found: Path | None) -> list[str]:
    there = [run, *([found / CARRIED] if found else [])]
    return [name for name in LOGS if any((folder / name).exists() for folder in there)]


def _log(log: Path, found: Path | None) -> Iterator[str]:
    """A log must begin as the newest intact checkpoint carries it, and go on in whole lines."""
    then = found / CARRIED / log.name if found else None
    begins = then.read_bytes() if then and then.exists() else b""
    now = log.read_bytes() if log.is_file() else b""
    if not now.startswith(begins):
        yield f"it is not what {_name(found)} carries" if found and now else "it is missing"
    elif not whole_lines(now[len(begins) :]):
        yield "it has a line that is cut short; training drops it"


def _name(path: Path) -> str:
    return "/".join(path.parts[-2:]) if path.parent.name == "checkpoints" else path.name


def last_step(run: Path) -> int | None:
    """The step that training would go on from."""
    intact = [step_of(path) for path in by_step(run) if not any(wrong_with(path))]
    return intact[-1] if intact else None
