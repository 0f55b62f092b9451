"""Frames of every sampler: open positions are filled, the rest is kept, and calls are counted."""

import pytest
import torch
from builders import MASK_SAMPLERS, schedule
from drafts import MASK, SIZE, build, canvas_of, every_sampler, run, smooth, task, title
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from unmask.diffusion.schedule import SCHEDULES
from unmask.errors import UnmaskError
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.confidence import EntropyBound, Margin, Threshold
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import STRATEGIES, SamplingTask
from unmask.samplers.gibbs import Gibbs
from unmask.samplers.left_to_right import LeftToRight
from unmask.samplers.remasking import PredictorCorrector, Remask
from unmask.samplers.semi_autoregressive import SemiAutoregressive

MANNERS = list(every_sampler())
every_manner = pytest.mark.parametrize(("name", "fields"), MANNERS, ids=title)

TOKENS = MASK_SAMPLERS


def check_frames(sampler, canvas: Canvas) -> None:
    before, calls = canvas.tokens, torch.zeros(len(canvas.tokens), dtype=torch.long)
    settled = ~canvas.open
    for frame in sampler.generate(smooth, canvas, task(len(before))):
        assert torch.equal(frame.changed, frame.tokens != before)
        assert not (frame.changed & ~canvas.open).any()
        if not sampler.revises:
            assert (before[frame.changed] == MASK).all()  # a position changes once
        assert (frame.calls >= calls).all()
        written = frame.changed & (frame.tokens != MASK)
        assert (frame.calls > calls)[written.any(1)].all()
        assert not frame.confidence[frame.tokens == MASK].any()
        assert (frame.confidence[~canvas.open] == 1).all()
        assert (frame.confidence[canvas.open & (frame.tokens != MASK)] > 0).all()
        assert not (frame.changed & settled).any()
        if frame.settled is not None:
            assert not (settled & ~frame.settled).any()
            settled = frame.settled
        before, calls = frame.tokens, frame.calls
    assert (before != MASK).all()
    if sampler.unwrapped().revises and canvas.open.any():
        assert settled.all()
    assert torch.equal(before[~canvas.open], canvas.tokens[~canvas.open])


@every_manner
@given(seed=st.integers(0, 999), length=st.integers(1, 12), steps=st.integers(1, 20))
@examples(max_examples=10)
def test_frames_fill_open_positions_and_change_nothing_else(name, fields, seed, length, steps):
    canvas = canvas_of(seed, 5, length)
    check_frames(build(name, steps=steps, window=4, stride=2, **fields), canvas)
    assert torch.equal(canvas.tokens, canvas_of(seed, 5, length).tokens)  # not in place


@pytest.mark.parametrize("steps", [1, 2])
@every_manner
def test_nothing_stays_masked_with_a_schedule_that_reaches_zero(name, fields, steps):
    ends = schedule("loglinear", eps=0.0)  # alpha_1 = 0, and some formulas divide by it
    canvas = canvas_of(0, 8, 12)
    sampler = build(name, steps=steps, window=8, **fields)
    frames = sampler.generate(smooth, canvas, SamplingTask(list(range(8)), ends))
    assert (last_frame(frames, canvas).tokens != MASK).all()


@every_manner
def test_a_full_canvas_is_not_changed(name, fields):
    canvas = canvas_of(0, 3, 6, share=1.1)
    frame = run(build(name, **fields), canvas)
    assert torch.equal(frame.tokens, canvas.tokens)
    assert not frame.calls.any()


@every_manner
def test_rows_do_not_depend_on_their_batch(name, fields):
    sampler = build(name, steps=6, window=5, stride=3, **fields)
    canvas = canvas_of(1, 32, 9)
    together = run(sampler, canvas)
    for row in range(0, 32, 3):
        one = Canvas(canvas.tokens[[row]], MASK)
        frames = sampler.generate(smooth, one, SamplingTask([row], schedule("loglinear")))
        alone = last_frame(frames, one)
        assert torch.equal(alone.tokens[0], together.tokens[row])
        assert alone.calls[0] == together.calls[row]
        assert alone.t[0] == together.t[row]


