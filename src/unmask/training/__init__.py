"""Training: the loop, its checkpoints and what it writes down."""

from typing import TYPE_CHECKING

from unmask.files.lock import locked
from unmask.files.storage import (
    Damaged,
    atomic_folder,
    full_disk,
    read_json,
    seal,
    verify,
    write_json,
)
from unmask.files.tensors import (
    check_finite,
    check_fit,
    load_weights,
    read_tensors,
    read_weights,
    write_weights,
)
from unmask.imports import lazy_exports
from unmask.training.checkpoint import (
    MAY_CHANGE,
    SEALED,
    agree,
    carried,
    newest,
    recovered,
    run_weights,
)
from unmask.training.config import DistributedConfig, TrainingConfig
from unmask.training.ema import EMA
from unmask.training.group import Group, joined, local_device
from unmask.training.interrupt import Interrupted
from unmask.training.loggers import LOGGERS, Logger, Unavailable
from unmask.training.logging import read_log
from unmask.training.optimizer import learning_rate
from unmask.training.source import BatchSource
from unmask.training.state import TrainingState, ValidationResult

if TYPE_CHECKING:
    from unmask.training.trainer import Trainer

__all__ = [
    "EMA",
    "LOGGERS",
    "MAY_CHANGE",
    "SEALED",
    "BatchSource",
    "Damaged",
    "DistributedConfig",
    "Group",
    "Interrupted",
    "Logger",
    "Trainer",
    "TrainingConfig",
    "TrainingState",
    "Unavailable",
    "ValidationResult",
    "agree",
    "atomic_folder",
    "carried",
    "check_finite",
    "check_fit",
    "full_disk",
    "joined",
    "learning_rate",
    "load_weights",
    "local_device",
    "locked",
    "newest",
    "read_json",
    "read_log",
    "read_tensors",
    "read_weights",
    "recovered",
    "run_weights",
    "seal",
    "verify",
    "write_json",
    "write_weights",
]

# the loop brings much that whoever reads what it wrote can do without
__getattr__, __dir__ = lazy_exports(__name__, {"Trainer": "unmask.training.trainer"})
