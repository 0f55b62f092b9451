"""Inputs of a network's matrices on a text, which rounding to 4 bits takes into account."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unmask.bundle import Bundle
from unmask.data.rows.first_rows import FirstRows
from unmask.errors import UnmaskError
from unmask.likelihood.perplexity import rows_of
from unmask.methods.method import on_device
from unmask.randomness import RowStream
from unmask.shapes import Batch

ROWS = 64
_BATCH = 4  # rows of a forward pass


@torch.no_grad()
def input_products(bundle: Bundle, texts: Sequence[str] | str | Path) -> dict[str, Tensor]:
    """X^T X of the inputs X of each linear layer, in forward passes of the training loss.

    So the inputs are those of texts with the method's own noise.

    Args:
        bundle: The model.
        texts: Texts, or a data source; its first 64 rows are read.

    Returns:
        The products by the name of the layer's weight, on the CPU.
    """
    method, device = bundle.method, bundle.device
    rows = rows_of(bundle, str(texts) if isinstance(texts, Path) else texts)
    if not len(rows):
        raise UnmaskError("there is no text to calibrate with: give a text with tokens")
    found: dict[str, Tensor] = {}

    def add(name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].flatten(0, -2).float()
        with torch.autocast(device.type, enabled=False):
            product = x.T @ x
        found[name] = found[name] + product if name in found else product

    # a network with hooks calls all of its layers, one by one
    hooks = [
        layer.register_forward_pre_hook(partial(add, f"{name}.weight"))
        for name, layer in method.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    first = FirstRows(rows, ROWS)
    try:
        with method.arithmetic():
            for step, start in enumerate(range(0, len(first), _BATCH)):
                part = range(start, min(start + _BATCH, len(first)))
                batch = Batch(*first[part], first.given(part))
                stream = RowStream(0, step, range(len(part)), len(part))
                method.loss_of(on_device(method.loss_tensors(batch, stream), device))
    finally:
        for hook in hooks:
            hook.remove()
    return {name: product.cpu() for name, product in found.items()}
