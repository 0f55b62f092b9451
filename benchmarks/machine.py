"""Matrix rate, bandwidth, clock and peak memory of a machine."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
GIB = 1 << 30


def matrix_rate(size: int = 8192, repeats: int = 300) -> float:
    """Operations per second of a matrix product of random numbers, in bf16 on a GPU and fp32 on a CPU."""
    dtype = torch.float32 if DEVICE.type == "cpu" else torch.bfloat16  # few CPUs compute bf16
    a, b = (torch.randn(size, size, device=DEVICE, dtype=dtype) for _ in range(2))
    product = torch.empty_like(a)
    seconds = median_seconds(lambda: torch.mm(a, b, out=product), repeats)
    return 2 * size**3 / seconds


def copy_bandwidth(size: int = 1 << 30, repeats: int = 50) -> float:
    """Bytes per second, read and written, of a copy in the device's memory, by the median time."""
    source = torch.randint(0, 256, (size,), device=DEVICE, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * size / median_seconds(lambda: target.copy_(source), repeats)


def median_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Median seconds of some work. On a GPU, calls follow each other without a wait for the device."""
    for _ in range(repeats // 5 + 1):
        work()
    if DEVICE.type == "cpu":
        return statistics.median(wall_seconds(work) for _ in range(repeats))
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for begin, end in pairs:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) / 1e3 for begin, end in pairs)


def wall_seconds(work: Callable[[], Any]) -> float:
    """Wall-clock seconds of some work, including the device's work."""
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def reset_peak() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_gib() -> float | None:
    """Peak memory since the last reset, of tensors and of CUDA graphs; None on a CPU.

    A replay of a graph uses memory that its capture reserved and that counts as free afterwards.
    """
    if DEVICE.type != "cuda":
        return None
    graphs = [
        each["total_size"] - each["allocated_size"]
        for each in torch.cuda.memory_snapshot()
        if tuple(each["segment_pool_id"]) != (0, 0)
    ]
    return (torch.cuda.max_memory_allocated() + sum(graphs)) / GIB


@contextmanager
def alone() -> Iterator[None]:
    """Frees memory and compiled code before and after a measurement."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    torch.compiler.reset()
    gc.collect()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    reset_peak()


def machine_row(tiny: bool) -> dict[str, Any]:
    """The row of the machine itself. The floors of other rows are computed from it."""
    if tiny:
        rate = matrix_rate(256, 5)
    else:  # a CPU would multiply the large matrices for an hour
        rate = matrix_rate(1024, 10) if DEVICE.type == "cpu" else matrix_rate()
    bandwidth = copy_bandwidth(1 << 20, 5) if tiny else copy_bandwidth()
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU"
    return {
        "row": "machine",
        "device": name,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "matrix_tflops": rate / 1e12,
        "copy_gb_per_second": bandwidth / 1e9,
    }
