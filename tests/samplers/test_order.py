"""Samplers that choose their order: positions and tokens per step,
and the effect on the distribution.
"""

from itertools import permutations

import pytest
import torch
from builders import schedule
from drafts import conditional, sample
from hypothesis import given
from hypothesis import strategies as st
from kit import Language, p_value

from unmask.diffusion.schedule import SCHEDULES
from unmask.samplers.confidence import (
    Confidence,
    Entropy,
    EntropyBound,
    Margin,
    Threshold,
    masks_left,
)
from unmask.samplers.core import sampler_state as state
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.time_grid import grid_times
from unmask.samplers.core.token_sampler import SamplingTask

LANGUAGE = Language.random()
RARELY = 1e-4
SEEDS = list(range(2000))
EMPTY = torch.tensor([3, 3, 3])
INFILL = torch.tensor([3, 1, 3])
ONE_BY_ONE = [
    Confidence(3),
    Confidence(7, noise=2.0),
    Margin(3),
    Margin(3, noise=2.0),
    Entropy(3),
    Entropy(3, noise=2.0),
    EntropyBound(0.0),
    EntropyBound(0.0, noise=2.0),
    Threshold(1.0),
]

# four positions; the best by probability, by margin and by entropy differ; the fifth token is MASK
PLACES = torch.tensor(
    [
        [0.55, 0.45, 0.00, 0.00, 0.0],  # the largest probability, two tokens only
        [0.52, 0.16, 0.16, 0.16, 0.0],  # the largest margin
        [0.50, 0.50, 0.00, 0.00, 0.0],  # no margin at all, the least entropy but one
        [0.30, 0.28, 0.22, 0.20, 0.0],
    ]
).double()


def by_place(z, t, at):
    return PLACES[at[1]].log()


def order(sampler, rows: int = 1) -> list[list[list[int]]]:
    """The columns that each row fills, frame by frame."""
    canvas = Canvas(torch.full((rows, len(PLACES)), 4), 4)
    frames = sampler.generate(
        by_place, canvas, SamplingTask(list(range(rows)), schedule("loglinear"))
    )
    changed = torch.stack([frame.changed for frame in frames], 1)
    return [[step.nonzero()[:, 0].tolist() for step in row if step.any()] for row in changed]


@pytest.mark.parametrize("start", [EMPTY, INFILL], ids=["empty", "infill"])
@pytest.mark.parametrize("sampler", ONE_BY_ONE, ids=repr)
def test_one_token_at_a_time_is_exact_in_any_order_that_reads_visible_text_only(sampler, start):
    found = sample(LANGUAGE, sampler, SEEDS, start)
    assert p_value(found, conditional(LANGUAGE, start)) > RARELY


@pytest.mark.parametrize("sampler", [Confidence(3, drawn=True), Confidence(1), Threshold(0.3)])
def test_an_order_by_drawn_tokens_and_several_tokens_at_once_are_not_exact(sampler):
    assert p_value(sample(LANGUAGE, sampler, SEEDS), LANGUAGE.table) < 1e-12


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (Confidence(4), [0, 1, 2, 3]),
        (Margin(4), [1, 0, 3, 2]),
        (Entropy(4), [0, 2, 1, 3]),
        (EntropyBound(0.0), [0, 2, 1, 3]),
        (Threshold(1.0), [0, 1, 2, 3]),
    ],
    ids=repr,
)
def test_positions_are_filled_in_order_of_their_score(sampler, expected):
    assert order(sampler) == [[[column] for column in expected]]


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.7, 1.5, 1.9, 3.0])
def test_entropy_bound_takes_the_longest_run_within_the_bound(gamma):
    surest = [0, 2, 1, 3]
    entropy = torch.special.entr(PLACES).sum(1)[surest]
    costs = [float(entropy[:count].sum() - entropy[:count].max()) for count in range(1, 5)]
    together = sum(cost <= gamma for cost in costs)
    assert order(EntropyBound(gamma))[0][0] == sorted(surest[:together])


def test_threshold_fills_all_positions_above_it_and_at_least_the_best():
    assert order(Threshold(0.51)) == [[[0, 1], [2], [3]]]
    assert order(Threshold(0.2)) == [[[0, 1, 2, 3]]]


def test_drawn_tokens_are_kept_by_their_own_probability(monkeypatch):
    """Of 4 drawn tokens, likely with chance 0.7, the 2 likeliest stay: min(Binomial(4, 0.7), 2)."""
    monkeypatch.setattr(f"{__name__}.PLACES", torch.tensor([[0.7, 0.3, 0, 0, 0]] * 4).double())
    rows = 2000
    canvas = Canvas(torch.full((rows, 4), 4), 4)
    task = SamplingTask(list(range(rows)), schedule("loglinear"))
    frame = next(Confidence(2, drawn=True).generate(by_place, canvas, task))
    likely = (frame.tokens == 0).sum(1).double()
    assert ((frame.tokens != 4).sum(1) == 2).all()
    none, one = 0.3**4, 4 * 0.7 * 0.3**3
    assert abs(float(likely.mean()) - (2 - 2 * none - one)) < 3 * float(likely.std()) / rows**0.5


