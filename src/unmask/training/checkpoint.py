"""Checkpoints of a run: the newest intact one is where it continues."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unmask.errors import UnmaskError
from unmask.training.storage import (
    Damaged,
    atomic_folder,
    read_json,
    read_weights,
    recover,
    remove,
    verify,
    write_json,
    write_weights,
)

Say = Callable[[str], None]

# What a resumed run may change: how far it goes, what it tells and keeps, and on which machine it
# runs. (`steps` only while the learning rate does not depend on it.)
MAY_CHANGE = frozenset(
    {
        "training.steps",
        *("training.validate_every", "training.patience", "training.sample_every"),
        *("training.log_every", "training.tensorboard", "training.save_every", "training.keep"),
        *("training.micro_batch", "training.compile", "training.deterministic", "training.device"),
    }
)


def folder(run: Path, step: int) -> Path:
    """Where the checkpoint after `step` steps lives."""
    return _checkpoints(run) / f"step-{step:08d}"


def save(
    run: Path,
    step: int,
    keep: int,
    parts: Mapping[str, Mapping[str, Tensor]],
    state: dict[str, Any],
) -> Path:
    """Write checkpoints/step-…, whole or not at all, then drop all but the last `keep`."""
    new = folder(run, step)
    _write(new, parts, state)
    # A checkpoint beyond this step was passed over as damaged, or the run would stand there.
    past = [path for path in _by_step(run) if path.name <= new.name]
    for path in _by_step(run):
        if path not in past[-keep:]:
            remove(path)
    return new


def save_best(run: Path, weights: Mapping[str, Tensor], state: dict[str, Any]) -> None:
    """Write checkpoints/best: the weights that validated best, as model.safetensors."""
    _write(_checkpoints(run) / "best", {"model": weights}, state)


def newest(run: Path, warn: Say) -> Path | None:
    """The newest intact checkpoint, damaged ones passed over with a word; None in a fresh run."""
    recover(_checkpoints(run))
    found = _by_step(run)
    for path in reversed(found):
        try:
            verify(path)
        except Damaged as damage:
            warn(f"{damage}; trying the one before")
        else:
            return path
    if found:
        raise UnmaskError(f"no intact checkpoint in {_checkpoints(run)}: remove it to start again")
    return None


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


def resumable(run: Path, fingerprint: Mapping[str, Any], warn: Say) -> Path | None:
    """The checkpoint to continue from, if any; an error if the run has another configuration."""
    found = newest(run, warn)
    if found is None:
        return None
    before = dict(_flat(read_json(found / "state.json")["fingerprint"]))
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
    return found


def _write(target: Path, parts: Mapping[str, Mapping[str, Tensor]], state: dict[str, Any]) -> None:
    with atomic_folder(target) as building:
        for name, tensors in parts.items():
            write_weights(building, tensors, name)
        write_json(building / "state.json", state)


def _checkpoints(run: Path) -> Path:
    return run / "checkpoints"


def _by_step(run: Path) -> list[Path]:
    return sorted(_checkpoints(run).glob("step-*"))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves with their dotted names, as the command line spells them."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
