"""Where and how the numbers are computed: device, autocast, dropout's keys."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Int32
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.randomness import RowStream
from unmask.transfer import to_device


def resolve_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the fastest one there is."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next((device for device, exists in there.items() if exists), "cpu")
    if name != "cpu" and not there.get(name):
        usable = ["auto", "cpu", *(device for device, exists in there.items() if exists)]
        raise UnmaskError(f"device {name!r} is not on this machine: use {' or '.join(usable)}")
    return torch.device(name)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bf16 arithmetic where torch thinks it safe, or nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def dropout_keys(stream: RowStream, device: torch.device) -> Int32[Tensor, "rows 2"]:
    """The keys of dropout, a function of (seed, step, row)."""
    whole = (stream.uniform("dropout", 2) * 2**32).long() - 2**31
    return to_device(whole, device, torch.int32)


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Only kernels that always give the same bits; an operation that has none raises."""
    before = torch.are_deterministic_algorithms_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it by name
    torch.use_deterministic_algorithms(wanted or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
