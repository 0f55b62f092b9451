"""Samplers that remask tokens follow the enumerated process,
and come closer to the language with more steps.
"""

from itertools import pairwise

import pytest
import torch
from builders import schedule
from drafts import MASK, build, canvas_of, run, sample, smooth, task
from kit import Language, alphas, distance, finished, p_value, starting, transition

from unmask.samplers.core.canvas import Canvas
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import grid_times
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.remasking import RULES, PredictorCorrector, Remask

LANGUAGE = Language.random()
RARELY = 1e-4
SEEDS = list(range(2000))
EMPTY = torch.tensor([3, 3, 3])
INFILL = torch.tensor([3, 1, 3])


def remasked(language, sampler, name="loglinear", start=None) -> torch.Tensor:
    """The distribution of ReMDM's process with the oracle,
    from the formulas of sigma and of revealing.
    """
    times = grid_times(sampler.grid, sampler.steps)
    alpha = alphas(schedule(name), sampler.steps, times.tolist())
    if sampler.rule == "loop":
        on, off, held = sampler.t_on, sampler.t_off, sampler.alpha_on
        alpha = torch.tensor(
            [
                held * (1 - t) / (1 - on) if t > on else max(held, 1 - (1 - held) * t / off)
                for t in times.tolist()
            ]
        ).double()
    start = torch.full((language.length,), language.size) if start is None else start
    mass, free = starting(language, start), start == language.size
    for step in range(sampler.steps):
        alpha_t, alpha_s = float(alpha[step]), float(alpha[step + 1])
        largest = min(1.0, (1 - alpha_s) / alpha_t) if alpha_t else 1.0
        sigma = sampler.strength * largest if sampler.rule == "rescale" else sampler.strength
        sigma = min(sigma, largest)
        if sampler.rule == "loop" and not sampler.t_off < float(times[step]) <= sampler.t_on:
            sigma = 0.0
        reveal = (alpha_s - (1 - sigma) * alpha_t) / (1 - alpha_t)
        mass = mass @ transition(language, reveal, sigma, free)
    return finished(language, mass)


def corrected(language, sampler, name="loglinear", start=None) -> torch.Tensor:
    start = torch.full((language.length,), language.size) if start is None else start
    mass, free = starting(language, start), start == language.size
    alpha = alphas(schedule(name), sampler.steps, grid_times(sampler.grid, sampler.steps).tolist())
    for alpha_t, alpha_s in zip(alpha[:-1].tolist(), alpha[1:].tolist(), strict=True):
        back = transition(language, (alpha_s - alpha_t) / (1 - alpha_t), 0.0, free)
        again = transition(language, 0.0, 1 - alpha_t / alpha_s, free) @ back
        mass = mass @ back @ torch.linalg.matrix_power(again, sampler.correctors)
    return finished(language, mass)


REVISING = [
    Remask(4, rule="cap", eta=0.3),
    Remask(4, rule="rescale", eta=0.5, grid="cosine"),
    Remask(8, rule="loop", eta=0.2),
    Remask(5, rule="loop", eta=0.2, t_off=0.3, t_on=0.7, alpha_on=0.5, grid="1,0.7,0.6,0.4,0.2,0"),
    PredictorCorrector(2, correctors=1),
    PredictorCorrector(2, correctors=3, grid="1,0.3,0"),
]


@pytest.mark.parametrize(
    ("name", "start"), [("loglinear", EMPTY), ("geometric", INFILL)], ids=["empty", "infill"]
)
@pytest.mark.parametrize("sampler", REVISING, ids=repr)
def test_samples_follow_the_enumerated_process(sampler, name, start):
    process = remasked if isinstance(sampler, Remask) else corrected
    expected = process(LANGUAGE, sampler, name, start)
    assert float(expected.sum()) == pytest.approx(1)
    assert p_value(sample(LANGUAGE, sampler, SEEDS, start, name), expected) > RARELY


@pytest.mark.parametrize("rule", RULES)
def test_without_eta_nothing_is_remasked(rule):
    for frame in Remask(9, rule=rule, eta=0.0).generate(smooth, canvas_of(0, 8, 9), task(8)):
        assert (frame.tokens[frame.changed] != MASK).all()


def falling(distances: list[float]) -> bool:
    return all(later < earlier for earlier, later in pairwise(distances))


@pytest.mark.parametrize("rule", ["cap", "rescale", "loop"])
@pytest.mark.parametrize("eta", [None, 0.1])
def test_remasking_comes_closer_with_more_steps(rule, eta):
    steps = (2, 4, 8, 16, 32, 64, 128)
    found = [
        distance(remasked(LANGUAGE, Remask(count, rule=rule, eta=eta)), LANGUAGE.table)
        for count in steps
    ]
    assert falling(found), found
    assert found[-1] < 0.2 * found[0]


def test_remasking_by_confidence_comes_closer_with_more_steps():
    rows = 1200
    found = [
        distance(
            sample(LANGUAGE, Remask(steps, rule="conf"), list(range(rows))) / rows, LANGUAGE.table
        )
        for steps in (1, 4, 16)
    ]
    assert found[0] > 2 * found[1]
    assert found[1] > found[2] + 0.02