@every_manner
def test_another_seed_generates_another_text(name, fields):
    sampler = build(name, steps=6, window=5, **fields)
    tokens = run(sampler, canvas_of(0, 20, 9, share=-1.0)).tokens
    assert len(tokens.unique(dim=0)) > 15


@pytest.mark.parametrize("steps", [1, 4, 32, 256])
@pytest.mark.parametrize("name", list(SCHEDULES))
def test_calls_of_ancestral_sampling_are_the_steps_that_reveal_something(name, steps):
    length, rows = 16, 400
    canvas = canvas_of(0, rows, length, share=-1.0)
    noise = schedule(name)
    frames = Ancestral(steps).generate(smooth, canvas, SamplingTask(list(range(rows)), noise))
    calls = last_frame(frames, canvas).calls.double()
    alpha = noise.alpha(torch.linspace(1, 0, steps + 1, dtype=torch.float64)).detach()
    alpha[-1] = 1
    share = alpha.diff() / (1 - alpha[0])
    expected = float((1 - (1 - share) ** length).sum())
    if name == "loglinear":  # the design's formula
        assert expected == pytest.approx(steps * (1 - (1 - 1 / steps) ** length), rel=1e-2)
    error = float(calls.std()) / rows**0.5
    assert abs(float(calls.mean()) - expected) <= 3 * error + 1e-9
    assert (calls <= min(steps, length)).all()


@pytest.mark.parametrize("steps", [1, 5, 40])
def test_ancestral_sampling_calls_the_network_at_the_start_of_each_step(steps):
    seen = []

    def denoiser(z, t, at):
        seen.append((t, (z == MASK).any(1)))
        return smooth(z, t, at)

    canvas = canvas_of(0, 30, 12, share=-1.0)
    last_frame(Ancestral(steps).generate(denoiser, canvas, task(30)), canvas)
    times = torch.cat([t for t, _ in seen])
    torch.testing.assert_close(times * steps, (times * steps).round())
    assert set((times * steps).round().long().tolist()) == set(range(1, steps + 1))
    assert all(open_.all() for _, open_ in seen)


def test_left_to_right_calls_once_per_open_token_in_reading_order():
    canvas = canvas_of(3, 4, 8)
    frames = list(LeftToRight().generate(smooth, canvas, task(4)))
    columns = [int(frame.changed.any(0).nonzero()) for frame in frames]
    assert columns == sorted(columns)
    assert torch.equal(frames[-1].calls, canvas.open.sum(1))


@given(
    length=st.integers(1, 40),
    window=st.integers(2, 12),
    data=st.data(),
    name=st.sampled_from([name for name in TOKENS if name != "semi_autoregressive"]),
)
def test_windows_cover_any_length_and_never_exceed_the_model(length, window, data, name):
    stride = data.draw(st.integers(0, window))
    widths = []

    class Measured(type(smooth)):
        def __call__(self, z, t, at):
            widths.append(z.shape[1])
            return super().__call__(z, t, at)

    canvas = canvas_of(length, 2, length)
    sampler = SemiAutoregressive(window, stride, inner=build(name, steps=4))
    frame = run(sampler, canvas, Measured())
    assert (frame.tokens != MASK).all()
    assert set(widths) <= {min(window, length)}
    if not sampler.inner.revises and name != "analytic":
        assert (frame.calls <= canvas.open.sum(1)).all()
    assert frame.calls.max() <= len(widths)


def test_text_within_one_window_is_that_of_the_inner_sampler():
    canvas = canvas_of(0, 4, 8)
    inner = Ancestral(steps=5)
    for sampler in (SemiAutoregressive(8, inner=inner), SemiAutoregressive(20, inner=inner)):
        ours = last_frame(sampler.generate(smooth, canvas, task(4)), canvas)
        theirs = last_frame(inner.generate(smooth, canvas, task(4)), canvas)
        assert torch.equal(ours.tokens, theirs.tokens)


