"""Properties of every method: gradients of all parameters, ignored padding, finite weights."""

from dataclasses import replace

import pytest
import torch
from builders import WRITERS, schedule, small_method
from hypothesis import given
from hypothesis import strategies as st

from unmask.backbones.dit import DiT
from unmask.diffusion.nelbo import discrete_weight, step_alphas
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.methods.method import METHODS, Losses
from unmask.methods.sedd import SEDD
from unmask.randomness import RowStream
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

NAMES = WRITERS
BOUNDLESS = [name for name in NAMES if not METHODS[name].capabilities.score]
ROWS, LENGTH, SIZE = 6, 10, 11


def batch(valid: torch.Tensor | None = None):
    x = torch.randint(1, SIZE - 1, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
    return x, torch.ones_like(x).bool() if valid is None else valid


def ragged(left: bool = False) -> torch.Tensor:
    """Rows of different lengths, padded on one side."""
    lengths = torch.tensor([10, 7, 4, 1, 0, 3])[:, None]
    place = torch.arange(LENGTH)
    return place >= LENGTH - lengths if left else place < lengths


def noise_of(method, valid):
    return method.noise(RowStream(0, 0, range(len(valid)), len(valid)), valid)


def losses_of(method, x, valid, whole=True) -> Losses:
    return method.nll(Batch(x, valid), noise_of(method, valid), whole)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_reaches_every_parameter(name):
    method = small_method(name).train()
    losses_of(method, *batch(), whole=False).total.backward()
    for key, parameter in method.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@pytest.mark.parametrize("name", NAMES)
def test_total_is_the_sum_of_the_terms(name):
    losses = losses_of(small_method(name), *batch(ragged()))
    torch.testing.assert_close(losses.total.detach(), losses.per_token().sum())
    assert all(not term.requires_grad for term in losses.terms.values())


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_content_of_padding_has_no_effect(name, left):
    method, valid = small_method(name), ragged(left)
    x, _ = batch()
    first = losses_of(method, x, valid).per_token()
    second = losses_of(method, torch.where(valid, x, (x + 3) % (SIZE - 1)), valid).per_token()
    assert not first[~valid].any()
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_amount_of_padding_has_no_effect(name):
    method, valid = small_method(name), ragged()[1:2]
    x = batch()[0][1:2]
    noise = noise_of(method, valid)
    longer = method.nll(Batch(x, valid), noise, full_bound=True).per_token()
    cut = valid.sum()
    if noise is not None:
        noise = noise.columns(int(cut))
    shorter = method.nll(Batch(x[:, :cut], valid[:, :cut]), noise, full_bound=True).per_token()
    torch.testing.assert_close(longer[:, :cut], shorter, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_padding_leaves_gradients_finite(name, left):
    method = small_method(name).train()
    losses_of(method, *batch(ragged(left))).total.backward()
    assert all(parameter.grad.isfinite().all() for parameter in method.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_independent(name):
    method = small_method(name)
    x, valid = batch(ragged())
    noise = noise_of(method, valid)
    together = method.nll(Batch(x, valid), noise, full_bound=True).per_token()
    if noise is not None:
        tensors = {key: part for key, part in vars(noise).items() if isinstance(part, torch.Tensor)}
        noise = replace(noise, **{key: part[:2] for key, part in tensors.items()})
    alone = method.nll(Batch(x[:2], valid[:2]), noise, full_bound=True).per_token()
    torch.testing.assert_close(alone, together[:2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_denoiser_gives_probabilities_and_none_to_mask(name):
    method = small_method(name)
    z = batch()[0].index_fill(1, torch.tensor([3]), SIZE - 1)
    at = torch.arange(ROWS), torch.full((ROWS,), 3)
    found = method.denoiser()(z, torch.full((ROWS,), 0.5, dtype=torch.float64), at).exp()
    torch.testing.assert_close(found.sum(-1), torch.ones(ROWS))
    assert not found[:, SIZE - 1].any()


@pytest.mark.parametrize("name", NAMES)
def test_every_method_declares_its_certificate(name):
    is_exact = small_method(name).noise(RowStream(0, 0, range(1), 1), batch()[1][:1]) is None
    bounds = {"none"} if name in BOUNDLESS else {"exact" if is_exact else "upper"}
    assert METHODS[name].certificate in bounds


@pytest.mark.parametrize("name", list(SCHEDULES))
@given(steps=st.integers(1, 5000))
def test_stepped_weights_are_finite_and_add_up(name, steps):
    built = schedule(name, eps=0.0)
    t = torch.arange(1, steps + 1, dtype=torch.float64) / steps
    weight = discrete_weight(built, t, steps).detach()
    assert weight.isfinite().all()
    assert (weight >= 0).all()
    assert (weight <= steps * (1 + 1e-9)).all()
    # a token is revealed once, so the probabilities of all steps sum to one
    alpha_s, alpha_t = (alpha.detach() for alpha in step_alphas(built, t, steps))
    once = (weight * (1 - alpha_t)).mean() + (1 - alpha_s[0]) + alpha_t[-1]
    assert float(once) == pytest.approx(1)


@pytest.mark.parametrize("name", ["mdlm", "d3pm"])
@pytest.mark.parametrize("steps", [1, 2, 3, 1000])
def test_stepped_losses_are_finite_for_every_number_of_steps(name, steps):
    losses = losses_of(small_method(name, steps=steps), *batch())
    assert losses.total.isfinite()


def test_sedd_refuses_a_network_without_time_conditioning():
    dit = DiT(DiT.Config(width=16, depth=1, heads=2), Vocabulary(SIZE, SIZE - 1))
    with pytest.raises(UnmaskError, match="time_conditioning"):
        SEDD(
            SEDD.Config(),
            dit,
            Vocabulary(SIZE, SIZE - 1),
            SCHEDULES.build("loglinear"),
            TIME_SAMPLERS.build("uniform"),
        )


@pytest.mark.parametrize("name", ["mdlm", "sedd"])
def test_learned_schedule_gets_a_gradient_in_training_and_leaves_the_value(name):
    method = small_method(name)
    method.schedule = schedule("learned")
    x, valid = batch(ragged())
    noise = noise_of(method, valid)
    quiet = method.eval().nll(Batch(x, valid), noise).total
    loud = method.train().nll(Batch(x, valid), noise).total
    torch.testing.assert_close(quiet, loud)
    loud.backward()
    gradient = method.schedule.logits.grad.clone()
    assert gradient.isfinite().all() and gradient.any()
    method.zero_grad()
    for row in torch.arange(len(x)).split(1):  # rows of other lengths: micro-batches add up
        method.nll(Batch(x[row], valid[row]), noise.rows(row)).total.backward()
    torch.testing.assert_close(method.schedule.logits.grad, gradient)


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(METHODS[name].Config, "steps")])
def test_impossible_steps_are_refused(name):
    with pytest.raises(UnmaskError, match="steps"):
        METHODS[name].Config(steps=-1)


def dropping(method, keys):
    """The method in training, with much dropout."""
    method.backbone.dropout_keys = keys
    for block in method.backbone.blocks:
        block.dropout = 0.3
    return method.train()


@pytest.mark.parametrize("name", NAMES)
def test_the_dropout_of_a_row_does_not_depend_on_its_batch(name):
    x = torch.randint(1, SIZE - 1, (4, LENGTH), generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(x).bool()
    keys = torch.randint(-(2**31), 2**31, (4, 2), dtype=torch.int32)
    method = small_method(name, SIZE)

    def losses(rows: range, keys: torch.Tensor) -> torch.Tensor:
        here = slice(rows.start, rows.stop)
        noise = method.noise(RowStream(0, 0, rows, 4), valid[here])
        return dropping(method, keys).nll(Batch(x[here], valid[here]), noise).per_token().detach()

    whole = losses(range(4), keys)
    torch.testing.assert_close(losses(range(2, 4), keys[2:]), whole[2:])
    assert not torch.allclose(losses(range(4), keys.flip(0)), whole)


def test_a_part_of_the_rows_is_copied_under_dropout():
    method = small_method("d3pm", SIZE, copied=0.5)
    x = torch.randint(1, SIZE - 1, (4, LENGTH), generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(x).bool()
    keys = torch.randint(-(2**31), 2**31, (4, 2), dtype=torch.int32)
    noise = method.noise(RowStream(0, 0, range(4), 4), valid)
    terms = dropping(method, keys).nll(Batch(x, valid), noise).terms
    assert (terms["reconstruction"] > 0).any(1).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in NAMES), ("d3pm", {"copied": 0.25}), ("d3pm", {"carry_over": True})],
)
def test_a_method_knows_how_many_rows_its_network_reads(name, options, monkeypatch):
    """The network is compiled for these numbers of rows."""
    method = small_method(name, SIZE, **options).train()
    x = torch.randint(1, SIZE - 1, (8, LENGTH), generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(x).bool()
    trunk, seen = method.backbone.trunk, set()
    monkeypatch.setattr(
        method.backbone,
        "trunk",
        lambda z, *rest, **more: seen.add(len(z)) or trunk(z, *rest, **more),
    )
    method.nll(Batch(x, valid), method.noise(RowStream(0, 0, range(8), 8), valid))
    assert seen <= method.passes(8)
    if not getattr(method, "self_conditioning", 0):
        assert method.passes(8) == seen
