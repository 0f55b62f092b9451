"""A labelled model as a classifier of noisy text, and its gradients with respect to tokens."""

from types import SimpleNamespace

import pytest
import torch
from builders import small_method
from torch.nn.functional import one_hot

from unmask.errors import UnmaskError
from unmask.methods.token_classifier import TokenClassifier

MASK, LABELS = 10, (7, 8, 9)
TEXT = torch.tensor([[5, 10, 2, 10, 1], [10, 3, 10, 10, 6], [7, 10, 10, 10, 10]])
TIMES = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)
AT = (torch.tensor([0, 0, 1, 2, 2, 0]), torch.tensor([1, 3, 2, 4, 1, 2]))


def classifier(name: str = "mdlm", label: int = 8) -> TokenClassifier:
    return TokenClassifier(small_method(name).double(), label, LABELS)


@pytest.mark.parametrize("name", ["mdlm", "sedd"])
def test_the_likelihood_is_the_denoiser_at_the_class_position_over_the_classes(name):
    method = small_method(name).double()
    masked = TEXT.clone()
    masked[:, 0] = MASK
    rows = torch.arange(3)
    among = method.log_x_theta(masked, TIMES, (rows, 0 * rows))[:, LABELS].log_softmax(-1)
    for index, label in enumerate(LABELS):
        found = TokenClassifier(method, label, set(LABELS))(TEXT, TIMES)
        torch.testing.assert_close(found.float(), among[:, index])


@pytest.mark.parametrize("name", ["mdlm", "sedd", "d3pm"])
def test_gradients_equal_finite_differences_over_one_hot_tokens(name):
    guide = classifier(name)
    embedding = guide._method.backbone.embedding
    mixture = one_hot(TEXT.index_fill(1, torch.tensor(0), MASK), 11).double()
    replaced = embedding.register_forward_hook(lambda *_: mixture @ embedding.weight)
    small = 1e-5
    expected = torch.empty(len(AT[0]), 11, dtype=torch.float64)
    with torch.no_grad():
        for index, (row, column) in enumerate(zip(*AT, strict=True)):
            for token in range(11):
                ends = []
                for step in (small, -small):
                    mixture[row, column, token] += step
                    ends.append(guide(TEXT, TIMES)[row])
                    mixture[row, column, token] -= step
                expected[index, token] = (ends[0] - ends[1]) / (2 * small)
    replaced.remove()
    assert expected.abs().max() > 1e-2
    torch.testing.assert_close(guide.slopes(TEXT, TIMES, AT), expected, rtol=1e-5, atol=1e-8)


def test_gradients_in_inference_mode_and_row_by_row():
    guide = classifier("sedd")
    scale = torch.ones((), requires_grad=True)  # a schedule with weights, which gets no gradient
    guide._method.schedule = SimpleNamespace(sigma=lambda t: scale * t)
    expected = guide.slopes(TEXT, TIMES, AT)
    assert not expected.requires_grad
    with torch.inference_mode():
        z, t, at = TEXT.clone(), TIMES.clone(), tuple(part.clone() for part in AT)
        assert torch.equal(guide.slopes(z, t, at), expected)
        assert torch.equal(z, TEXT)
    assert all(parameter.grad is None for parameter in guide._method.parameters())
    for row in range(3):
        here = AT[0] == row
        alone = guide.slopes(TEXT[[row]], TIMES[[row]], (AT[0][here] * 0, AT[1][here]))
        torch.testing.assert_close(alone, expected[here])


def test_an_autoregressive_model_is_no_such_classifier():
    with pytest.raises(UnmaskError, match="this guide cannot classify a noisy text"):
        TokenClassifier(small_method("autoregressive"), 8, LABELS)
