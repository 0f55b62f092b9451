"""Where a run stands, beside its tensors: everything the loop would otherwise forget."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, get_origin, runtime_checkable

from unmask.files.storage import Damaged, read_json

_LARGEST = 2**48  # of a counter: with it the places of rows stay within 64 bits
_DEEPEST = 20  # sections of a configuration, one in another


@runtime_checkable
class ValidationResult(Protocol):
    """What a validation must say: a bound per token, its standard error, and all it knows."""

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
    owed: str = ""  # what a signal cut short after this step: "validate" or "sample"
    skipped: int = 0  # steps that were not finite and left the weights alone
    streak: int = 0  # of them, those in a row up to the last log line
    rollbacks: int = 0  # times the run went back
    passed: int = 0  # batches passed over by going back
    counted: int = 0  # losses behind the next two
    level: float = 0.0  # the usual loss, a running average
    spread: float = 0.0  # its variance
    # (loss, gradient norm) of the steps since the last log line
    pending: list[tuple[float, float]] = field(default_factory=list)

    def judge(self, result: ValidationResult) -> bool:
        """Take note of a validation; whether it is the best so far."""
        better = result.nats < self.best_nats
        self.last_nats = result.nats
        self.stale = 0 if better else self.stale + 1
        if better:
            self.best_step, self.best_nats, self.best_error = self.step, result.nats, result.error
        return better

    @property
    def drawn(self) -> int:
        """Which batch, noise and dropout the next step takes."""
        return self.step + self.passed

    def go_on_after(self, failed: "TrainingState") -> dict[str, Any]:
        """Pass over the batches that a failed attempt took from here; the log's line about it."""
        self.passed = failed.passed + failed.step - self.step
        self.rollbacks, self.skipped = failed.rollbacks + 1, failed.skipped
        return {"step": self.step, "rollback": {"from": failed.step, "passed": self.passed}}

    def to_dict(self) -> dict[str, Any]:
        """For state.json, where infinity is written as null."""
        return asdict(self) | {"best_nats": self.best_nats if self.best_step else None}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "TrainingState":
        """The state that `to_dict` wrote; anything else is an error."""
        best = content["best_nats"] if content["best_step"] else float("inf")
        content = {**content, "best_nats": best}
        for each in fields(cls):
            if not _fits(content[each.name], each.type):
                raise ValueError(f"{each.name} is no {each.type}")
        if content["spread"] < 0:
            raise ValueError("a variance is not negative")
        return cls(**{**content, "pending": [(loss, norm) for loss, norm in content["pending"]]})


def _fits(value: object, kind: Any) -> bool:
    """Whether a value of JSON is of a field's type; nothing that is counted is negative."""
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
    """What a checkpoint's state.json says."""

    state: TrainingState
    good: bool  # whether it is one to go back to
    fingerprint: dict[str, Any]

    @property
    def steps(self) -> int | None:
        """How far the run was to go."""
        training = self.fingerprint.get("training")
        steps = training.get("steps") if isinstance(training, dict) else None
        return steps if _fits(steps, int) else None


def read_saved(checkpoint: Path) -> Saved:
    """The checked content of state.json, which anybody may have written."""
    path = checkpoint / "state.json"
    try:
        if not path.is_file():
            raise ValueError("a pipe would be waited for")
        content = read_json(path)
        _check_depth(content["fingerprint"])
        state = TrainingState.from_dict(content["state"])
        return Saved(state, content["good"] is True, content["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"{checkpoint} is damaged: state.json cannot be read") from None


def _check_depth(tree: Mapping[str, Any], depth: int = 0) -> None:
    """Whoever walks through it recursively comes to an end."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    for value in tree.values():
        if isinstance(value, Mapping):
            _check_depth(value, depth + 1)
