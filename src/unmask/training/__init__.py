"""Training: the loop, its checkpoints and what it writes down."""

from unmask.training.checkpoint import MAY_CHANGE, newest, resumable, run_weights
from unmask.training.config import TrainingConfig
from unmask.training.device import resolve_device
from unmask.training.ema import EMA
from unmask.training.interrupt import Interrupted
from unmask.training.optimizer import learning_rate
from unmask.training.state import TrainingState, ValidationResult
from unmask.training.storage import (
    Damaged,
    atomic_folder,
    full_disk,
    load_weights,
    read_json,
    read_weights,
    verify,
    write_json,
    write_weights,
)
from unmask.training.trainer import BatchSource, Trainer

__all__ = [
    "EMA",
    "MAY_CHANGE",
    "BatchSource",
    "Damaged",
    "Interrupted",
    "Trainer",
    "TrainingConfig",
    "TrainingState",
    "ValidationResult",
    "atomic_folder",
    "full_disk",
    "learning_rate",
    "load_weights",
    "newest",
    "read_json",
    "read_weights",
    "resolve_device",
    "resumable",
    "run_weights",
    "verify",
    "write_json",
    "write_weights",
]
