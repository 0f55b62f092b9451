"""Counters and statistics of a run, which its checkpoints hold beside the tensors."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, get_origin, runtime_checkable

from unmask.files.storage import Damaged, read_json

_LARGEST = 2**48  # limit of a counter: row positions then fit into 64 bits
_DEEPEST = 20  # nesting depth of a configuration


@runtime_checkable
class ValidationResult(Protocol):
    """The result of a validation: a bound in nats per token and its standard error."""

    @property
    def nats(self) -> float: ...

    @property
    def error(self) -> float: ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass
class TrainingState:
    """Counters of a run; saved with every checkpoint."""

    step: int = 0  # optimizer steps done
    tokens: int = 0  # valid tokens seen
    seconds: float = 0.0  # spent in steps
    best_step: int = 0  # 0 = not validated yet
    best_nats: float = float("inf")
    best_error: float = 0.0
    stale: int = 0  # validations since the best one
    last_nats: float | None = None  # the newest validation
    owed: str = ""  # work that a signal aborted after this step: "validate" or "sample"
    skipped: int = 0  # non-finite steps, which did not change the weights
    streak: int = 0  # skipped steps in a row up to the last log line
    rollbacks: int = 0
    passed: int = 0  # batches that rollbacks skipped
    counted: int = 0  # losses in `level` and `spread`
    level: float = 0.0  # running mean of the loss
    spread: float = 0.0  # running variance of the loss
    # (loss, gradient norm) of the steps since the last log line
    pending: list[tuple[float, float]] = field(default_factory=list)

    def record_validation(self, result: ValidationResult, newest: bool = False) -> bool:
        """Records a validation; returns True if its bound is the best so far,
        or the newest counts.
        """
        better = newest or result.nats < self.best_nats
        self.last_nats = result.nats
        self.stale = 0 if better else self.stale + 1
        if better:
            self.best_step, self.best_nats, self.best_error = self.step, result.nats, result.error
        return better

    @property
    def batch_number(self) -> int:
        """The number of the next batch, which also seeds its noise and dropout."""
        return self.step + self.passed

    def skip_batches_of(self, failed: "TrainingState") -> dict[str, Any]:
        """Skips the batches that a failed attempt used since this step; returns the log record."""
        self.passed = failed.passed + failed.step - self.step
        self.rollbacks, self.skipped = failed.rollbacks + 1, failed.skipped
        return {"step": self.step, "rollback": {"from": failed.step, "passed": self.passed}}

    def to_dict(self) -> dict[str, Any]:
        """The content of state.json, with null in place of infinity."""
        return asdict(self) | {"best_nats": self.best_nats if self.best_step else None}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "TrainingState":
        """The state from a dict that `to_dict` returned; any other content is an error."""
        best = content["best_nats"] if content["best_step"] else float("inf")
        content = {**content, "best_nats": best}
        for each in fields(cls):
            if not _fits(content[each.name], each.type):
                raise ValueError(f"{each.name} is not of type {each.type}")
        if content["spread"] < 0:
            raise ValueError("spread is a variance and must not be negative")
        return cls(**{**content, "pending": [(loss, norm) for loss, norm in content["pending"]]})


def _fits(value: object, kind: Any) -> bool:
    """True if a JSON value has a field's type; counters must not be negative."""
    if get_origin(kind) is list:
        return isinstance(value, list) and all(map(_is_pair, value))
    if kind is str:
        return isinstance(value, str)
    if value is None:
        return kind not in (int, float)
    whole = type(value) is int and 0 <= value < _LARGEST
    return whole or (kind is not int and type(value) is float)


def _is_pair(value: object) -> bool:
    numbers = value if isinstance(value, list | tuple) else ()
    return len(numbers) == 2 and all(_fits(number, float) for number in numbers)


@dataclass(frozen=True)
class Saved:
    """The content of a checkpoint's state.json."""

    state: TrainingState
    good: bool  # True if a rollback may use the checkpoint
    fingerprint: dict[str, Any]

    @property
    def steps(self) -> int | None:
        """The value of `training.steps`, or None if it cannot be read."""
        training = self.fingerprint.get("training")
        steps = training.get("steps") if isinstance(training, dict) else None
        return steps if _fits(steps, int) else None


def read_saved(checkpoint: Path) -> Saved:
    """The content of state.json, checked: the file is untrusted."""
    path = checkpoint / "state.json"
    try:
        if not path.is_file():
            raise ValueError("state.json must be a regular file: reading a pipe would wait")
        content = read_json(path)
        _check_depth(content["fingerprint"])
        state = TrainingState.from_dict(content["state"])
        return Saved(state, content["good"] is True, content["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"{checkpoint} is damaged: state.json cannot be read") from None


def _check_depth(tree: Mapping[str, Any], depth: int = 0) -> None:
    """Raises an error for deep nesting, on which recursive functions would fail."""
    if depth > _DEEPEST:
        raise ValueError(f"the configuration is nested deeper than {_DEEPEST} levels")
    for value in tree.values():
        if isinstance(value, Mapping):
            _check_depth(value, depth + 1)
