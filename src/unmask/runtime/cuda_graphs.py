"""Functions of tensors at few shapes: padded up to a size, and on a GPU captured once and replayed."""

import gc
import warnings
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

MOST_SHAPES = 128  # that are kept, each with its graph
MOST_FUNCTIONS = 4  # that are kept: one for each manner of drawing
WARM_UP = 2  # calls of a shape before it is captured: kernels are chosen and compiled in them
# graphs share memory: another one's run would overwrite a result that is still to be copied
_one_at_a_time = Lock()


def rounded(count: int) -> int:
    """`count` or a little more, so that few sizes occur: four from one power of two to the next."""
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


def doubled(count: int) -> int:
    """The next power of two."""
    return 1 << max(0, count - 1).bit_length()


class CudaGraph:
    """A function of tensors that reads its inputs from fixed places in memory, one set a shape.

    On a GPU all but the first calls of a shape replay a graph of its kernels, so that the host
    launches once, however many they are. What lies behind the inputs is left over from other calls.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self._function = function
        self._shapes: dict[tuple[Any, ...], _Fixed] = {}

    def __reduce__(self) -> tuple[type["CudaGraph"], tuple[Callable[..., Tensor]]]:
        """A copy captures for itself."""
        return CudaGraph, (self._function,)

    def __call__(self, inputs: Sequence[Tensor], sizes: Sequence[int], kept: int) -> Tensor:
        """The first `kept` rows of the result, where input i has sizes[i] rows, its own first."""
        shapes = [(size, *x.shape[1:]) for x, size in zip(inputs, sizes, strict=True)]
        key = (*shapes, *(x.dtype for x in inputs))
        with _one_at_a_time:
            if key not in self._shapes:
                if len(self._shapes) >= MOST_SHAPES:
                    del self._shapes[next(iter(self._shapes))]
                self._shapes[key] = _Fixed(self._function, inputs, shapes)
            return self._shapes[key](inputs)[:kept].clone()


class CudaGraphs:
    """Functions at few shapes by what tells them apart; the last few are kept for the next call."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, CudaGraph] = {}

    def __call__(self, key: Hashable, function: Callable[..., Tensor]) -> CudaGraph:
        """The function of this key, as it was first given."""
        if key not in self._kept:
            while len(self._kept) >= MOST_FUNCTIONS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = CudaGraph(function)
        return self._kept[key]


class _Fixed:
    """A function at one shape."""

    def __init__(
        self,
        function: Callable[..., Tensor],
        inputs: Sequence[Tensor],
        shapes: Sequence[tuple[int, ...]],
    ) -> None:
        self._function = function
        with torch.inference_mode(False):  # so that they can be written in any mode
            self._inputs = [
                torch.zeros(shape, dtype=x.dtype, device=x.device)
                for x, shape in zip(inputs, shapes, strict=True)
            ]
        self._calls, self._capturable = 0, inputs[0].is_cuda
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Tensor

    def __call__(self, inputs: Sequence[Tensor]) -> Tensor:
        for held, x in zip(self._inputs, inputs, strict=True):
            (held if len(held) == len(x) else held[: len(x)]).copy_(x, non_blocking=True)
        if self._graph is None and self._capturable:
            self._calls += 1
            if self._calls == WARM_UP:
                self._capturable = not self._waits()
            elif self._calls > WARM_UP:
                self._capture()
        if self._graph is None:
            return self._function(*self._inputs)
        self._graph.replay()
        return self._result

    def _waits(self) -> bool:
        """Does the function make the host wait for the device? Then it cannot be captured."""
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls the mode a prototype
            torch.cuda.set_sync_debug_mode("error")
        try:
            self._function(*self._inputs)
        except RuntimeError:
            return True
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        return False

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # memory that is given back meanwhile would spoil the graph
        try:
            # what other threads do on the device is none of its business
            with torch.cuda.graph(graph, pool=_pool(), capture_error_mode="thread_local"):
                self._result = self._function(*self._inputs)
        finally:
            if collecting:
                gc.enable()
        self._graph = graph


@cache
def _first() -> torch.cuda.CUDAGraph:
    """A graph of next to nothing that is never dropped: memory that no graph used would be given back."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        torch.zeros(1, device="cuda")
    return graph


def _pool() -> Any:
    """The memory that all graphs share: they run one after the other, and each keeps its result."""
    return _first().pool()
