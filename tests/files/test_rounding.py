"""Weights of 4 bits, with and without the inputs of their layer."""

import pytest
import torch

from unmask.files.rounding import GROUP, expand, quantize


def rounded(weight: torch.Tensor, products: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
    return expand(quantize({"w": weight}, "int4", products), "here")["w"]


def test_all_sixteen_steps_are_kept():
    scale = torch.tensor([0.5, -0.25]).repeat_interleave(GROUP)
    weight = (torch.arange(-8, 8).repeat(2 * GROUP // 16) * scale)[None]
    assert torch.equal(rounded(weight), weight)
    assert torch.equal(rounded(torch.zeros(3, GROUP)), torch.zeros(3, GROUP))


def test_a_large_weight_is_clipped_if_the_others_gain_by_it():
    torch.manual_seed(0)
    weight = torch.randn(64, 4 * GROUP)
    plain = weight.view(-1, GROUP)
    scale = plain.gather(1, plain.abs().argmax(1, keepdim=True)) / -8
    plain = ((plain / scale).round().clamp(-8, 7) * scale).view_as(weight)
    assert (rounded(weight) - weight).square().sum() < 0.97 * (plain - weight).square().sum()


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_correlated_inputs_make_up_for_the_error_of_each_weight(share):
    torch.manual_seed(0)
    weight = torch.randn(48, 3 * GROUP)
    inputs = (1 - share) * torch.randn(400, 3 * GROUP) + share * torch.randn(400, 1)
    inputs = inputs * torch.rand(3 * GROUP)  # some inputs are small
    errors = [
        (inputs @ (rounded(weight, products) - weight).T).square().sum()
        for products in (None, {"w": inputs.T @ inputs})
    ]
    assert errors[1] < (0.8 if share else 1) * errors[0]


def test_a_matrix_of_another_width_has_8_bits():
    stored = quantize({"w": torch.randn(4, GROUP + 1), "b": torch.randn(4)}, "int4")
    kinds = {name: tensor.dtype for name, tensor in stored.items()}
    assert kinds == {"w": torch.int8, "w_scale": torch.float32, "b": torch.bfloat16}
