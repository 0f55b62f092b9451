"""Where and how the numbers are computed: device, autocast, compilation, dropout's seed."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from unmask.backbones import Backbone
from unmask.errors import UnmaskError


def resolve_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the fastest one there is."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next((device for device, exists in there.items() if exists), "cpu")
    if name != "cpu" and not there.get(name):
        usable = ["auto", "cpu", *(device for device, exists in there.items() if exists)]
        raise UnmaskError(f"device {name!r} is not on this machine: use {' or '.join(usable)}")
    return torch.device(name)


def move(tensor: Tensor, device: torch.device) -> Tensor:
    """To the device; to a GPU without making the CPU wait."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bf16 arithmetic where torch thinks it safe, or nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def compile_features(backbone: Backbone) -> None:
    """Compile a backbone's `features` in place: names in its state dict do not change."""
    vars(backbone)["features"] = torch.compile(backbone.features)


def seed_dropout(seed: int, step: int, row: int) -> None:
    """Make dropout a function of (seed, step, first row of the micro-batch)."""
    digest = hashlib.blake2b(f"{seed}/dropout/{step}/{row}".encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(digest, "little") >> 1)


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