def test_correctors_come_closer_at_the_same_number_of_steps():
    found = [
        distance(corrected(LANGUAGE, PredictorCorrector(3, correctors=count)), LANGUAGE.table)
        for count in (0, 1, 2, 4)
    ]
    assert falling(found), found


def test_confidence_determines_which_tokens_are_remasked():
    canvas = Canvas(torch.full((2, 5), MASK), MASK)
    state = SamplerState(smooth, canvas, SamplingTask([0, 1], schedule("loglinear")))
    state.z[0, :3] = 0
    state.confidence[0, :3] = torch.tensor([0.9, 0.1, 0.5])
    sampler, alpha = Remask(rule="conf", eta=0.5), torch.tensor([0.7, 0.8]).double()
    (largest,) = sampler._largest_sigma(1 - alpha, alpha)
    sigma = sampler._sigma(state, largest)
    most = 0.5 * 0.2 / 0.7  # eta times the largest sigma
    expected = torch.softmax(torch.tensor([-0.9, -0.1, -0.5]), 0).double() * most
    torch.testing.assert_close(sigma[0, :3], expected)
    assert not sigma[0, 3:].any()
    assert not sigma[1].any()  # no visible tokens to remask


@pytest.mark.parametrize("rule", RULES)
def test_the_network_is_called_only_for_rows_that_reveal_a_token(rule):
    sampler = Remask(30, rule=rule, eta=0.4)
    canvas = canvas_of(2, 10, 6)
    before, calls = canvas.tokens, torch.zeros(10, dtype=torch.long)
    hidden = 0
    for frame in sampler.generate(smooth, canvas, task(10)):
        revealed = (before == MASK) & (frame.tokens != MASK)
        assert torch.equal(frame.calls - calls, revealed.any(1).long())
        hidden += int(((before != MASK) & (frame.tokens == MASK)).sum())
        before, calls = frame.tokens, frame.calls
    assert hidden > 10


@pytest.mark.parametrize("name", ["remask", "predictor_corrector", "gibbs"])
def test_given_text_changes_only_where_it_is_revisable(name):
    full = canvas_of(0, 40, 8, share=1.1).tokens
    revisable = torch.zeros_like(full).bool()
    revisable[:, 2:5] = True
    fields = {"steps": 30, "eta": 0.5}
    frame = run(build(name, **fields), Canvas(full, MASK, revisable))
    changed = frame.tokens != full
    assert not changed[~revisable].any()
    assert changed[:, 2:5].any(0).all()
    assert (frame.tokens != MASK).all()


def test_every_open_position_is_remasked_equally_often():
    """The probability of remasking does not depend on the network or on the column."""
    canvas = Canvas(torch.full((2000, 4), MASK), MASK)
    hidden = torch.zeros(4).double()
    before = canvas.tokens
    for frame in Remask(6, eta=0.3).generate(smooth, canvas, task(2000)):
        hidden += ((before != MASK) & (frame.tokens == MASK)).sum(0)
        before = frame.tokens
    assert p_value(hidden, torch.full((4,), 0.25).double()) > RARELY


def flat(z, t, at):
    """All tokens have the same probability for any text."""
    chances = torch.full((len(at[0]), MASK + 1), 1 / MASK).double()
    return chances.index_fill(1, torch.tensor([MASK]), 0).log()


@pytest.mark.parametrize("name", ["remask", "predictor_corrector"])
def test_remasked_tokens_are_drawn_with_new_uniforms(name):
    """A reused uniform would draw the same token again from a constant network."""

    canvas = Canvas(torch.full((300, 4), MASK), MASK)
    written = canvas.tokens
    redrawn = 0
    for frame in build(name, steps=12, eta=0.5).generate(flat, canvas, task(300)):
        again = (written != MASK) & (frame.tokens != MASK) & (frame.tokens != written)
        redrawn += int(again.sum())
        written = torch.where(frame.tokens == MASK, written, frame.tokens)
    assert redrawn > 300


def test_loop_remasks_only_within_its_window():
    sampler = Remask(20, rule="loop", eta=0.5)
    canvas = Canvas(torch.full((300, 8), MASK), MASK)
    before, hiding = canvas.tokens, []
    for frame in sampler.generate(smooth, canvas, task(300)):
        hiding.append(bool(((before != MASK) & (frame.tokens == MASK)).any()))
        before = frame.tokens
    assert hiding == [0.0501 < 1 - step / 20 <= 0.5501 for step in range(20)]


def test_correctors_undo_as_much_as_their_step_did():
    """A visible token stays with chance alpha_t / alpha_s,
    or is redrawn and may be the same again.
    """
    canvas = Canvas(torch.full((800, 6), MASK), MASK)
    frames = list(PredictorCorrector(4).generate(flat, canvas, task(800)))
    alpha = alphas(schedule("loglinear"), 4).tolist()
    for step, (predicted, corrected) in enumerate(zip(frames[::2], frames[1::2], strict=True)):
        kept = alpha[step] / alpha[step + 1]
        again = (alpha[step + 1] - alpha[step]) / (1 - alpha[step])
        chance = kept + (1 - kept) * again / MASK
        written = predicted.tokens != MASK
        same = (corrected.tokens == predicted.tokens)[written].double()
        error = (chance * (1 - chance) / len(same)) ** 0.5
        assert abs(float(same.mean()) - chance) < 3.5 * error
