"""One optimizer step as a CUDA graph: loss, gradient, clipping and update in one launch.

The kernels of a small network take less time than their launches. A graph launches all of them at once.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from unmask.backbones.layers.dropout import Keys
from unmask.backbones.layers.inference_weights import hooked
from unmask.methods.method import Losses
from unmask.runtime.cuda_graphs import CudaGraphs
from unmask.runtime.device import to_device
from unmask.shapes import Tensors
from unmask.training.step import OptimizerStep

LossOf = Callable[[Tensors], Losses]


class GraphStep:
    """Takes steps of one backward pass each. The first two of a shape run without a graph."""

    def __init__(self, step: OptimizerStep, loss_of: LossOf) -> None:
        self.step, self.loss_of = step, loss_of
        self.device = step.strategy.device
        step.method.few_shapes = True
        self._graphs = CudaGraphs()

    def run(self, tensors: Tensors, keys: Keys, units: int, lr: float) -> Tensor | None:
        """Takes one step.

        Args:
            tensors: inputs of `loss_of`.
            keys: dropout keys of the rows.
            units: tokens or rows of the batch, over which the loss is a mean.
            lr: the learning rate.

        Returns:
            Loss and gradient norm, [2]; None if no graph can hold the step, which is then not taken.
        """
        # a hook of the head would run only once, when the graph is captured
        if hooked(self.step.method.backbone.head):
            return None
        names = tuple(tensors)
        scalars = torch.tensor([lr, max(1, units)], dtype=torch.float32)
        inputs = [to_device(each, self.device) for each in (scalars, *tensors.values(), keys)]
        graph = self._graphs(names, partial(self._step, names))
        return graph(inputs, [len(value) for value in inputs], 2)

    def _step(self, names: tuple[str, ...], scalars: Tensor, *inputs: Tensor) -> Tensor:
        """The step as a function of tensors on the device. It also changes weights and moments."""
        *values, keys = inputs
        lr, units = scalars.unbind()
        tensors = dict(zip(names, values, strict=True))
        self.step.optimizer.zero_grad()
        loss = self.step.add(lambda: self.loss_of(tensors), keys, units)
        return self.step.finish(loss, lr)
