"""Strategies of several processes: DDP replicates the weights, FSDP2 shards them."""

import copy
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from unmask.methods.method import Method
from unmask.training.distributed.single_process import SingleProcess, Tensors
from unmask.training.ema import EMA


def _trigger_warning_silently(device: torch.device) -> None:
    """Triggers DDP's warning about unused parameters while stderr goes to /dev/null.

    DDP prints the warning from C++, once a process, and Python cannot filter it.
    (An unused parameter would prevent it, but then the host would wait for the GPU at every step.)
    """
    stderr, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        tiny = DistributedDataParallel(nn.LayerNorm(1).to(device), find_unused_parameters=True)
        tiny(torch.zeros(1, 1, device=device)).sum().backward()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


class DDP(SingleProcess):
    """DDP: every process has all the weights, and gradients are summed."""

    retries = False  # the other processes would not repeat the step
    graphs = False

    def place(self, method: Method) -> Method:
        placed = super().place(method)
        # Without the search for unused parameters DDP rebuilds its buckets after the first step.
        # Sums over three or more processes would then round differently in a resumed run.
        _trigger_warning_silently(self.device)
        self._ddp = DistributedDataParallel(
            placed, find_unused_parameters=True, gradient_as_bucket_view=True
        )
        self.module = self._ddp
        return placed

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self._ddp.no_sync()

    def backward(self, share: Tensor) -> None:
        (share * self.group.world).backward()  # DDP averages over processes

    def total(self, share: Tensor) -> Tensor:
        dist.all_reduce(share)
        return share

    def distribute(self, tensors: Tensors | None, like: Tensors) -> dict[str, Tensor]:
        return {name: self._broadcast(name, tensors, one) for name, one in like.items()}

    def _broadcast(self, name: str, tensors: Tensors | None, like: Tensor) -> Tensor:
        """One tensor, broadcast from the main process over the devices."""
        here = torch.empty(like.shape, dtype=like.dtype, device=self.device)
        if tensors is not None:
            here.copy_(tensors[name])
        dist.broadcast(here, 0)
        return here.to(like.device)


class FSDP(DDP):
    """FSDP2: weights, gradients, optimizer state and weight averages are sharded.

    A block is gathered while it computes. The given method stays unsharded on the host.
    Validation loads the unsharded weights into it, because ranks measure different rows:
    a sharded model would make each rank wait for the shards of the others.
    """

    def place(self, method: Method) -> Method:
        trained = copy.deepcopy(method)
        mesh = init_device_mesh(self.device.type, (self.group.world,))
        half = self.precision == "bf16"
        # Blocks are gathered and compute in bf16. Embedding, final norm, head, residuals and
        # gradient sums stay in float32.
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if half else None,
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,
        )
        for block in getattr(trained.backbone, "blocks", ()):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        self._fsdp = fully_shard(trained, mesh=mesh)  # the same object, typed as an FSDP module
        self.module = trained
        for module in trained.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)  # a sum, not a mean
                module.set_force_sum_reduction_for_comms(True)
        return trained

    def accumulating(self, last: bool) -> AbstractContextManager[None]:
        self._fsdp.set_requires_gradient_sync(last)
        return nullcontext()

    def backward(self, share: Tensor) -> None:
        share.backward()

    @contextmanager
    def averages_loaded(self, method: Method, trained: Method, ema: EMA | None) -> Iterator[None]:
        tensors = ema.tensors() if ema else trained.state_dict()
        own = method.to(self.device).state_dict()
        with torch.no_grad():
            for name, tensor in tensors.items():  # a GPU gathers one tensor at a time
                own[name].copy_(_full(tensor))
        try:
            yield
        finally:
            method.to("cpu")

    def unsharded(self, tensors: Tensors) -> dict[str, Tensor]:
        """Unsharded tensors, gathered one at a time: a GPU holds at most one of them."""
        found = {}
        for name, tensor in tensors.items():
            full = _full(tensor)
            if self.group.main:
                found[name] = full.cpu()
        return found

    def _broadcast(self, name: str, tensors: Tensors | None, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor):
            return super()._broadcast(name, tensors, like)
        here = torch.empty(like.shape, dtype=like.dtype, device=self.device)
        if tensors is not None:
            here.copy_(tensors[name])
        return distribute_tensor(here, like.device_mesh, like.placements)


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