def test_equal_scores_are_taken_in_reading_order_in_every_row(monkeypatch):
    monkeypatch.setattr(f"{__name__}.PLACES", PLACES[[3] * 40])
    expected = [list(range(first, first + 10)) for first in range(0, 40, 10)]
    assert order(Margin(4), rows=3) == [expected] * 3


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_noise_makes_the_order_a_draw_without_replacement_and_decreases(noise):
    """With Gumbel noise the next position is drawn with weight exp(score / (noise t))."""
    rows = 4000
    scores = torch.tensor([-0.2, -0.9, -1.4, -2.0]).double()
    top = scores.exp()
    fourth = torch.stack([top, *[(1 - top) / 40] * 40, 0 * top], 1)  # max p = exp(score)

    def denoiser(z, t, at):
        return fourth[at[1]].log()

    canvas = Canvas(torch.full((rows, 4), 41), 41)
    task = SamplingTask(list(range(rows)), schedule("loglinear"))
    frames = list(Confidence(4, noise=noise).generate(denoiser, canvas, task))
    found = torch.stack([frame.changed.long().argmax(1) for frame in frames], 1)
    orders = torch.tensor(list(permutations(range(4))))
    chances = torch.ones(len(orders)).double()
    for step in range(4):
        weight = (scores / (noise * (1 - step / 4))).exp()
        left = weight[orders[:, step:]].sum(1)
        chances *= weight[orders[:, step]] / left
    which = (found[:, None] == orders).all(2).long().argmax(1)
    assert p_value(torch.bincount(which, minlength=24).double(), chances) > RARELY


@given(
    openings=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    steps=st.integers(1, 60),
    grid=st.sampled_from(["uniform", "cosine"]),
    name=st.sampled_from(list(SCHEDULES)),
)
def test_the_number_of_masks_follows_the_schedule(openings, steps, grid, name):
    times = grid_times(grid, steps)
    left = masks_left(torch.tensor(openings), schedule(name), times)
    alpha = schedule(name).alpha(times).detach()
    exactly = ((1 - alpha[1:]) / (1 - alpha[0]))[:, None] * torch.tensor(openings)
    assert ((left - exactly).abs()[:-1] <= 0.5 + 1e-8).all()
    assert (left[:-1] >= left[1:]).all()
    assert not left[-1].any()


def test_halves_are_rounded_alike():
    for openings in (1, 3, 5, 7, 255):
        left = masks_left(torch.tensor([openings]), schedule("loglinear"), grid_times("uniform", 2))
        assert left[0] == openings // 2


def test_rows_with_fewer_open_places_need_fewer_calls():
    tokens = torch.full((3, 8), 6)
    tokens[1, 2:] = 1
    tokens[2, :] = 1
    canvas = Canvas(tokens, 6)
    task = SamplingTask([0, 1, 2], schedule("loglinear"))

    def flat(z, t, at):
        return (
            torch.zeros(len(at[0]), 7).index_fill(1, torch.tensor([6]), -torch.inf).log_softmax(1)
        )

    *_, last = Entropy(16).generate(flat, canvas, task)
    assert last.calls.tolist() == [8, 2, 0]


@pytest.mark.parametrize("sampler", [Confidence(4), Confidence(4, drawn=True), Margin(4, noise=1.0),
                                     EntropyBound(1.0), Threshold(0.4)])  # fmt: skip
def test_scoring_some_rows_at_a_time_changes_nothing(sampler, monkeypatch):
    """All open positions of a large batch would not fit into memory."""
    looks = []

    def denoiser(z, t, at):
        looks.append(len(at[0]))
        return LANGUAGE.denoiser(z, t, at)

    start = torch.full((40, LANGUAGE.length), LANGUAGE.size)
    canvas = Canvas(start, LANGUAGE.size)
    task = SamplingTask(list(range(40)), schedule("loglinear"))
    whole = last_frame(sampler.generate(denoiser, canvas, task), canvas)
    assert max(looks) == start.numel()
    looks.clear()
    monkeypatch.setattr(state, "MOST_POSITIONS", 10)
    parts = last_frame(sampler.generate(denoiser, canvas, task), canvas)
    assert max(looks) <= 10 + LANGUAGE.length
    assert torch.equal(whole.tokens, parts.tokens)
    assert torch.equal(whole.calls, parts.calls)
