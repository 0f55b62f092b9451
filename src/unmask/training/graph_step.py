"""One optimizer step as a CUDA graph: loss, gradient, clipping and update in one launch.

The kernels of a small network take less time than their launches. A graph launches all of them at once.
"""

from functools import partial

import torch
from torch import Tensor

from unmask.backbones.layers.dropout import dropout_keys
from unmask.backbones.layers.inference_weights import hooked
from unmask.randomness import RowStream
from unmask.runtime.cuda_graphs import CudaGraphs
from unmask.runtime.device import autocast, to_device
from unmask.training.health import not_finite
from unmask.training.optimizer import NamedAdamW, clip_gradients
from unmask.training.step import TrainStep


class GraphStep:
    """Takes steps of one backward pass each. The first two of a shape run without a graph."""

    def __init__(self, step: TrainStep, optimizer: NamedAdamW) -> None:
        self.step, self.optimizer = step, optimizer
        self.device = step.strategy.device
        self._graphs = CudaGraphs()

    def run(self, number: int, units: int, lr: float) -> Tensor | None:
        """Takes one step.

        Args:
            number: the number of the batch.
            units: tokens or rows of the batch, over which the loss is a mean.
            lr: the learning rate.

        Returns:
            Loss and gradient norm, [2]; None if no graph can hold the step, which is then not taken.
        """
        own = self.step
        x, valid = own.loader.batch(number, own.rows)
        given = own.loader.given(number, own.rows)
        stream = RowStream(own.seed, number, own.rows, own.config.batch)
        tensors = own.method.loss_tensors(x, valid, given, stream)
        # a hook of the head would run only once, when the graph is captured
        if tensors is None or hooked(own.method.backbone.head):
            return None
        names = tuple(tensors)
        scalars = torch.tensor([lr, max(1, units)], dtype=torch.float32)
        inputs = [to_device(value, self.device) for value in (scalars, *tensors.values())]
        inputs.append(dropout_keys(stream, self.device))
        graph = self._graphs(names, partial(self._step, names))
        return graph(inputs, [len(value) for value in inputs], 2)

    def _step(self, names: tuple[str, ...], scalars: Tensor, *inputs: Tensor) -> Tensor:
        """The step as a function of tensors on the device. It also changes weights and moments."""
        own, backbone = self.step, self.step.method.backbone
        *values, keys = inputs
        lr, units = scalars.unbind()
        self.optimizer.zero_grad()
        backbone.dropout_keys = keys
        try:
            with autocast(self.device, own.config.precision):
                total = own.method.loss_of(dict(zip(names, values, strict=True)))
            share = total / units
            share.backward()
        finally:
            backbone.dropout_keys = None
        norm = clip_gradients(own.method, own.config.clip)
        loss = share.detach().float()
        self.optimizer.step(lr, not_finite(loss, norm))
        return torch.stack([loss, norm])
