"""The kernels of scan, convolution and gate compute what plain torch does."""

import pytest
import torch

from unmask.errors import UnmaskWarning
from unmask.extensions.dna.layers import gated_sum as gates
from unmask.extensions.dna.layers import short_convolution as convolutions
from unmask.runtime.kernels import availability

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytest.importorskip("triton")

from unmask.extensions.dna.kernels import convolution, recurrence, scan_kernels  # noqa: E402


def with_gradients(function, parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """The result of a function, and the gradients of a weighted sum of it."""
    parts = [part.detach().requires_grad_() for part in parts]
    found = function(*parts)
    weights = torch.arange(1.0, found.numel() + 1).sin().bfloat16()  # exact in each precision
    weights = weights.view_as(found).to(found.device, found.dtype)
    return [found, *torch.autograd.grad(found, parts, weights)]


def assert_kernels_agree(function, parts, expected, dtype=torch.float32) -> None:
    """The function computes what is expected, in values and gradients, up to rounding."""
    found = with_gradients(function, [part.to(DEVICE, dtype) for part in parts])
    wanted = with_gradients(expected, [part.to(dtype).double() for part in parts])
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == dtype
        scale = limit * float(theirs.detach().abs().max())
        torch.testing.assert_close(ours.double().cpu(), theirs, rtol=limit, atol=scale)


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize(
    ("width", "length", "channels", "start", "silu"),
    [
        *((4, 37, 12, 0, True), (4, 4, 3, 3, True), (1, 9, 8, 0, True)),
        *((2, 17, 130, 1, False), (8, 5, 4, 0, True)),
    ],
)
def test_a_short_convolution_is_its_sum(width, length, channels, start, silu, flipped, monkeypatch):
    monkeypatch.setattr(convolution, "STEPS", 16)
    monkeypatch.setattr(convolution, "AHEAD", 4)
    torch.manual_seed(length)
    both = torch.randn(2, length, 2 * channels)
    weight, bias = torch.randn(channels, width), torch.randn(channels)

    def kernels(both, weight, bias):
        return convolutions._convolution(both.chunk(2, -1)[1], weight, bias, start, flipped, silu)

    def plain(both, weight, bias):
        u = both.chunk(2, -1)[1]
        return convolutions.short_convolution(u, weight, bias, start, flipped, silu)

    def conv1d(both, weight, bias):
        u = both.chunk(2, -1)[1].transpose(1, 2)
        u = torch.nn.functional.pad(u.flip(2) if flipped else u, (width - 1, 0))
        y = torch.nn.functional.conv1d(u, weight[:, None], bias, groups=channels)
        return (torch.nn.functional.silu(y) if silu else y).transpose(1, 2)[:, start:]

    parts = [both, weight, bias]
    assert_kernels_agree(kernels, parts, conv1d)
    assert_kernels_agree(plain, parts, conv1d)
    if not flipped:
        assert_kernels_agree(kernels, parts, conv1d, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("length", "channels", "directions"), [(13, 12, 1), (70, 5, 2), (3, 130, 2)]
)
def test_a_gated_sum_is_its_formula(length, channels, directions, dtype):
    torch.manual_seed(length)
    both = torch.randn(2, length, 2 * channels)
    rows = [torch.randn(2, length, channels) for _ in range(2 * directions)]
    parts = [both, *rows, torch.randn(directions, channels)]

    def kernels(both, *rest):
        *rows, D = rest
        flat = [x for i in range(directions) for x in (*rows[2 * i : 2 * i + 2], D[i])]
        return gates._gated(both.chunk(2, -1)[1], flat)

    def plain(both, *rest):
        *rows, D = rest
        found = [(*rows[2 * i : 2 * i + 2], D[i]) for i in range(directions)]
        return gates.gated_sum(both.chunk(2, -1)[1], found)

    def formula(both, *rest):
        *rows, D = rest
        z = both[..., channels:]
        total = rows[0] + D[0] * rows[1]
        if directions == 2:
            total = total + (rows[2] + D[1] * rows[3]).flip(1)
        return total * z * z.sigmoid()

    assert_kernels_agree(kernels, parts, formula, dtype)
    assert_kernels_agree(plain, parts, formula)


@pytest.mark.parametrize(
    ("kernels", "available"),
    [
        (recurrence, scan_kernels.scan_kernels_available),
        (convolution, scan_kernels.block_kernels_available),
    ],
)
def test_a_part_whose_kernels_fail_runs_in_torch(kernels, available, monkeypatch):
    def forward(*_: object) -> None:
        raise RuntimeError("PassManager::run failed")

    monkeypatch.setattr(kernels, "forward", forward)
    monkeypatch.setattr(scan_kernels, "kernels_available", lambda: True)
    monkeypatch.setattr(availability.torch, "zeros", lambda *shape, device: torch.ones(shape))
    with pytest.warns(UnmaskWarning, match=r"do not run \(PassManager::run failed\), so plain"):
        assert not available.__wrapped__()
