"""Checkpoints of a run: the newest intact one is where it continues."""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.errors import UnmaskError
from unmask.files.storage import (
    Damaged,
    atomic_folder,
    damages,
    read_json,
    recover,
    remove,
    replace,
    write_json,
)
from unmask.files.tensors import read_weights, write_weights
from unmask.training.logs.run_log import LOGS
from unmask.training.train_state import read_saved

Say = Callable[[str], None]

CARRIED = "run"  # a checkpoint's copy of the run's other files
SEALED = ("config.yaml", "tokenizer")  # what a run folder holds from its start, beside its logs

# What a resumed run may change: how far it goes, what it tells and keeps, and on which machine it
# runs. (`steps` only while the learning rate does not depend on it.)
MAY_CHANGE = frozenset(
    {
        "training.steps",
        *("training.validate_every", "training.patience", "training.sample_every"),
        *("training.log_every", "training.log_to", "training.save_every", "training.keep"),
        *("training.keep_best", "training.keep_every", "training.spike"),
        *("training.max_skips", "training.max_rollbacks"),
        *("training.micro_batch", "training.compile", "training.deterministic", "training.device"),
        *("training.checkpoint_activations", "distributed.strategy", "distributed.timeout"),
        *("data.cache", "data.corrupt", "data.workers"),
    }
)


def folder(run: Path, step: int) -> Path:
    """Where the checkpoint after `step` steps lives."""
    return _checkpoints(run) / f"step-{step:08d}"


@dataclass(frozen=True)
class Entry:
    """What retention needs to know of a checkpoint."""

    nats: float | None = None  # the last validation before it
    good: bool = False  # taken at its time, all well: where a run may go back to


@dataclass(frozen=True)
class Retention:
    """How many of each kind are kept; a checkpoint may be of several kinds."""

    last: int
    best: int = 0
    every: int = 0  # steps; 0 = off

    def keeps(self, entries: Mapping[int, Entry]) -> set[int]:
        """The steps that stay, out of all that are there."""
        good = [step for step in sorted(entries) if entries[step].good]
        bounds = {step: nats for step in good if (nats := entries[step].nats) is not None}
        best = sorted(bounds, key=lambda step: (bounds[step], step))
        nth = [step for step in good if self.every and step % self.every == 0]
        return {*sorted(entries)[-self.last :], *good[-1:], *best[: self.best], *nth}


def save(
    run: Path,
    step: int,
    retention: Retention,
    parts: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
    logs: Mapping[str, int],
) -> Path:
    """Write checkpoints/step-…, whole or not at all, then drop those that need not stay.

    It carries the run's other files, of its logs the first so many bytes: what was lost or damaged
    beside it can be put back.
    """
    new = folder(run, step)
    with _writing(new, parts, state) as building:
        _carry(run, building / CARRIED, logs)
    _drop(run, step, retention)
    return new


def save_best(run: Path, weights: Mapping[str, Tensor], state: dict[str, Any]) -> None:
    """Write checkpoints/best: the weights that validated best, as model.safetensors."""
    with _writing(_checkpoints(run) / "best", {"model": weights}, state):
        pass


def newest(run: Path, warn: Say) -> Path | None:
    """The newest intact checkpoint, damaged ones passed over with a word; None in a fresh run."""
    found = by_step(run)
    for path in reversed(found):
        if damage := next(wrong_with(path), ""):
            warn(f"{path} is damaged: {damage}; trying the one before")
        else:
            return path
    if found:
        raise UnmaskError(f"no intact checkpoint in {_checkpoints(run)}: remove it to start again")
    return None


def recovered(run: Path, warn: Say) -> Path | None:
    """The newest intact checkpoint, once what a kill left is cleared; for the one who trains there."""
    recover(_checkpoints(run))
    return newest(run, warn)


def wrong_with(path: Path) -> Iterator[str]:
    """What keeps a run from going on from a checkpoint."""
    yield from damages(path)
    try:
        step = read_saved(path).state.step
    except Damaged:
        yield "state.json cannot be read"
    else:
        if step != step_of(path):
            yield f"it holds step {step}"


def last_good(run: Path, warn: Say) -> Path | None:
    """The newest intact checkpoint that is good; what lies beyond it is dropped.

    One that a signal asked for is not: where a run goes back to must not depend on who stopped it.
    """
    found = by_step(run)
    for path in reversed(found):
        if damage := next(wrong_with(path), ""):
            warn(f"{path} is damaged: {damage}")
        elif _entry(path).good:
            for beyond in found[found.index(path) + 1 :]:
                remove(beyond)
            return path
    return None


