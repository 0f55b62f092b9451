"""Training in one process: the strategy that the others extend."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from unmask.backbones.compile import compile_backbone
from unmask.methods.method import Method
from unmask.training.distributed.process_group import ProcessGroup
from unmask.training.ema import EMA

Tensors = Mapping[str, Tensor]


class SingleProcess:
    """One process; the two others differ from it in what they say here."""

    retries = True  # may a step that failed half-way be tried again?

    def __init__(self, group: ProcessGroup, device: torch.device, precision: str) -> None:
        self.group, self.device, self.precision = group, device, precision

    def place(self, method: Method) -> Method:
        """The method on its device, as it is trained; `module` is then what computes the loss."""
        placed = method.to(self.device)
        self.module: nn.Module = placed
        return placed

    def compile(self, trained: Method, rows: int | None) -> None:
        """Compiles what is worth it, for batches of so many rows or of any number."""
        compile_backbone(trained.backbone, None if rows is None else trained.passes(rows))

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        """A micro-batch; gradients meet in the last one of a step only."""
        return nullcontext()

    def backward(self, share: Tensor) -> None:
        """Adds the gradient of this process's share of the loss, a sum over processes."""
        share.backward()

    def total(self, share: Tensor) -> Tensor:
        """The loss, of which each process has a share."""
        return share

    @contextmanager
    def shown(self, method: Method, trained: Method, ema: EMA | None) -> Iterator[None]:
        """Inside, `method` has the averaged weights, to be validated and sampled."""
        with ema.swapped() if ema else nullcontext():
            yield

    def whole(self, tensors: Tensors) -> dict[str, Tensor]:
        """Whole tensors for the process that writes them; all processes must ask."""
        return dict(tensors)

    def spread(self, tensors: Tensors | None, like: Tensors) -> dict[str, Tensor]:
        """Whole tensors of the process that reads them, where and as `like` has them."""
        assert tensors is not None
        return dict(tensors)
