"""The gradient of a step: a process's rows of the global batch, part by part."""

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from unmask.backbones.layers.dropout import dropout_keys
from unmask.data.loader import BatchSource
from unmask.methods.method import Method, targets
from unmask.randomness import RowStream
from unmask.runtime.device import autocast, to_device
from unmask.training.distributed.single_process import Plain
from unmask.training.training_config import TrainingConfig


class Gradient:
    """Adds up the gradient of the mean loss per token over `rows` of each global batch."""

    def __init__(
        self,
        method: Method,
        strategy: Plain,
        loader: BatchSource,
        rows: range,
        seed: int,
        config: TrainingConfig,
    ) -> None:
        self.method, self.strategy, self.loader = method, strategy, loader
        self.rows, self.seed, self.config = rows, seed, config

    def add(self, step: int, size: int, tokens: int) -> Tensor:
        """Add it by parts of `size` rows, `tokens` being all processes'; the rows' share of the loss."""
        x, valid = self.loader.batch(step, self.rows)
        given = self.loader.given(step, self.rows)
        loss = torch.zeros((), device=self.strategy.device)
        for first in range(0, len(self.rows), size):
            part = self.rows[first : first + size]
            here = slice(first, first + size)
            seen = None if given is None else given[here]
            with self.strategy.accumulating(last=first + size >= len(self.rows)):
                loss += self._backward(step, part, x[here], valid[here], seen, tokens)
        return loss

    def _backward(
        self,
        step: int,
        part: range,
        x: Int64[Tensor, "rows length"],
        valid: Bool[Tensor, "rows length"],
        given: Bool[Tensor, "rows length"] | None,
        tokens: int,
    ) -> Tensor:
        """Add the gradient of these rows' share of the mean loss per token; the share itself."""
        stream = RowStream(self.seed, step, part, self.config.batch)
        method, device = self.method, self.strategy.device

        def total() -> Tensor:
            noise = method.noise(stream, targets(valid, given))
            with autocast(device, self.config.precision):
                return method.nll(to_device(x, device), valid, noise, given=given).total

        method.backbone.dropout_keys = dropout_keys(stream, device)
        share = self.strategy.run(total) / max(1, tokens)
        self.strategy.backward(share)
        method.backbone.dropout_keys = None  # they were of these rows
        return share.detach().float()
