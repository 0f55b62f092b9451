"""Exponential moving average of the weights, used for validation, sampling and export."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def decay_at(step: int, decay: float) -> float:
    """The decay after `step` updates: smaller at first,
    so that the initial weights fade quickly.
    """
    return min(decay, (1 + step) / (10 + step))


def local(tensor: Tensor) -> Tensor:
    """This process's shard of a sharded tensor, or the tensor itself."""
    to_local = getattr(tensor, "to_local", None)
    return to_local().detach() if to_local else tensor


class EMA:
    """Moving average of a model's trainable parameters; other tensors are not averaged."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = model
        self.decay = decay
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.average = [p.detach().clone() for p in self.parameters]
        # An update of this process's shards needs no communication.
        self._shards = [local(p) for p in self.parameters]
        self._average_shards = [local(average) for average in self.average]
        index_of = {id(p): index for index, p in enumerate(self.parameters)}
        state = model.state_dict(keep_vars=True)  # lists a tied parameter under each of its names
        self.names = {name: index_of[id(p)] for name, p in state.items() if id(p) in index_of}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """average ← decay · average + (1 − decay) · weights, after update number `step`."""
        torch._foreach_lerp_(self._average_shards, self._shards, 1 - decay_at(step, self.decay))

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """A context with the averages in the model; on exit its own weights return, bit for bit."""
        own = [p.detach().clone() for p in self.parameters]
        self._put(self.average)
        try:
            yield
        finally:
            self._put(own)

    def tensors(self) -> dict[str, Tensor]:
        """The model's state dict with the averages in place of the trained parameters."""
        averages = {name: self.average[index] for name, index in self.names.items()}
        return self.model.state_dict() | averages

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Loads averages from a dict that `tensors` returned."""
        for name, index in self.names.items():
            self.average[index].copy_(tensors[name])

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)
