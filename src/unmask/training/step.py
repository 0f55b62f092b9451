"""The optimizer step: gradient of a loss, clipping, finite check and update.

Runs, fine-tuning and the measured time of a step all take this one.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from unmask.backbones.layers.dropout import Keys, dropout_keys
from unmask.data.loader import BatchSource, WeightedSource
from unmask.methods.method import Losses, Method
from unmask.randomness import RowStream
from unmask.runtime.device import autocast
from unmask.shapes import Batch
from unmask.training.distributed.single_process import SingleProcess
from unmask.training.health import not_finite
from unmask.training.optimizer import NamedAdamW, clip_gradients
from unmask.training.rounded_weights import rounded_weights


@dataclass(frozen=True)
class OptimizerStep:
    """A step of one method: `add` for each micro-batch, then `finish`."""

    method: Method
    optimizer: NamedAdamW
    strategy: SingleProcess
    clip: float
    rounds: bool = False  # True: loss and gradient are those of the weights of int4

    def add(
        self, losses: Callable[[], Losses], keys: Keys, units: float | Tensor, last: bool = True
    ) -> Tensor:
        """Adds the gradient of `losses().total / units`.

        Args:
            losses: computes the losses of some rows.
            keys: dropout keys of the rows.
            units: divisor of the loss.
            last: False if another micro-batch of the step follows.

        Returns:
            The share of the mean loss that these rows contribute.
        """
        backbone, strategy = self.method.backbone, self.strategy
        backbone.dropout_keys = keys
        rounding = rounded_weights(self.method) if self.rounds else nullcontext()
        try:
            with strategy.accumulating(last), rounding:
                with autocast(strategy.device, strategy.precision):
                    total = losses().total
                share = total / units
                strategy.backward(share)
        finally:
            backbone.dropout_keys = None  # the keys belong to this micro-batch only
        return share.detach().float()

    def finish(self, loss: Tensor, lr: float | Tensor) -> Tensor:
        """Clips the gradient and updates the weights, unless loss or gradient is not finite.

        Args:
            loss: the mean loss of the step.
            lr: the learning rate; a CUDA graph reads it from a tensor.

        Returns:
            Loss and gradient norm, [2].
        """
        norm = clip_gradients(self.method, self.clip)
        self.optimizer.step(lr, not_finite(loss, norm))
        return torch.stack([loss, norm])


class TrainStep:
    """Accumulates the gradient of the mean loss over this process's `rows` of each global batch."""

    def __init__(
        self, step: OptimizerStep, loader: BatchSource, rows: range, batch: int, seed: int
    ) -> None:
        self.step, self.loader = step, loader
        self.rows, self.batch, self.seed = rows, batch, seed

    def add(self, number: int, units: int, size: int) -> Tensor:
        """Adds the gradient of this process's rows, in micro-batches of `size` rows.

        Args:
            number: the number of the batch, which seeds noise and dropout.
            units: divisor of the loss: the tokens or the rows of the global batch.
            size: rows of a backward pass.

        Returns:
            The share of the mean loss that these rows contribute.
        """
        batch = self._batch(number)
        device, module = self.step.strategy.device, self.step.strategy.module
        loss = torch.zeros((), device=device)
        for first in range(0, len(self.rows), size):
            here = slice(first, first + size)
            stream = RowStream(self.seed, number, self.rows[here], self.batch)
            keys, last = dropout_keys(stream, device), first + size >= len(self.rows)
            losses = partial(module, batch.part(here), stream)
            loss += self.step.add(losses, keys, max(1, units), last)
        return loss

    def _batch(self, number: int) -> Batch:
        """This process's rows of a batch."""
        rows, loader = self.rows, self.loader
        weight = loader.weights(number, rows) if isinstance(loader, WeightedSource) else None
        return Batch(*loader.batch(number, rows), loader.given(number, rows), weight=weight)

    def tensors(self, number: int) -> tuple[dict[str, Tensor], Keys]:
        """Inputs of the method's `loss_of` for a whole batch, and its dropout keys.

        Args:
            number: the number of the batch.
        """
        batch = self._batch(number)
        stream = RowStream(self.seed, number, self.rows, self.batch)
        keys = dropout_keys(stream, self.step.strategy.device)
        return self.step.method.loss_tensors(batch, stream), keys
