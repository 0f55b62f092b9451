"""What losses read of logits: value and gradient are those of logsumexp and gather."""

import math

import pytest
import torch

from unmask.methods.head import summary

IDS = torch.tensor([[0, 6], [3, 6], [6, 2], [5, 5]])


def leaf(**changes: float) -> torch.Tensor:
    logits = 30 * torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for column, value in changes.items():
        logits[:, int(column[1:])] = value
    return logits.requires_grad_()


@pytest.mark.parametrize("changes", [{}, {"_4": -math.inf}, {"_1": 500.0}, {"_2": -5000.0}])
def test_it_is_logsumexp_and_gather_in_value_and_gradient(changes):
    ours, theirs = leaf(**changes), leaf(**changes)
    total, chosen = summary(ours, IDS)
    torch.testing.assert_close(total, theirs.logsumexp(-1))
    torch.testing.assert_close(chosen, theirs.gather(-1, IDS))
    weights = torch.arange(1.0, 5.0, dtype=torch.float64)
    (weights * (total.square() - chosen[:, 0] * chosen[:, 1])).sum().backward()
    total, chosen = theirs.logsumexp(-1), theirs.gather(-1, IDS)
    (weights * (total.square() - chosen[:, 0] * chosen[:, 1])).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_second_backward_is_refused_rather_than_wrong():
    total, _ = summary(leaf(), IDS)
    total.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.sum().backward()
