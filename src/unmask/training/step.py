"""Gradient of one optimizer step, accumulated over the micro-batches of a process."""

import torch
from torch import Tensor

from unmask.backbones.layers.dropout import dropout_keys
from unmask.data.loader import BatchSource
from unmask.methods.method import Method
from unmask.randomness import RowStream
from unmask.runtime.device import autocast
from unmask.training.distributed.single_process import SingleProcess
from unmask.training.training_config import TrainingConfig


class TrainStep:
    """Accumulates the gradient of the mean loss over this process's `rows` of each global batch."""

    def __init__(
        self,
        method: Method,
        strategy: SingleProcess,
        loader: BatchSource,
        rows: range,
        seed: int,
        config: TrainingConfig,
    ) -> None:
        self.method, self.strategy, self.loader = method, strategy, loader
        self.rows, self.seed, self.config = rows, seed, config

    def add(self, step: int, units: int, size: int) -> Tensor:
        """Adds the gradient of this process's rows, in micro-batches of `size` rows.

        Args:
            step: the number of the batch, which seeds noise and dropout.
            units: divisor of the loss: the tokens or the rows of the global batch.
            size: rows of a backward pass.

        Returns:
            The share of the mean loss that these rows contribute.
        """
        x, valid = self.loader.batch(step, self.rows)
        given = self.loader.given(step, self.rows)
        method, strategy, device = self.method, self.strategy, self.strategy.device
        loss = torch.zeros((), device=device)
        for first in range(0, len(self.rows), size):
            part, here = self.rows[first : first + size], slice(first, first + size)
            given_part = None if given is None else given[here]
            stream = RowStream(self.seed, step, part, self.config.batch)
            method.backbone.dropout_keys = dropout_keys(stream, device)
            with strategy.accumulating(last=first + size >= len(self.rows)):
                with autocast(device, self.config.precision):
                    total = strategy.module(x[here], valid[here], given_part, stream)
                share = total / max(1, units)
                strategy.backward(share)
            method.backbone.dropout_keys = None  # the keys belong to this micro-batch only
            loss += share.detach().float()
        return loss
