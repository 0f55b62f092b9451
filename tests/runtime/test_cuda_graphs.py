"""Functions padded to few shapes have the results of the exact shapes,
and are CUDA graphs on a GPU.
"""

import pytest
import torch

from unmask.errors import UnmaskWarning
from unmask.runtime import cuda_graphs as replay
from unmask.runtime.cuda_graphs import WARM_UP, CudaGraph, CudaGraphs, doubled, rounded
from unmask.runtime.device import to_device

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.mark.parametrize(("size", "most"), [(rounded, 1.25), (doubled, 2)])
def test_sizes_are_few_and_little_larger(size, most):
    found = {count: size(count) for count in range(1, 1025)}
    assert all(count <= padded < most * count + 1e-9 for count, padded in found.items())
    assert all(size(padded) == padded for padded in found.values())
    assert len(set(found.values())) <= 36
    assert size(1) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_results_depend_only_on_the_inputs_for_any_number_of_calls(device):
    seen = []

    def lengths(x, table):
        seen.append((tuple(x.shape), tuple(table.shape)))
        return (x[:, None] * table.sum()).cumsum(1)

    measure = CudaGraph(lengths)
    results = []
    for call in range(WARM_UP + 4):
        x = torch.arange(1.0, 4 + call % 2, device=device) + call
        table = torch.ones(2, 3, device=device)
        results.append((measure([x, table], [4, 2], len(x)), (x * 6)[:, None]))
    for found, expected in results:  # none was overwritten by a later call
        assert torch.equal(found, expected)
    assert set(seen) == {((4,), (2, 3))}
    # once more on a GPU, where it is captured
    assert len(seen) == WARM_UP + (4 if device == "cpu" else 1)


def test_the_number_of_kept_shapes_is_limited(monkeypatch):
    monkeypatch.setattr(replay, "MOST_SHAPES", 3)
    double = CudaGraph(lambda x: 2 * x)
    for size in (4, 5, 6, 7, 4, 5):
        assert double([torch.ones(2)], [size], 2).tolist() == [2.0, 2.0]
        assert len(double._shapes) <= 3


def test_the_number_of_kept_functions_is_limited(monkeypatch):
    monkeypatch.setattr(replay, "MOST_FUNCTIONS", 2)
    kept = CudaGraphs()
    first = kept(1, lambda x: x)
    assert kept(1, lambda x: 2 * x) is first
    for key in (2, 3):
        kept(key, lambda x: x)
    assert len(kept._kept) == 2
    assert kept(1, lambda x: x) is not first


@needs_gpu
def test_a_function_that_cannot_be_captured_is_called():
    scale = CudaGraph(lambda x: x * float(x.sum()))
    for call in range(WARM_UP + 3):
        x = torch.full((2,), call + 1.0, device="cuda")
        assert torch.equal(scale([x], [2], 2), 2 * x * x)


def test_a_function_whose_capture_fails_is_called(monkeypatch):
    def refused():
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", refused)
    x = torch.ones(2)
    double = replay._FixedShape(lambda x: 2 * x, [x], [(2,)])
    double._capturable, double._calls = True, WARM_UP  # as on a GPU after the first calls
    with pytest.warns(UnmaskWarning, match=r"could be captured \(operation not .* capturing\)"):
        assert double([x]).tolist() == [2.0, 2.0]
    assert double([2 * x]).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("device", DEVICES)
def test_a_tensor_is_sent(device):
    x = torch.arange(5)
    assert torch.equal(to_device(x, torch.device(device)).cpu(), x)
