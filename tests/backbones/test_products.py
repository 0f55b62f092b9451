"""Operations between the matrix products of a block."""

import pytest
import torch
from torch.nn import functional as F

from unmask.backbones.layers.ops import attend, gelu


def test_gelu_is_the_same_with_and_without_gradients():
    x = torch.linspace(-12, 12, 3 * 2**16 + 32)
    expected = F.gelu(x.double(), approximate="tanh")
    with torch.no_grad():
        torch.testing.assert_close(gelu(x.clone()).double(), expected, atol=1e-6, rtol=1e-6)
        half = x.bfloat16()  # rounded once, at the end
        assert torch.equal(gelu(half.clone()), F.gelu(half, approximate="tanh"))
    torch.testing.assert_close(gelu(x).double(), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_gelu_traced_at_one_size_serves_another():
    x = torch.linspace(-6, 6, 2**17)
    with torch.no_grad():
        traced = torch.jit.trace(lambda x: gelu(x.clone()), x[:8])
        torch.testing.assert_close(traced(x), F.gelu(x, approximate="tanh"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"mask": torch.arange(24)[None] < 20},
        {"mask": torch.linspace(-2, 2, 24 * 24).view(24, 24).bfloat16()},
    ],
)
def test_attention_of_short_rows_trains_without_rounding_in_bf16(options):
    torch.manual_seed(0)
    qkv = [torch.randn(2, 3, 24, 16).bfloat16().requires_grad_() for _ in range(3)]
    exact = [part.detach().double().requires_grad_() for part in qkv]
    with torch.autocast("cpu", torch.bfloat16):
        y = attend(*qkv, **options)
    assert y.dtype == torch.bfloat16
    mask = options.get("mask")
    if mask is not None and mask.is_floating_point():
        options = {"mask": mask.double()}
    wanted = attend(*exact, **options)
    torch.testing.assert_close(y.double(), wanted, atol=1e-6, rtol=2**-8)  # rounded once
    wanted.pow(2).sum().backward()
    y.double().pow(2).sum().backward()
    for part, reference in zip(qkv, exact, strict=True):
        torch.testing.assert_close(part.grad.double(), reference.grad, atol=0.03, rtol=0.02)
