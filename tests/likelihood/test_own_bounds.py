"""The bound by every estimator and with any number of steps has the same mean
and does not change the method.
"""

import math

import pytest
import torch
from builders import schedule, small_method
from kit import expected_bound, mask_probability, table_method
from toy_corpus import Corpus, listed

from unmask.errors import UnmaskError
from unmask.likelihood.estimate import likelihood, nats_by_row
from unmask.likelihood.estimators import ESTIMATORS, in_steps, non_empty_masks
from unmask.randomness import RowStream

LANGUAGE, ROWS = listed()


def table(kind: str, eps: float = 0.0, leak: float = 0.0, **fields: int):
    network = LANGUAGE.wrong_conditionals(leak)
    noise = schedule("loglinear", eps=eps)
    return table_method(kind, LANGUAGE, noise, network, times="importance", **fields)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kind", ["mdlm", "sedd"])
def test_every_estimator_has_the_mean_of_quadrature(kind, estimator):
    """The schedule has a floor, so its prior term is not zero. fixed_count does not use it."""
    eps = 0.0 if estimator == "fixed_count" else 0.1
    model = table(kind, eps)
    truth = expected_bound(model, LANGUAGE) / 3
    found = likelihood(model, Corpus(ROWS), draws=60, batch=64, estimator=estimator)
    assert abs(found.nats - truth) < 5 * found.error < 0.1
    assert found.of == f"continuous time, {estimator} estimator"
    assert found.terms.keys() == {
        "diffusion",
        *(["prior"] if eps else []),
    }  # nothing else is left out


def test_a_term_that_only_some_blocks_have_is_not_lost():
    """The schedule masks a few tokens at t = 0, so half of the blocks have a masked token there."""
    noise = schedule("geometric", sigma_min=7e-3, sigma_max=20.0)
    model = table_method("mdlm", LANGUAGE, noise, times="importance")
    for seed in range(6):
        how = {"draws": 1, "seed": seed, "estimator": "uniform"}
        terms = nats_by_row(model, Corpus(ROWS), **how, batch=3)
        by_row = sum(float(values.sum()) for values in terms.values())
        bound = likelihood(model, Corpus(ROWS), **how)
        assert bound.nats * bound.tokens == pytest.approx(by_row, rel=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    ("kind", "own", "steps"),
    [("mdlm", 0, 3), ("mdlm", 0, 1), ("mdlm", 1000, 3), ("mdlm", 5, 0), ("d3pm", 1000, 3)],
)
def test_a_bound_of_any_number_of_steps(kind, own, steps, estimator):
    leak = 0.2 if kind == "d3pm" else 0.0
    model = table(kind, leak=leak, steps=own)
    truth = expected_bound(table(kind, leak=leak, steps=steps), LANGUAGE) / 3
    found = likelihood(model, Corpus(ROWS), draws=60, batch=64, estimator=estimator, steps=steps)
    assert abs(found.nats - truth) < 5 * found.error + 1e-6 < 0.1  # one step has no noise
    assert found.of == f"{f'T = {steps}' if steps else 'continuous time'}, {estimator} estimator"
    assert (model.steps, model.config.steps) == (own, own)


def test_steps_are_the_methods_own_unless_given():
    model = table("mdlm", steps=3)
    own, given = (likelihood(model, Corpus(ROWS), **how) for how in ({}, {"steps": 3}))
    assert own == given
    assert own.of == "T = 3, fixed_count estimator"
    assert likelihood(model, Corpus(ROWS), steps=0).of == "continuous time, fixed_count estimator"


@pytest.mark.parametrize(("steps", "calls"), [(0, 4), (8, 5)])
def test_the_prior_has_no_noise_and_is_measured_once(steps, calls, monkeypatch):
    method = small_method("mdlm")
    found = []
    features = method.backbone.features
    count = lambda *args, **options: found.append(args) or features(*args, **options)  # noqa: E731
    monkeypatch.setattr(method.backbone, "features", count)
    bound = likelihood(method, Corpus(ROWS + 1), draws=4, batch=len(ROWS), steps=steps)
    assert len(found) == calls
    assert ("prior" in bound.terms) == bool(steps)


