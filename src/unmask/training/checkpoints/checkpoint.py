"""Files of a run's checkpoints: writing, retention, recovery, comparison of configurations."""

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

RUN_COPIES = "run"  # subfolder of a checkpoint with copies of the run folder's other files
SEALED = ("config.yaml", "tokenizer")  # files of a run folder that never change

# Keys that a resumed run may change: its length, logs, retention, speed and machine.
# (`steps` and `seconds` only while the learning rate does not depend on them.)
MAY_CHANGE = frozenset(
    {
        *("training.steps", "training.seconds"),
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
    """The folder of the checkpoint after `step` steps."""
    return _checkpoints(run) / f"step-{step:08d}"


@dataclass(frozen=True)
class Entry:
    """The facts of a checkpoint on which retention depends."""

    nats: float | None = None  # bound of the last validation before it
    good: bool = False  # a regular checkpoint of a healthy run: a rollback may use it


@dataclass(frozen=True)
class Retention:
    """The number of checkpoints to keep of each kind; a checkpoint may be of several kinds."""

    last: int
    best: int = 0
    every: int = 0  # keep the checkpoint of each multiple of this many steps; 0 = off

    def keeps(self, entries: Mapping[int, Entry]) -> set[int]:
        """The steps whose checkpoints stay."""
        good = [step for step in sorted(entries) if entries[step].good]
        bounds = {step: nats for step in good if (nats := entries[step].nats) is not None}
        best = sorted(bounds, key=lambda step: (bounds[step], step))
        periodic = [step for step in good if self.every and step % self.every == 0]
        return {*sorted(entries)[-self.last :], *good[-1:], *best[: self.best], *periodic}


def save(
    run: Path,
    step: int,
    retention: Retention,
    parts: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
    logs: Mapping[str, int],
) -> Path:
    """Writes checkpoints/step-… atomically, then deletes the checkpoints that retention drops.

    The checkpoint holds copies of the run's other files,
    from which `restore` repairs the run folder.

    Args:
        run: the run folder.
        step: the optimizer steps done.
        retention: the numbers of checkpoints to keep.
        parts: tensors by file and name.
        state: the content of state.json.
        logs: the number of bytes to copy of each log file.

    Returns:
        The new checkpoint's folder.
    """
    new = folder(run, step)
    with _writing(new, parts, state) as building:
        _copy_run_files(run, building / RUN_COPIES, logs)
    _drop(run, step, retention)
    return new


def save_best(run: Path, weights: Mapping[str, Tensor], state: dict[str, Any]) -> None:
    """Writes the weights with the best validation bound to checkpoints/best/model.safetensors."""
    with _writing(_checkpoints(run) / "best", {"model": weights}, state):
        pass


def newest(run: Path, warn: Say) -> Path | None:
    """The newest intact checkpoint, or None in a fresh run; warns of each damaged one."""
    found = by_step(run)
    for path in reversed(found):
        if damage := next(wrong_with(path), ""):
            warn(f"{path} is damaged: {damage}; trying the previous checkpoint")
        else:
            return path
    if found:
        raise UnmaskError(f"no intact checkpoint in {_checkpoints(run)}: remove it to start again")
    return None


def recovered(run: Path, warn: Say) -> Path | None:
    """The newest intact checkpoint, after removing the remains of interrupted writes.

    Only the process that trains in the folder may call it.
    """
    recover(_checkpoints(run))
    return newest(run, warn)


def wrong_with(path: Path) -> Iterator[str]:
    """The damages that prevent a run from resuming at a checkpoint."""
    yield from damages(path)
    try:
        step = read_saved(path).state.step
    except Damaged:
        yield "state.json cannot be read"
    else:
        if step != step_of(path):
            yield f"it holds step {step}"


def last_good(run: Path, warn: Say) -> Path | None:
    """The newest intact good checkpoint; later checkpoints are deleted.

    A checkpoint written after a signal is not good: a rollback must not depend on interruptions.
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
    """Resets the logs of a run to their content at checkpoint `found`, or to none."""
    for log in (run / name for name in LOGS):
        copy = found / RUN_COPIES / log.name if found else None
        content = copy.read_bytes() if copy and copy.exists() else b""
        now = log.read_bytes() if log.is_file() else b""
        if not now.startswith(content):
            say(f"{log} differs from the copy in {found}: the copy is restored")
        if not content:
            log.unlink(missing_ok=True)
        elif now != content:
            replace(log, content)


def state_at(run: Path, found: Path, say: Say) -> str:
    """The content of a checkpoint's state.json, as text.

    If checkpoints/best is damaged or of another step, the best bound is reset.
    """
    content = read_json(found / "state.json")
    best = _checkpoints(run) / "best"
    step = content["state"]["best_step"]
    damage = next(damages(best), "") if step else ""
    if damage:
        say(f"{best} is damaged: {damage}; the next validation counts as the best")
    # Best weights of a later step come from steps that this run repeats, perhaps on other batches.
    if damage or (step and _step_of_best(best) != step):
        content["state"] |= {"best_step": 0, "stale": 0}
    return json.dumps(content)


def _step_of_best(best: Path) -> int | None:
    """The step of the best weights, or None if their state.json cannot be read."""
    try:
        content = read_json(best / "state.json")
    except (ValueError, RecursionError, OSError):
        return None
    return content.get("step") if isinstance(content, dict) else None


def run_file(found: Path, run: Path, name: str) -> Path:
    """The path of a checkpoint's copy of a run file, or of the run file itself."""
    path = found / RUN_COPIES / name
    return path if path.exists() else run / name


def run_weights(run: Path, warn: Say) -> dict[str, Tensor]:
    """The weights with the best validation bound, or else those of the newest checkpoint.

    Of the newest checkpoint it takes the EMA weights, if there are any.
    """
    best = _checkpoints(run) / "best"
    if best.exists():
        try:
            return read_weights(best)
        except Damaged as damage:
            warn(f"{damage}; using the newest checkpoint")
    last = newest(run, warn)
    if last is None:
        raise UnmaskError(f"{run} has no checkpoint yet: train it for a while first")
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
        fingerprint: the present configuration.
        defaults: values of settings that an older version did not save.
    """
    before = dict(_flat(defaults or {})) | dict(
        _flat(read_json(found / "state.json")["fingerprint"])
    )
    now = dict(_flat(json.loads(json.dumps(fingerprint))))  # with JSON's types, as in the file
    may_change = MAY_CHANGE
    if now.get("training.decay") != "constant":
        may_change -= {"training.steps", "training.seconds"}
    differing = [
        f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if name not in may_change and before.get(name) != now.get(name)
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
    """Writes a folder of tensors and state.json; the caller may add files inside."""
    with atomic_folder(target) as building:
        for name, tensors in parts.items():
            write_weights(building, tensors, name)
        write_json(building / "state.json", state)
        yield building


def _copy_run_files(run: Path, target: Path, logs: Mapping[str, int]) -> None:
    """Copies the run folder's other files into a checkpoint."""
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
    """Deletes the checkpoints that retention drops."""
    # A checkpoint of a later step is damaged: otherwise the run would have resumed there.
    entries = {number: _entry(path) for path in by_step(run) if (number := step_of(path)) <= step}
    kept = retention.keeps(entries)
    for path in by_step(run):
        if step_of(path) not in kept:
            remove(path)


def _entry(path: Path) -> Entry:
    """The retention facts of a checkpoint; one that cannot be read counts as not good."""
    try:
        saved = read_saved(path)
    except Damaged:
        return Entry()
    nats = saved.state.last_nats
    return Entry(nats if nats is not None and math.isfinite(nats) else None, saved.good)


def _checkpoints(run: Path) -> Path:
    return run / "checkpoints"


def begun(run: Path) -> bool:
    """True if a run has a checkpoint, or the remains of one whose replacement was interrupted."""
    return bool(by_step(run)) or any(_checkpoints(run).glob(".step-*.replaced"))


def by_step(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = [path for path in _checkpoints(run).glob("step-*") if path.name[5:].isdecimal()]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint folder."""
    return int(path.name.removeprefix("step-"))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a configuration with their dotted names."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
