"""Analytic sampling of SEDD: exact with exact scores, and at the rate of the scores with others."""

from itertools import pairwise

import pytest
import torch
from builders import schedule
from drafts import counts, sample, smooth
from equations import mean_to_score
from kit import (
    Language,
    alphas,
    finished,
    p_value,
    reverse_process,
    starting,
    table_method,
    transition,
)

from unmask.errors import UnmaskError
from unmask.samplers.analytic import Analytic
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask

LANGUAGE = Language.random()
RARELY = 1e-4
SEEDS = list(range(2500))


def at_scale(scale: float, steps: int) -> torch.Tensor:
    """The reverse process with every probability of revealing scaled by a factor,
    except in the last step.
    """
    mass, free = starting(LANGUAGE), torch.ones(3).bool()
    alpha = alphas(schedule("loglinear"), steps).tolist()
    for step, (alpha_t, alpha_s) in enumerate(pairwise(alpha)):
        reveal = min(1.0, scale * (alpha_s - alpha_t) / (1 - alpha_t))
        mass = mass @ transition(LANGUAGE, 1.0 if step == steps - 1 else reveal, 0.0, free)
    return finished(LANGUAGE, mass)


@pytest.mark.parametrize("scale", [0.9, 0.4, 1.1, 50.0])
def test_scores_of_another_scale_reveal_at_another_rate(scale):
    found = sample(LANGUAGE, Analytic(3), SEEDS, scale=scale)
    assert p_value(found, at_scale(scale, 3)) > RARELY


def test_the_test_detects_another_scale_of_the_scores():
    found = sample(LANGUAGE, Analytic(3), SEEDS, scale=0.4)
    assert p_value(found, at_scale(1.0, 3)) < 1e-6
    torch.testing.assert_close(
        at_scale(1.0, 3), reverse_process(LANGUAGE, schedule("loglinear"), 3)
    )


@pytest.mark.parametrize("fields", [{}, {"eps": 0.0}], ids=["floor", "no floor"])
@pytest.mark.parametrize("name", ["loglinear", "geometric"])
def test_a_perfect_sedd_follows_the_reverse_process(name, fields):
    noise = schedule(name, **fields)
    method = table_method("sedd", LANGUAGE, noise)
    canvas = Canvas(torch.full((2500, 3), LANGUAGE.size), LANGUAGE.size)
    with torch.inference_mode():
        frames = Analytic(3).generate(method.denoiser(), canvas, SamplingTask(SEEDS, noise))
        found = counts(LANGUAGE, last_frame(frames, canvas).tokens)
    assert p_value(found, reverse_process(LANGUAGE, noise, 3)) > RARELY


@torch.no_grad()
def test_sedds_score_is_the_ratio_that_its_mean_implies():
    noise = schedule("loglinear")
    denoiser = table_method("sedd", LANGUAGE, noise).denoiser()
    z, t = torch.tensor([[3, 0, 3], [3, 3, 2]]), torch.tensor([0.3, 0.8]).double()
    at = torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1])
    expected = mean_to_score(LANGUAGE.denoiser(z, t, at), noise.sigma(t)[at[0]], LANGUAGE.size)
    torch.testing.assert_close(denoiser.log_score(z, t, at), expected.float())
    torch.testing.assert_close(denoiser(z, t, at), LANGUAGE.denoiser(z, t, at).float())


def test_a_model_without_scores_is_refused_before_any_call():
    canvas = Canvas(torch.tensor([[3, 3, 3]]), 3)
    denoiser = table_method("mdlm", LANGUAGE, schedule("loglinear")).denoiser()
    with pytest.raises(UnmaskError, match="method sedd"):
        Analytic().generate(denoiser, canvas, SamplingTask([0], schedule("loglinear")))


def test_every_step_with_masks_left_costs_a_call():
    canvas = Canvas(torch.full((50, 4), 6), 6)
    frames = list(
        Analytic(10).generate(smooth, canvas, SamplingTask(list(range(50)), schedule("loglinear")))
    )
    before = canvas.tokens
    calls = torch.zeros(50, dtype=torch.long)
    for frame in frames:
        assert torch.equal(frame.calls - calls, (before == 6).any(1).long())
        before, calls = frame.tokens, frame.calls
    assert calls.double().mean() > 6  # ancestral sampling would make 10 (1 - 0.9^4) = 3.4