def restore(run: Path, found: Path | None, say: Say) -> None:
    """Bring the logs of a run to where its checkpoint `found` stands, or to a fresh start."""
    for log in (run / name for name in LOGS):
        then = found / CARRIED / log.name if found else None
        content = then.read_bytes() if then and then.exists() else b""
        now = log.read_bytes() if log.is_file() else b""
        if not now.startswith(content):
            say(f"{log} is not what was written: put back from {found}")
        if not content:
            log.unlink(missing_ok=True)
        elif now != content:
            replace(log, content)


def standing_at(run: Path, found: Path, say: Say) -> str:
    """The content of a checkpoint's state.json; best weights that are lost are no longer the best."""
    content = read_json(found / "state.json")
    best = _checkpoints(run) / "best"
    step = content["state"]["best_step"]
    damage = next(damages(best), "") if step else ""
    if damage:
        say(f"{best} is damaged: {damage}; the next validation counts as the best")
    # Those of a later step were made on a way that is taken anew, perhaps with other batches.
    if damage or (step and _step_of_best(best) != step):
        content["state"] |= {"best_step": 0, "stale": 0}
    return json.dumps(content)


def _step_of_best(best: Path) -> int | None:
    """The step that the best weights are of, if their file tells."""
    try:
        content = read_json(best / "state.json")
    except (ValueError, RecursionError, OSError):
        return None
    return content.get("step") if isinstance(content, dict) else None


def carried(found: Path, run: Path, name: str) -> Path:
    """A file of the run as a checkpoint carries it, or else the run's own."""
    path = found / CARRIED / name
    return path if path.exists() else run / name


def run_weights(run: Path, warn: Say) -> dict[str, Tensor]:
    """The weights a run has to offer: its best validated ones, or else the newest (averaged) ones."""
    best = _checkpoints(run) / "best"
    if best.exists():
        try:
            return read_weights(best)
        except Damaged as damage:
            warn(f"{damage}; taking the newest checkpoint")
    last = newest(run, warn)
    if last is None:
        raise UnmaskError(f"{run} has no checkpoint yet")
    return read_weights(last, "ema" if (last / "ema.safetensors").exists() else "model")


def agree(
    run: Path,
    found: Path,
    fingerprint: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Raises an error if a checkpoint of the run has another configuration.

    Args:
        run: the run's folder.
        found: its checkpoint.
        fingerprint: the configuration of now.
        defaults: values of settings that an older version did not write down.
    """
    before = dict(_flat(defaults or {})) | dict(
        _flat(read_json(found / "state.json")["fingerprint"])
    )
    now = dict(_flat(json.loads(json.dumps(fingerprint))))  # as the file spells it
    free = MAY_CHANGE
    if now.get("training.decay") != "constant":
        free -= {"training.steps"}
    differing = [
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if name not in free and before.get(name) != now.get(name)
    ]
    if differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise UnmaskError(
            f"{run} belongs to another configuration: {'; '.join(differing[:3])}{more}; "
            "choose another run folder (--run)"
        )


@contextmanager
def _writing(
    target: Path, parts: Mapping[str, Mapping[str, Tensor]], state: dict[str, Any]
) -> Iterator[Path]:
    """A folder of tensors and a state, to which more may be added."""
    with atomic_folder(target) as building:
        for name, tensors in parts.items():
            write_weights(building, tensors, name)
        write_json(building / "state.json", state)
        yield building


def _carry(run: Path, target: Path, logs: Mapping[str, int]) -> None:
    """Copy what the run folder holds beside its checkpoints."""
    target.mkdir()
    for name in SEALED:
        if (run / name).is_dir():
            shutil.copytree(run / name, target / name)
        elif (run / name).exists():
            shutil.copyfile(run / name, target / name)
    for name, size in logs.items():
        with (run / name).open("rb") as file:
            (target / name).write_bytes(file.read(size))


def _drop(run: Path, step: int, retention: Retention) -> None:
    # A checkpoint beyond this step was passed over as damaged, or the run would stand there.
    entries = {number: _entry(path) for path in by_step(run) if (number := step_of(path)) <= step}
    kept = retention.keeps(entries)
    for path in by_step(run):
        if step_of(path) not in kept:
            remove(path)


def _entry(path: Path) -> Entry:
    """A checkpoint as retention sees it; one that cannot be read is good for nothing."""
    try:
        saved = read_saved(path)
    except Damaged:
        return Entry()
    nats = saved.state.last_nats
    return Entry(nats if nats is not None and math.isfinite(nats) else None, saved.good)


def _checkpoints(run: Path) -> Path:
    return run / "checkpoints"


def begun(run: Path) -> bool:
    """Whether there is a checkpoint, be it one that a kill caught while it was replaced."""
    return bool(by_step(run)) or any(_checkpoints(run).glob(".step-*.replaced"))


def by_step(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = [path for path in _checkpoints(run).glob("step-*") if path.name[5:].isdecimal()]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves with their dotted names, as the command line spells them."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
