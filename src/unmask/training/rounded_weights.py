"""Training with weights as int4 stores them: the straight-through estimator (arXiv 1308.3432)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from unmask.files.rounding import rounded


@contextmanager
def rounded_weights(module: nn.Module) -> Iterator[None]:
    """A context in which matrices have the weights of int4.

    Gradients that are computed in it belong to the rounded weights. The optimizer applies them to the
    unrounded ones, which come back at the end.

    Args:
        module: The network that computes the loss.
    """
    kept = []
    with torch.no_grad():
        for weight in module.parameters():
            if (new := rounded(weight.data)) is not None:
                kept.append((weight, weight.data.clone()))
                weight.data.copy_(new)
    try:
        yield
    finally:
        for weight, value in kept:
            weight.data.copy_(value)
