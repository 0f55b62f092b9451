"""The kernels of the head's loss agree with plain torch. Needs a GPU."""

import math

import pytest
import torch

from unmask.methods.compute.chunked_loss import head_loss
from unmask.methods.masked_diffusion import cross_entropy

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

TOKENS, WIDTH = 300, 64


def tensors(size: int, device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(TOKENS, WIDTH), (size, WIDTH), (size,)]
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    drawn[2][size // 2] = -math.inf
    return [x.to(device).requires_grad_() for x in drawn]


def inputs(size: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, size // 2, (TOKENS, 2), generator=generator)
    return ids.to(device), torch.rand(TOKENS, generator=generator).to(device)


def loss(total: torch.Tensor, chosen: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A loss of two logits."""
    return weight * (total - chosen[:, 0]) + 0.1 * torch.nn.functional.softplus(chosen[:, 1])


def measured(size: int, device: str, dtype: torch.dtype, token_loss, chunk: int = 0):
    leaves, (ids, weight) = tensors(size, device), inputs(size, device)
    with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        total, losses = head_loss(*leaves, ids, token_loss, weight, chunk=chunk)
    total.backward()
    return [x.cpu() for x in (losses, *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("token_loss", [cross_entropy, loss])
@pytest.mark.parametrize("size", [37, 1000, 20_011])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("chunk", [0, 64])
def test_kernels_agree_with_torch(size, dtype, most, token_loss, chunk):
    ours = measured(size, "cuda", dtype, token_loss, chunk)
    theirs = measured(size, "cpu", torch.float32, token_loss)
    for one, other in zip(ours, theirs, strict=True):
        assert (one - other).norm() <= most * other.norm()


def test_without_gradients_the_value_is_the_same():
    leaves, (ids, weight) = tensors(1000, "cuda"), inputs(1000, "cuda")
    with torch.no_grad():
        _, losses = head_loss(*leaves, ids, cross_entropy, weight, chunk=64)
    theirs = measured(1000, "cpu", torch.float32, cross_entropy)[0]
    torch.testing.assert_close(losses.cpu(), theirs, rtol=1e-4, atol=1e-4)


def test_deterministic_kernels_give_the_same_bits():
    torch.use_deterministic_algorithms(True)
    try:
        first, again = (measured(1000, "cuda", torch.bfloat16, cross_entropy) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
