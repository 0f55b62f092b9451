"""Training: the loop, checkpoints, process groups and logs."""

from typing import TYPE_CHECKING

from unmask.imports import lazy_exports

if TYPE_CHECKING:
    from unmask.training.logs.loggers import LOGGERS, Logger
    from unmask.training.trainer import Trainer
    from unmask.training.training_config import TrainingConfig

__all__ = ["LOGGERS", "Logger", "Trainer", "TrainingConfig"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "LOGGERS": "unmask.training.logs.loggers",
        "Logger": "unmask.training.logs.loggers",
        "Trainer": "unmask.training.trainer",
        "TrainingConfig": "unmask.training.training_config",
    },
)
