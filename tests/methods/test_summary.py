"""The summary of logits that losses read has the value and gradient of logsumexp and gather,
also at extremes.
"""

import math

import pytest
import torch

from unmask.methods.compute.chunked_loss import head_loss

IDS = torch.tensor([[0, 6], [3, 6], [6, 2], [5, 5]])
WEIGHTS = torch.arange(1.0, 5.0)


def leaf(**changes: float) -> torch.Tensor:
    logits = 30 * torch.randn(4, 7, generator=torch.Generator().manual_seed(0))
    for column, value in changes.items():
        logits[:, int(column[1:])] = value
    return logits.requires_grad_()


def loss(total: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return weights * (total.square() - chosen[:, 0] * chosen[:, 1])


@pytest.mark.parametrize("changes", [{}, {"_1": 500.0}, {"_2": -5000.0}])
@pytest.mark.parametrize("closed", [None, 4])
def test_value_and_gradient_are_those_of_logsumexp_and_gather(changes, closed):
    bias = torch.zeros(7)
    if closed is not None:
        bias[closed] = -math.inf
    ours, theirs = leaf(**changes), leaf(**changes)
    total, _ = head_loss(ours, torch.eye(7), bias, IDS, loss, WEIGHTS)
    total.backward()
    logits = theirs + bias
    expected = loss(logits.logsumexp(-1), logits.gather(-1, IDS), WEIGHTS).sum()
    expected.backward()
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_second_backward_is_refused_rather_than_wrong():
    total, _ = head_loss(leaf(), torch.eye(7), torch.zeros(7), IDS, loss, WEIGHTS)
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()
