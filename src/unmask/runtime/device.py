"""Devices, their precisions, and copies of tensors to them."""

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from unmask.errors import UnmaskError, UnmaskWarning, unknown

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def resolve_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the fastest device of this machine."""
    known = _devices()
    if name == "auto":
        name = known[0]
    if name not in known:
        usable = ["auto", "cpu", *known[:-1]]
        raise UnmaskError(f"device {name!r} is not on this machine: use {' or '.join(usable)}")
    return torch.device(name)


def _devices() -> list[str]:
    """The devices of this machine, the fastest first."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [*(device for device, exists in available.items() if exists), "cpu"]


def native_precisions(device: torch.device) -> tuple[str, ...]:
    """The precisions that the device has in hardware, the fastest first."""
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        native = _cpu_computes_bf16()
    else:
        native = False
    return ("bf16", "fp32") if native else ("fp32",)


def resolve_precision(name: str, device: torch.device) -> str:
    """The precision called `name`; "auto" is the fastest one that the device has in hardware.

    A precision that the device emulates is slow and gives a warning.
    """
    native = native_precisions(device)
    if name == "auto":
        return native[0]
    if name not in PRECISIONS:
        raise unknown("precision", name, ["auto", *PRECISIONS])
    if name not in native and device.type != "mps":
        machine = "CPU" if device.type == "cpu" else "GPU"
        warnings.warn(
            f"this {machine} emulates {name}, which is slow: precision auto takes {native[0]}",
            UnmaskWarning,
            stacklevel=2,
        )
    return name


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """torch's autocast for the precision bf16; a context without effect for fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


class _WithoutOneDNN:
    """Context manager that switches oneDNN off while any thread is inside it."""

    def __init__(self) -> None:
        self._lock, self._users, self._before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._before = torch._C._get_mkldnn_enabled()
                torch._C._set_mkldnn_enabled(False)
            self._users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                torch._C._set_mkldnn_enabled(self._before)


_without_onednn = _WithoutOneDNN()


def emulation(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """A context that switches oneDNN off if the CPU emulates the precision.

    oneDNN cannot compute such products. torch would print thirty lines at the first one. It would
    also switch oneDNN off for the whole process, and later fp32 products would round differently.
    """
    emulated = device.type == "cpu" and precision not in native_precisions(device)
    return _without_onednn if emulated else nullcontext()


def to_device(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The tensor on the device. A copy from the CPU to a GPU is asynchronous."""
    tensor = tensor if dtype is None else tensor.to(dtype)
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """A context of deterministic kernels; an operation without such a kernel raises an error."""
    before = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs this variable
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)


def _cpu_computes_bf16() -> bool:
    """True if the CPU has instructions for bf16 matrix products, which oneDNN uses."""
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    # oneDNN reports support on any AVX-512 CPU, but computes in fp32 without the instructions
    x86 = torch.cpu._is_avx2_supported()
    return not x86 or torch.cpu._is_avx512_bf16_supported()