def test_an_evaluation_that_fails_leaves_the_method_as_it_was(monkeypatch):
    method = small_method("mdlm").train()
    monkeypatch.setattr(method.backbone, "features", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        likelihood(method, Corpus(ROWS + 1), steps=7)
    assert (method.steps, method.training, method.backbone.training) == (0, True, True)


def test_in_steps_shares_the_weights():
    method = small_method("mdlm")
    other = in_steps(method, 9)
    assert other.steps == 9
    assert other.backbone is method.backbone
    assert in_steps(method, 0) is method


# Masks that are not empty


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 0.9999])
def test_masks_given_that_they_are_not_empty(alpha):
    """Frequencies are the probabilities of all masks except the empty one,
    to 4 standard deviations.
    """
    n = 40_000
    u = RowStream(3, 0, range(n), n).uniform("mask", 3)
    masked, chance = non_empty_masks(
        u, torch.full((n,), alpha, dtype=torch.float64), torch.ones(n, 3).bool()
    )
    expected = mask_probability(LANGUAGE.masks, torch.tensor([alpha], dtype=torch.float64))[:, 0]
    assert float(chance[0]) == pytest.approx(1 - alpha**3)
    expected = expected[1:] / (1 - alpha**3)  # the first is empty
    counts = torch.bincount((masked * torch.tensor([4, 2, 1])).sum(1), minlength=8)
    assert counts[0] == 0
    found = counts[1:] / n
    assert ((found - expected).abs() <= 4 * (expected * (1 - expected) / n).sqrt() + 1e-12).all()


def test_padding_is_never_masked_and_rows_without_tokens_work():
    u = RowStream(0, 0, range(4), 4).uniform("mask", 5)
    valid = torch.arange(5) < torch.tensor([5, 1, 0, 2])[:, None]
    alpha = torch.tensor([0.999, 0.999, 0.5, 1.0], dtype=torch.float64)
    masked, chance = non_empty_masks(u, alpha, valid)
    assert (masked & ~valid).sum() == 0
    assert masked.any(1).tolist() == [True, True, False, False]  # at alpha 1 nothing is masked
    assert float(chance[1]) == pytest.approx(1e-3)
    assert chance[3] == 0


def test_the_weight_of_a_rare_token_stays_below_the_length_of_its_row():
    """At uniform times the weight would be 1/t. The limit keeps the interval correct."""
    model, stream = table("mdlm"), RowStream(0, 0, range(4096), 4096)
    noise = model.noise(stream, torch.ones(4096, 3).bool(), ESTIMATORS["uniform"])
    (weight,) = model.loss_inputs(noise.t)
    assert float(noise.t.min()) < 1e-3
    assert float((weight * noise.importance).max()) <= 3 + 1e-9
    assert noise.masked.any(1).all()


# Mistakes


@pytest.mark.parametrize(
    ("name", "how", "complaint"),
    [
        ("mdlm", {"estimator": "strtified"}, "unknown estimator 'strtified'; did you mean"),
        ("mdlm", {"steps": 10**9}, "fixed_count takes 1,000,000 steps at most, not 1,000,000,000"),
        ("mdlm", {"steps": -1}, "steps must be 0 or more, not -1"),
        ("mdlm", {"steps": 1.5}, "steps must be a whole number, not 1.5"),
        ("d3pm", {"steps": 0}, "steps must be 1 or more, not 0"),
        ("sedd", {"steps": 8}, "sedd has a bound in continuous time only"),
        ("autoregressive", {"steps": 8}, "this model's likelihood is exact"),
        ("autoregressive", {"estimator": "uniform"}, "this model's likelihood is exact"),
    ],
)
def test_an_unavailable_bound_is_refused_in_one_line(name, how, complaint, monkeypatch):
    method = small_method(name)
    monkeypatch.setattr(method.backbone, "features", lambda *args, **options: 1 / 0)
    with pytest.raises(UnmaskError) as caught:  # before any network call
        likelihood(method, Corpus(ROWS + 1), **how)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_zero_steps_are_the_default_of_a_continuous_method():
    method = small_method("sedd")
    own, zero = (likelihood(method, Corpus(ROWS + 1), draws=1, **h) for h in ({}, {"steps": 0}))
    assert own == zero
    assert math.isfinite(own.nats)
