"""A running average of the weights: what is validated, sampled and shipped."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def decay_at(step: int, decay: float) -> float:
    """The decay, held back while few steps are averaged, so that short runs forget their start."""
    return min(decay, (1 + step) / (10 + step))


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor, which it may share with others."""
    to_local = getattr(tensor, "to_local", None)
    return to_local().detach() if to_local else tensor


class EMA:
    """Average of a model's trainable parameters; everything else is the model's own."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = model
        self.decay = decay
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.average = [p.detach().clone() for p in self.parameters]
        # of sharded parameters, this process's part: an update asks nobody
        self._own = [local(p) for p in self.parameters]
        self._own_average = [local(average) for average in self.average]
        place = {id(p): index for index, p in enumerate(self.parameters)}
        state = model.state_dict(keep_vars=True)  # lists a tied parameter under each of its names
        self.names = {name: place[id(p)] for name, p in state.items() if id(p) in place}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """average ← decay · average + (1 − decay) · weights, after update number `step`."""
        torch._foreach_lerp_(self._own_average, self._own, 1 - decay_at(step, self.decay))

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Inside, the model has the averaged weights; after, its own again, to the bit."""
        own = [p.detach().clone() for p in self.parameters]
        self._put(self.average)
        try:
            yield
        finally:
            self._put(own)

    def tensors(self) -> dict[str, Tensor]:
        """The model's state dict with the averages in place."""
        averages = {name: self.average[index] for name, index in self.names.items()}
        return self.model.state_dict() | averages

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take up averages that `tensors` gave."""
        for name, index in self.names.items():
            self.average[index].copy_(tensors[name])

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)
