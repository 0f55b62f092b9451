"""Samplers that spread the tokens of a step reveal each token as often as ancestral sampling,
and far from the others.
"""

import pytest
import torch
from builders import schedule
from drafts import MASK, build, canvas_of, run, sample, smooth, task
from kit import Language, distance, p_value

from unmask.errors import UnmaskError
from unmask.samplers.ancestral import Spread, reveal_steps
from unmask.samplers.core.canvas import Canvas
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import grid_times
from unmask.samplers.refine import Refine

LANGUAGE = Language.random()
RARELY = 1e-4
SEEDS = list(range(2000))


def reveals(sampler, canvas, denoiser=smooth) -> list[torch.Tensor]:
    """True at the tokens that each step writes."""
    before, steps = canvas.tokens, []
    for frame in sampler.generate(denoiser, canvas, task(len(before), watched=True)):
        steps.append(frame.tokens != before)
        before = frame.tokens
    return steps


def test_each_token_is_revealed_in_each_step_as_often_as_in_ancestral_sampling():
    times = grid_times("uniform", 6)
    canvas = Canvas(torch.full((4000, 5), MASK), MASK)
    u = SamplerState(smooth, canvas, task(4000)).spread_uniforms("reveal")
    alpha = schedule("loglinear").alpha(times)
    expected = (alpha.diff() / (1 - alpha[0])).index_fill(0, torch.tensor([5]), 0)
    expected[-1] = 1 - expected.sum()
    for column in reveal_steps(u, schedule("loglinear"), times).T:
        assert p_value(torch.bincount(column, minlength=6).double(), expected) > RARELY


@pytest.mark.parametrize("steps", [8, 16, 32])
def test_tokens_of_a_step_are_far_apart(steps):
    canvas = Canvas(torch.full((20, 100), MASK), MASK)
    for places in reveals(Spread(steps), canvas):
        for row in places:
            columns = row.nonzero()[:, 0]
            assert len(columns) < 2 or int(columns.diff().min()) >= steps / 2


def test_given_tokens_do_not_bring_the_tokens_of_a_step_together():
    """Every second token is given, so the distance in open tokens is what counts."""
    tokens = torch.full((20, 100), MASK)
    tokens[:, ::2] = 1
    for places in reveals(Spread(8), Canvas(tokens, MASK)):
        assert all(len(c := row.nonzero()) < 2 or int(c.diff(dim=0).min()) >= 8 for row in places)


def test_one_token_a_step_gives_the_language():
    drawn = sample(LANGUAGE, Spread(64), SEEDS)
    assert p_value(drawn, LANGUAGE.table) > RARELY


def test_each_token_is_revised_at_most_once_and_the_least_confident_first():
    canvas, sampler = canvas_of(0, 40, 30), Refine(6, revisions=6, share=0.1)
    frames = list(sampler.generate(smooth, canvas, task(40, watched=True)))
    first = len(frames) - sampler.revisions - 1  # the last frame settles all tokens
    writing, revising = frames[:first], frames[first:]
    assert (writing[-1].tokens != MASK).all() and len(revising) == 7
    confidence, settled = writing[-1].confidence, ~canvas.open
    lowest = confidence.masked_fill(settled, 2.0).argmin(1)
    assert revising[0].settled[torch.arange(40), lowest].all()
    for frame in revising[:-1]:
        new = frame.settled & ~settled
        assert torch.equal(new.sum(1), (canvas.open.sum(1) * 0.1).ceil().long())
        settled = frame.settled
        assert not (revising[-1].tokens != frame.tokens)[settled].any()
    assert revising[-1].settled.all()
    assert (frames[-1].tokens == canvas.tokens)[~canvas.open].all()


def test_revisions_bring_texts_of_few_steps_closer_to_the_language():
    samplers = Spread(1), Refine(1, revisions=3, share=0.3)
    at_once, revised = (
        distance(sample(LANGUAGE, sampler, SEEDS) / len(SEEDS), LANGUAGE.table)
        for sampler in samplers
    )
    assert revised < 0.7 * at_once


@pytest.mark.parametrize("revisions", [0, 1, 20])
def test_revisions_end_when_each_token_was_drawn_again(revisions):
    canvas = canvas_of(1, 8, 12)
    frame = run(build("refine", steps=2, revisions=revisions, share=0.2), canvas)
    tokens = canvas.open.sum(1)
    most = (tokens / (0.2 * tokens).ceil()).ceil().clamp(max=revisions)
    assert (frame.tokens != MASK).all() and (frame.calls.cpu() <= 4 + most + 1).all()


def test_values_out_of_range_are_an_error():
    with pytest.raises(UnmaskError, match=r"share must lie in \(0, 1\], not 0"):
        Refine(8, share=0)
    with pytest.raises(
        UnmaskError, match=r"revisions must be 0 or more, and 1,000 at most, not -1"
    ):
        Refine(8, revisions=-1)
