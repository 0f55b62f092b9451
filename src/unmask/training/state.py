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
        pending = [(loss, norm) for loss, norm in content["pending"]]
        best = content["best_nats"] if content["best_step"] else float("inf")
        return cls(**{**content, "pending": pending, "best_nats": best})
