"""What stands between the products of a block."""

import torch
from torch.nn import functional as F

from unmask.backbones.products import gelu


def test_gelu_is_the_same_with_and_without_gradients():
    x = torch.linspace(-12, 12, 3 * 2**16 + 32)
    expected = F.gelu(x.double(), approximate="tanh")
    with torch.no_grad():
        torch.testing.assert_close(gelu(x.clone()).double(), expected, atol=1e-6, rtol=1e-6)
        half = x.bfloat16()  # rounded once, at the end
        assert torch.equal(gelu(half.clone()), F.gelu(half, approximate="tanh"))
    torch.testing.assert_close(gelu(x).double(), expected, atol=1e-6, rtol=1e-6)
