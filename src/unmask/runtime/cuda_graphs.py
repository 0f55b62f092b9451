"""CUDA graphs of functions of tensors, with inputs padded to few shapes."""

import gc
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskWarning

MOST_SHAPES = 128  # input shapes kept of a function, each with its graph
MOST_FUNCTIONS = 4  # functions kept: one for each setting of the token sampler
WARM_UP = 2  # calls of a shape before its capture, in which kernels are chosen and compiled
# All graphs share a memory pool: a second graph could overwrite a result before it is copied.
_one_at_a_time = Lock()


def rounded(count: int) -> int:
    """`count`, rounded up to one of four sizes between two powers of two."""
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


def doubled(count: int) -> int:
    """`count`, rounded up to a power of two."""
    return 1 << max(0, count - 1).bit_length()


class CudaGraph:
    """A function of tensors with fixed input buffers for each shape.

    On a GPU, the first calls of a shape run as usual. Later calls replay a CUDA graph, with one
    launch for all kernels. A buffer's rows beyond the input keep values of earlier calls.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self._function = function
        self._shapes: dict[tuple[Any, ...], _FixedShape] = {}

    def __reduce__(self) -> tuple[type["CudaGraph"], tuple[Callable[..., Tensor]]]:
        """A copy has no graphs and captures its own."""
        return CudaGraph, (self._function,)

    def __call__(self, inputs: Sequence[Tensor], sizes: Sequence[int], kept: int) -> Tensor:
        """The first `kept` rows of the result, with input i padded to sizes[i] rows."""
        shapes = [(size, *x.shape[1:]) for x, size in zip(inputs, sizes, strict=True)]
        key = (*shapes, *(x.dtype for x in inputs))
        with _one_at_a_time:
            if key not in self._shapes:
                if len(self._shapes) >= MOST_SHAPES:
                    del self._shapes[next(iter(self._shapes))]
                self._shapes[key] = _FixedShape(self._function, inputs, shapes)
            return self._shapes[key](inputs)[:kept].clone()


class CudaGraphs:
    """Graphs of several functions, by key; the last few are kept for the next call."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, CudaGraph] = {}

    def __call__(self, key: Hashable, function: Callable[..., Tensor]) -> CudaGraph:
        """The graph of `function`, or the existing graph of the key."""
        if key not in self._kept:
            while len(self._kept) >= MOST_FUNCTIONS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = CudaGraph(function)
        return self._kept[key]


class _FixedShape:
    """A function with input buffers of one shape, and its CUDA graph."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        inputs: Sequence[Tensor],
        shapes: Sequence[tuple[int, ...]],
    ) -> None:
        self._function = function
        with torch.inference_mode(False):  # otherwise only inference mode could write them
            self._inputs = [
                torch.zeros(shape, dtype=x.dtype, device=x.device)
                for x, shape in zip(inputs, shapes, strict=True)
            ]
        self._calls, self._capturable = 0, inputs[0].is_cuda
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        for buffer, x in zip(self._inputs, inputs, strict=True):
            (buffer if len(buffer) == len(x) else buffer[: len(x)]).copy_(x, non_blocking=True)
        if self._graph is None and self._capturable:
            self._calls += 1
            if self._calls == WARM_UP:
                try:
                    return self._without_synchronizing()
                except RuntimeError:
                    self._capturable = False
            elif self._calls > WARM_UP:
                try:
                    self._capture()
                except RuntimeError as error:
                    self._capturable = False
                    reason = (str(error).splitlines() or [type(error).__name__])[0]
                    message = f"no CUDA graph could be captured ({reason}): steps are slower"
                    warnings.warn(message, UnmaskWarning, stacklevel=2)
        if self._graph is None:
            return self._function(*self._inputs)
        self._graph.replay()
        return self._result

    def _without_synchronizing(self) -> Tensor:
        """The result; an error if the function makes the CPU wait for the GPU:
        no graph can hold it.
        """
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        try:
            return self._function(*self._inputs)
        finally:
            torch.cuda.set_sync_debug_mode(mode)

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # a release of memory during the capture would break the graph
        try:
            # thread_local: other threads may use the device during the capture
            with torch.cuda.graph(graph, pool=_pool(), capture_error_mode="thread_local"):
                self._result = self._function(*self._inputs)
        finally:
            if collecting:
                gc.enable()
        self._graph = graph


@cache
def _keeper() -> torch.cuda.CUDAGraph:
    """A small graph that is never dropped, so that the shared memory pool stays allocated."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        torch.zeros(1, device="cuda")
    return graph


def _pool() -> Any:
    """The memory pool of all graphs, which run one after the other."""
    return _keeper().pool()
