"""The selective scan is the recurrence of its definition, in values and gradients."""

import pytest
import torch

from unmask.extensions.dna.layers import selective_scan as scans
from unmask.extensions.dna.layers.selective_scan import selective_scan

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def sequential(u, delta, A, B, C, state):
    """The definition, position by position."""
    outputs = []
    for t in range(u.shape[1]):
        decay = torch.exp(delta[:, t, None] * A.t())
        state = decay * state + (delta * u)[:, t, None] * B[:, t, :, None]
        outputs.append((C[:, t, :, None] * state).sum(1))
    return torch.stack(outputs, 1), state


def inputs(length: int, step: float, rows: int = 2, channels: int = 5, states: int = 3):
    """Random inputs in double precision; some steps are zero, as at padding."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    delta = step * normal(rows, length, channels).abs()
    delta[:, length // 2] = 0
    rates = -normal(channels, states).exp()
    weights = (normal(rows, length, states) for _ in range(2))
    return [
        part.requires_grad_()
        for part in (
            normal(rows, length, channels),
            delta,
            rates,
            *weights,
            normal(rows, states, channels),
        )
    ]


def results(function, parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs, last states, and the gradients of a sum of both, with weights."""
    found = function(*parts)
    weights = [torch.arange(1.0, x.numel() + 1, device=x.device).sin().view_as(x) for x in found]
    loss = sum((x * weight).sum() for x, weight in zip(found, weights, strict=True))
    return [*found, *torch.autograd.grad(loss, parts)]


@pytest.mark.parametrize("step", [0.1, 3.0, 100.0])
@pytest.mark.parametrize(("length", "chunks"), [(1, 0), (2, 2), (7, 3), (37, 1), (37, 5), (65, 0)])
def test_chunks_are_the_sequential_loop(length, chunks, step):
    parts = inputs(length, step)
    expected = results(sequential, parts)
    found = results(lambda *args: selective_scan(*args, chunks=chunks), parts)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("step", "chunks", "channels", "states"), [(0.1, 1, 9, 16), (100.0, 2, 5, 3), (1.0, 3, 3, 17)]
)
def test_kernels_are_the_sequential_loop(step, chunks, channels, states, monkeypatch):
    """On a GPU, or in Triton's interpreter."""
    pytest.importorskip("triton")
    from unmask.extensions.dna.kernels import recurrence

    monkeypatch.setattr(scans, "_passes", lambda kernels: recurrence)
    length = 203
    if DEVICE == "cpu":  # the interpreter needs seconds for tiles of full size
        length = 13
        monkeypatch.setattr(recurrence, "TILE", 4)
        monkeypatch.setattr(recurrence, "PER", 4)
    parts = inputs(length, step, 1 if DEVICE == "cpu" else 2, channels, states)
    expected = results(sequential, parts)
    single = [part.detach().to(DEVICE, torch.float32).requires_grad_() for part in parts]
    found = results(lambda *args: selective_scan(*args, chunks=chunks), single)
    for ours, theirs in zip(found, expected, strict=True):
        scale = 1e-5 * float(theirs.detach().abs().max())
        torch.testing.assert_close(ours.double().cpu(), theirs, rtol=1e-4, atol=scale)


def test_parts_of_a_row_are_the_row():
    u, delta, A, B, C, state = (part.detach() for part in inputs(30, 1.0))
    y, last = selective_scan(u, delta, A, B, C, state)
    pieces = []
    for part in (slice(0, 11), slice(11, 12), slice(12, 30)):
        found, state = selective_scan(u[:, part], delta[:, part], A, B[:, part], C[:, part], state)
        pieces.append(found)
    torch.testing.assert_close(torch.cat(pieces, 1), y)
    torch.testing.assert_close(state, last)


def test_half_precision_is_computed_in_float32():
    u, delta, A, B, C, _ = (part.detach().float() for part in inputs(20, 1.0))
    y, last = selective_scan(u.bfloat16(), delta, A, B.bfloat16(), C.bfloat16())
    assert (y.dtype, last.dtype) == (torch.bfloat16, torch.float32)
    rounded = [part.bfloat16().float() for part in (u, B, C)]
    exact, _ = selective_scan(rounded[0], delta, A, *rounded[1:])
    torch.testing.assert_close(y, exact.bfloat16())


def test_no_tensor_of_all_states_is_kept():
    rows, length, channels, states = 2, 512, 8, 16
    parts = inputs(length, 0.1, rows, channels, states)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append(x.numel()) or x, lambda x: x
    ):
        y, _ = selective_scan(*parts)
    assert sum(kept) < rows * length * channels * states / 2
    assert y.requires_grad


def test_gradients_of_gradients_are_refused():
    u, *rest = inputs(5, 1.0)
    y, _ = selective_scan(u, *rest)
    (d_u,) = torch.autograd.grad(y.square().sum(), u, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        d_u.sum().backward()


def test_mambapy_computes_the_same():
    pscan = pytest.importorskip("mambapy.pscan").pscan
    u, delta, A, B, C, _ = (part.detach() for part in inputs(37, 1.0))
    decays = torch.exp(delta[..., None] * A)
    states = pscan(decays, (delta * u)[..., None] * B[:, :, None])
    expected = (states @ C[..., None])[..., 0]
    torch.testing.assert_close(selective_scan(u, delta, A, B, C)[0], expected)
