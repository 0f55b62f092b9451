"""Tensors of a checkpoint: unsharded on disk,
and in memory as the distributed strategy shards them.
"""

from pathlib import Path

from torch import Tensor

from unmask.files.tensors import check_fit, read_weights
from unmask.methods.method import Method
from unmask.training.distributed.single_process import SingleProcess
from unmask.training.ema import EMA
from unmask.training.optimizer import NamedAdamW


class Snapshot:
    """Tensors of a run by file: weights, optimizer state, averages (EMA),
    further tensors of training.
    """

    def __init__(
        self, strategy: SingleProcess, trained: Method, optimizer: NamedAdamW, ema: EMA | None
    ) -> None:
        self.strategy, self.trained = strategy, trained
        self.optimizer, self.ema = optimizer, ema

    def take(self) -> dict[str, dict[str, Tensor]]:
        """Unsharded tensors by file, which the main process writes. All processes must call it."""
        return {name: self.strategy.unsharded(part) for name, part in self._parts().items()}

    def averages(self) -> dict[str, Tensor]:
        """The averaged (EMA) weights, or the trained weights if `training.ema` is 0."""
        return self.strategy.unsharded(
            self.ema.tensors() if self.ema else self.trained.state_dict()
        )

    def load(self, found: Path) -> None:
        """Loads the tensors of a checkpoint; the main process reads them for all processes."""
        loaded = {name: self._read(found, name, like) for name, like in self._parts().items()}
        self.trained.load_state_dict(loaded["model"])
        self.optimizer.load(loaded["optimizer"])
        if self.ema:
            self.ema.load(loaded["ema"])
        for name, tensor in self.trained.training_tensors().items():
            tensor.copy_(loaded["training"][name])

    def _parts(self) -> dict[str, dict[str, Tensor]]:
        parts = {"model": self.trained.state_dict(), "optimizer": self.optimizer.tensors()}
        if self.ema:
            parts["ema"] = self.ema.tensors()
        further = self.trained.training_tensors()
        return parts | ({"training": further} if further else {})

    def _read(self, found: Path, name: str, like: dict[str, Tensor]) -> dict[str, Tensor]:
        if not self.strategy.group.main:
            return self.strategy.distribute(None, like)
        unsharded = read_weights(found, name)
        check_fit(unsharded, like, found / f"{name}.safetensors")
        return self.strategy.distribute(unsharded, like)
