"""Given tokens are read, never masked and have no loss; without them nothing changes to the bit."""

import pytest
import torch
from builders import WRITERS, schedule, small_method

from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.methods.method import METHODS
from unmask.randomness import RowStream
from unmask.shapes import Batch, targets

NAMES = WRITERS
BOUNDS = [name for name in NAMES if METHODS[name].certificate != "none"]
ROWS, LENGTH, SIZE = 6, 10, 11
X = torch.randint(1, SIZE - 1, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
PLACE = torch.arange(LENGTH)
VALID = torch.tensor([10, 9, 8, 10, 10, 7])[:, None] > PLACE
# in one row all tokens are given, in one none
GIVEN = torch.tensor([1, 4, 8, 9, 0, 3])[:, None] > PLACE
STREAM = RowStream(0, 0, range(ROWS), ROWS)


def losses(method, x=X, given=GIVEN, whole=True):
    noise = method.noise(STREAM, targets(VALID, given))
    return method.nll(Batch(x, VALID, given), noise, whole)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_without_given_tokens_nothing_changes_to_the_bit(name, whole):
    method, nobody = small_method(name), torch.zeros_like(VALID)
    plain, empty = (
        losses(method, given=None, whole=whole),
        losses(method, given=nobody, whole=whole),
    )
    noise = method.noise(STREAM, VALID)
    assert torch.equal(plain.total, method.nll(Batch(X, VALID), noise, whole).total)
    assert torch.equal(plain.total, empty.total)
    assert torch.equal(plain.per_token(), empty.per_token())


@pytest.mark.parametrize("times", list(TIME_SAMPLERS))
def test_a_given_token_is_never_masked(times):
    method = small_method("mdlm")
    for step in range(8):
        stream = RowStream(0, step, range(ROWS), ROWS)
        noise = method.noise(stream, targets(VALID, GIVEN), TIME_SAMPLERS.build(times))
        assert not (noise.masked & GIVEN).any()
        assert not (noise.unfinished & GIVEN).any()


@pytest.mark.parametrize("name", BOUNDS)
def test_loss_falls_on_targets_only_and_on_each_of_them(name):
    method = small_method(name)
    method.schedule = schedule("loglinear", eps=0.2)  # a prior term, which counts every target
    terms = losses(method).terms
    assert torch.stack(list(terms.values())).isfinite().all()
    per_token = losses(method).per_token()
    assert not per_token[~targets(VALID, GIVEN)].any()
    assert not per_token[2].any()  # all of it is given
    if "prior" in terms:
        assert (per_token[targets(VALID, GIVEN)] > 0).all()


@pytest.mark.parametrize("name", BOUNDS)
def test_a_given_token_is_read(name):
    method = small_method(name)
    other = X.clone()
    other[1, 0] = X[1, 0] % (SIZE - 2) + 1
    before, after = losses(method).per_token(), losses(method, other).per_token()
    assert (before[1] != after[1])[4:9].any()
    torch.testing.assert_close(before[[0, 3, 4, 5]], after[[0, 3, 4, 5]])


@pytest.mark.parametrize("name", NAMES)
def test_the_total_is_the_sum_over_targets(name):
    found = losses(small_method(name))
    torch.testing.assert_close(found.total.detach(), found.per_token().sum())


def schedule_gradients(valid: torch.Tensor, given: torch.Tensor | None) -> list[torch.Tensor]:
    """Gradients of a learned schedule, with a loss of 1 at every masked token."""
    method = small_method("mdlm").train()
    method.schedule = schedule("learned")
    noise = method.noise(STREAM, targets(VALID, GIVEN))
    method.loss_at = lambda *_, **__: (torch.zeros(()), noise.masked.float())
    method.nll(Batch(X, valid, given), noise).total.backward()
    return [parameter.grad for parameter in method.schedule.parameters()]


def test_to_a_learned_schedule_given_tokens_are_like_padding():
    given, cut = schedule_gradients(VALID, GIVEN), schedule_gradients(targets(VALID, GIVEN), None)
    assert all(map(torch.equal, given, cut))
    assert any(gradient.any() for gradient in given)
