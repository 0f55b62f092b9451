"""Where a run stands, beside its tensors: everything the loop would otherwise forget."""

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable


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
    # (loss, gradient norm) of the steps since the last log line
    pending: list[tuple[float, float]] = field(default_factory=list)

    def judge(self, result: ValidationResult) -> bool:
        """Take note of a validation; whether it is the best so far."""
        better = result.nats < self.best_nats
        self.stale = 0 if better else self.stale + 1
        if better:
            self.best_step, self.best_nats, self.best_error = self.step, result.nats, result.error
        return better

    def to_dict(self) -> dict[str, Any]:
        """For state.json, where infinity is written as null."""
        return asdict(self) | {"best_nats": self.best_nats if self.best_step else None}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "TrainingState":
        pending = [(loss, norm) for loss, norm in content["pending"]]
        best = content["best_nats"] if content["best_step"] else float("inf")
        return cls(**{**content, "pending": pending, "best_nats": best})