@every_manner
def test_banned_tokens_are_never_generated(name, fields):
    canvas = canvas_of(0, 20, 10)
    frame = run(build(name, window=6, **fields), canvas, banned=(0, 3), temperature=0.7)
    assert not torch.isin(frame.tokens[canvas.open], torch.tensor([0, 3])).any()


def unlike_neighbours(z, at):
    """Tokens that differ from both neighbours.
    The vocabulary is large enough to complete every text.
    """
    rows, columns = at
    fenced = torch.nn.functional.pad(z, (1, 1), value=MASK)
    allowed = torch.ones(len(rows), SIZE, dtype=torch.bool)
    for beside in (columns, columns + 2):
        token = fenced[rows, beside]
        allowed[torch.arange(len(rows)), token] = False
    allowed[:, MASK] = False
    return allowed


@every_manner
def test_a_constraint_holds_in_every_frame(name, fields):
    canvas = Canvas(torch.full((12, 9), MASK), MASK)
    sampler = build(name, steps=4, window=6, **fields)
    for frame in sampler.generate(smooth, canvas, task(12, allow=unlike_neighbours)):
        left, right = frame.tokens[:, :-1], frame.tokens[:, 1:]
        assert not ((left == right) & (left != MASK)).any()
    assert (frame.tokens != MASK).all()
    free = run(sampler, canvas).tokens
    assert (free[:, 1:] == free[:, :-1]).any()  # free texts do not satisfy the constraint


class Peaked(type(smooth)):
    """A denoiser whose likeliest token is 2 at every position."""

    def __call__(self, z, t, at):
        chances = torch.tensor([0.1, 0.1, 0.5, 0.1, 0.1, 0.1, 0.0]).double()
        return chances.log().expand(len(at[0]), -1)


@pytest.mark.parametrize("strategy", STRATEGIES)
@every_manner
def test_strategies_draw_or_choose_the_likeliest_token_by_the_tail(name, fields, strategy):
    canvas = canvas_of(4, 20, 12, share=-1.0)
    sampler = build(name, steps=12, window=20, **fields)
    before, favourites = canvas.tokens, {True: [], False: []}
    for frame in sampler.generate(Peaked(), canvas, task(20, strategy=strategy, tail=0.5)):
        late = (before == MASK).sum(1, keepdim=True) <= 6
        for when in (True, False):
            new = frame.changed & (frame.tokens != MASK) & (late == when)
            favourites[when] += (frame.tokens[new] == 2).tolist()
        before = frame.tokens
    assert all(favourites[True] + favourites[False]) == (strategy == "deterministic")
    if strategy == "hybrid" and not sampler.revises:
        assert all(favourites[True])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ancestral(steps=0),
        lambda: SemiAutoregressive(window=1),
        lambda: SemiAutoregressive(window=4, stride=5),
        lambda: Margin(steps=0),
        lambda: Margin(noise=-1.0),
        lambda: Margin(noise=float("nan")),
        lambda: Margin(noise=float("inf")),
        lambda: Margin(grid="cosin"),
        lambda: EntropyBound(gamma=-0.1),
        lambda: EntropyBound(gamma=float("nan")),
        lambda: EntropyBound(noise=-1.0),
        lambda: Threshold(threshold=0.0),
        lambda: Threshold(threshold=1.1),
        lambda: Threshold(noise=-1.0),
        lambda: Remask(steps=0),
        lambda: Remask(rule="cup"),
        lambda: Remask(eta=1.5),
        lambda: Remask(eta=float("nan")),
        lambda: Remask(t_on=0.1, t_off=0.2),
        lambda: Remask(alpha_on=1.0),
        lambda: PredictorCorrector(steps=0),
        lambda: PredictorCorrector(correctors=-1),
        lambda: Gibbs(steps=0),
        lambda: build("analytic", steps=0),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(UnmaskError) as error:
        make()
    assert "\n" not in str(error.value)
