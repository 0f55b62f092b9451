"""Training in one process: the strategy that the others extend."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from unmask.backbones.compile import compile_blocks
from unmask.methods.method import Method
from unmask.training.distributed.process_group import ProcessGroup
from unmask.training.ema import EMA

Tensors = Mapping[str, Tensor]


class SingleProcess:
    """Strategy of one process; DDP and FSDP override its methods."""

    retries = True  # a step that failed half-way can be repeated
    graphs = True  # a CUDA graph can hold a step

    def __init__(self, group: ProcessGroup, device: torch.device, precision: str) -> None:
        self.group, self.device, self.precision = group, device, precision

    def place(self, method: Method) -> Method:
        """The method on its device, as the loop trains it. Sets `module`,
        which computes the loss.
        """
        placed = method.to(self.device)
        self.module: nn.Module = placed
        return placed

    def compile(self, trained: Method, rows: int | None) -> None:
        """Compiles the networks for batches of `rows` rows, or of any number if `rows` is None."""
        for network in trained.networks:
            compile_blocks(network, None if rows is None else trained.passes(rows))

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        """Context of one micro-batch; processes sum gradients in the last one of a step only."""
        return nullcontext()

    def backward(self, share: Tensor) -> None:
        """Adds the gradient of this process's share of the loss;
        the loss is the sum of all shares.
        """
        share.backward()

    def total(self, share: Tensor) -> Tensor:
        """The loss: the sum of the shares of all processes."""
        return share

    @contextmanager
    def averages_loaded(self, method: Method, trained: Method, ema: EMA | None) -> Iterator[None]:
        """A context with the averaged weights in `method`, for validation and sampling."""
        with ema.swapped() if ema else nullcontext():
            yield

    def unsharded(self, tensors: Tensors) -> dict[str, Tensor]:
        """Unsharded tensors for the process that writes them; all processes must call it."""
        return dict(tensors)

    def distribute(self, tensors: Tensors | None, like: Tensors) -> dict[str, Tensor]:
        """Distributes unsharded tensors of the main process,
        with the device and sharding of `like`.
        """
        assert tensors is not None
        return dict(tensors)
