"""Operations between the matrix products of a block."""

import pytest
import torch
from torch.nn import functional as F

from unmask.backbones.layers.ops import gelu


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
