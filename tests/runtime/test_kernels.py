"""The kernels compute what plain torch does: on a GPU, or else as Triton's interpreter runs them."""

import math

import pytest
import torch

from unmask.diffusion.categorical import draw
from unmask.errors import UnmaskWarning

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DRAWN = 60 if DEVICE == "cuda" else 15  # rows, which the interpreter takes one by one
pytest.importorskip("triton")

from unmask.runtime.kernels import (  # noqa: E402
    availability,
    categorical_draw,
    vocabulary_loss,
)


def logits(size: int, dtype: torch.dtype, rows: int = 33) -> torch.Tensor:
    """Rows inside of longer ones, some entries impossible."""
    generator = torch.Generator().manual_seed(size)
    x = 5 * torch.randn(rows, size + 3, generator=generator)
    x[:, size // 3] = -math.inf
    return x.to(DEVICE, dtype)[:, :size]


def chosen(size: int, rows: int = 33) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, size, (rows, 2), generator=generator)
    return torch.where(ids == size // 3, 0, ids).to(DEVICE)


SIZES = pytest.mark.parametrize("size", [7, 1024, 2500])
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@SIZES
@TYPES
def test_a_summary_is_logsumexp_and_gather(size, dtype):
    x, ids = logits(size, dtype), chosen(size)
    total, at_ids = vocabulary_loss.summarise(x, ids)
    torch.testing.assert_close(total, x.float().logsumexp(-1))
    torch.testing.assert_close(at_ids, x.float().gather(-1, ids))


@pytest.mark.parametrize(
    ("size", "dtype", "biased"),
    [
        *((7, torch.float32, True), (1024, torch.bfloat16, True)),
        *((2500, torch.float32, True), (2500, torch.bfloat16, False)),
    ],
)
def test_a_gradient_is_the_softmax_with_entries_changed(size, dtype, biased):
    x, ids = logits(size, dtype), chosen(size)
    weights = torch.linspace(-1, 2, 3 * len(x), device=DEVICE).view(-1, 3)
    d_total, d_chosen = weights[:, 0].contiguous(), weights[:, 1:].contiguous()
    d_bias = torch.ones(size, device=DEVICE) if biased else None
    expected = x.float().softmax(-1) * d_total[:, None]
    expected = expected.scatter_add(-1, ids, d_chosen)
    total, _ = vocabulary_loss.summarise(x, ids)
    vocabulary_loss.differentiate_(x, ids, total, d_total, d_chosen, d_bias)
    torch.testing.assert_close(
        x.float(), expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-5
    )
    if d_bias is not None:
        torch.testing.assert_close(d_bias, 1 + expected.sum(0), rtol=1e-3, atol=1e-4)


def test_no_rows_are_no_work():
    x, ids = logits(7, torch.float32, 0), chosen(7, 0)
    total, at_ids = vocabulary_loss.summarise(x, ids)
    vocabulary_loss.differentiate_(x, ids, total, total, at_ids, None)
    assert len(total) == len(categorical_draw.draw(x, total.double())) == 0


@pytest.mark.parametrize(
    ("size", "sharpness"),
    [(7, 1.0), (1024, 30.0), (1025, 0.0), (1025, 1.0), (5000, 0.0), (5000, 30.0)],
)
def test_tokens_drawn_are_those_that_torch_draws(size, sharpness):
    generator = torch.Generator().manual_seed(2)
    x = sharpness * torch.randn(DRAWN, size, generator=generator)
    x[:, size // 3 : size // 2] = -math.inf
    x = x.log_softmax(-1)
    uniforms = torch.rand(DRAWN, generator=generator, dtype=torch.float64)
    uniforms[:3] = torch.tensor([0.0, 0.5, 1 - 2.0**-53], dtype=torch.float64)
    tokens = categorical_draw.draw(x.to(DEVICE), uniforms.to(DEVICE)).cpu()
    # where the target falls on a border, either side of it is right
    assert torch.equal(tokens[3:], draw(x, uniforms)[3:])
    assert x.gather(1, tokens[:, None]).isfinite().all()


def test_the_last_token_with_mass_ends_every_row():
    x = torch.full((2, 3000), -math.inf)
    x[0, 5], x[1, 2999] = 0.0, 0.0
    for u in (0.0, 0.3, 1 - 2.0**-53):
        uniforms = torch.full((2,), u, dtype=torch.float64)
        assert categorical_draw.draw(x.to(DEVICE), uniforms.to(DEVICE)).tolist() == [5, 2999]


def test_a_constant_in_graphs_has_the_mark_of_torch():
    def constant() -> bool:
        return True

    mark = vars(torch.compiler.assume_constant_result(lambda: True))
    assert mark and vars(availability.constant_in_graphs(constant)) == mark


def test_without_a_c_compiler_torch_does_the_work_of_kernels(monkeypatch):
    def draw(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler.\nPlease specify one")

    monkeypatch.setattr(categorical_draw, "draw", draw)
    monkeypatch.setattr(availability.torch, "zeros", lambda *shape, device: torch.ones(shape))
    with pytest.warns(
        UnmaskWarning, match=r"does not run \(Failed to find C compiler.\), so plain"
    ):
        assert not availability.kernels_available.__wrapped__()
