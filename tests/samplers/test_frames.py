"""What every sampler does frame by frame: fills what is open, keeps the rest, counts its calls."""

import dataclasses

import pytest
import torch
from builders import schedule
from hypothesis import given
from hypothesis import strategies as st

from unmask.diffusion import SCHEDULES
from unmask.errors import UnmaskError
from unmask.samplers import SAMPLERS, Ancestral, Canvas, LeftToRight, Plan, last_frame
from unmask.samplers.semi_autoregressive import SemiAutoregressive

SIZE, MASK = 7, 6
NAMES = list(SAMPLERS)


def smooth(z, t, at):
    """Some distribution that depends on all visible tokens, and never on MASK."""
    level = (z * torch.arange(1, z.shape[1] + 1)).sum(1)[at[0]] + at[1]
    scores = torch.cos(level[:, None] * torch.arange(1, SIZE + 1)).double()
    scores[:, MASK] = -torch.inf
    return scores.log_softmax(-1)


def canvas_of(seed: int, rows: int, length: int, share: float = 0.3) -> Canvas:
    """Some tokens fixed, here and there."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, MASK, (rows, length), generator=generator)
    is_open = torch.rand(rows, length, generator=generator) >= share
    return Canvas(tokens.masked_fill(is_open, MASK), MASK)


def build(name: str, **fields: int):
    names = {field.name for field in dataclasses.fields(SAMPLERS[name])}
    return SAMPLERS.build(name, **{key: value for key, value in fields.items() if key in names})


def plan(rows: int, name: str = "loglinear") -> Plan:
    return Plan(list(range(rows)), schedule(name))


def check_frames(sampler, canvas: Canvas) -> None:
    before, calls = canvas.tokens, torch.zeros(len(canvas.tokens), dtype=torch.long)
    for frame in sampler.generate(smooth, canvas, plan(len(before))):
        assert torch.equal(frame.changed, frame.tokens != before)
        assert (before[frame.changed] == MASK).all()  # only open places change, once
        assert (frame.calls >= calls).all()
        assert (frame.calls > calls)[frame.changed.any(1)].all()
        before, calls = frame.tokens, frame.calls
    assert (before != MASK).all()
    assert torch.equal(before[~canvas.open], canvas.tokens[~canvas.open])


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 999), length=st.integers(1, 12), steps=st.integers(1, 20))
def test_frames_fill_what_is_open_and_change_nothing_else(name, seed, length, steps):
    canvas = canvas_of(seed, 5, length)
    check_frames(build(name, steps=steps, window=4, stride=2), canvas)
    assert torch.equal(canvas.tokens, canvas_of(seed, 5, length).tokens)  # not in place


@pytest.mark.parametrize("name", NAMES)
def test_a_full_canvas_is_left_alone(name):
    canvas = canvas_of(0, 3, 6, share=1.1)
    frame = last_frame(build(name).generate(smooth, canvas, plan(3)), canvas)
    assert torch.equal(frame.tokens, canvas.tokens)
    assert not frame.calls.any()


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_depend_on_their_batch(name):
    sampler = build(name, steps=6, window=5, stride=3)
    canvas = canvas_of(1, 64, 9)
    together = last_frame(sampler.generate(smooth, canvas, plan(64)), canvas)
    for row in range(64):
        one = Canvas(canvas.tokens[[row]], MASK)
        alone = last_frame(sampler.generate(smooth, one, Plan([row], schedule("loglinear"))), one)
        assert torch.equal(alone.tokens[0], together.tokens[row])
        assert alone.calls[0] == together.calls[row]


@pytest.mark.parametrize("steps", [1, 4, 32, 256])
@pytest.mark.parametrize("name", list(SCHEDULES))
def test_calls_of_ancestral_sampling_are_the_steps_that_reveal_something(name, steps):
    length, rows = 16, 400
    canvas = canvas_of(0, rows, length, share=-1.0)
    noise = schedule(name)
    frames = Ancestral(steps).generate(smooth, canvas, Plan(list(range(rows)), noise))
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
def test_ancestral_network_is_asked_at_the_start_of_each_step(steps):
    seen = []

    def denoise(z, t, at):
        seen.append((t, (z == MASK).any(1)))
        return smooth(z, t, at)

    canvas = canvas_of(0, 30, 12, share=-1.0)
    last_frame(Ancestral(steps).generate(denoise, canvas, plan(30)), canvas)
    times = torch.cat([t for t, _ in seen])
    torch.testing.assert_close(times * steps, (times * steps).round())
    assert set((times * steps).round().long().tolist()) == set(range(1, steps + 1))
    assert all(open_.all() for _, open_ in seen)


def test_left_to_right_calls_once_per_open_token_in_reading_order():
    canvas = canvas_of(3, 4, 8)
    frames = list(LeftToRight().generate(smooth, canvas, plan(4)))
    columns = [int(frame.changed.any(0).nonzero()) for frame in frames]
    assert columns == sorted(columns)
    assert torch.equal(frames[-1].calls, canvas.open.sum(1))


@given(
    length=st.integers(1, 40),
    window=st.integers(2, 12),
    data=st.data(),
    name=st.sampled_from([name for name in NAMES if name != "semi_autoregressive"]),
)
def test_windows_cover_any_length_and_never_exceed_the_model(length, window, data, name):
    stride = data.draw(st.integers(0, window))
    widths = []

    def denoise(z, t, at):
        widths.append(z.shape[1])
        return smooth(z, t, at)

    canvas = canvas_of(length, 2, length)
    sampler = SemiAutoregressive(window, stride, inner=build(name, steps=4))
    frame = last_frame(sampler.generate(denoise, canvas, plan(2)), canvas)
    assert (frame.tokens != MASK).all()
    assert set(widths) <= {min(window, length)}
    assert (frame.calls <= canvas.open.sum(1)).all()
    assert frame.calls.max() <= len(widths)


def test_text_within_one_window_is_what_the_inner_sampler_writes():
    canvas = canvas_of(0, 4, 8)
    inner = Ancestral(steps=5)
    for sampler in (SemiAutoregressive(8, inner=inner), SemiAutoregressive(20, inner=inner)):
        ours = last_frame(sampler.generate(smooth, canvas, plan(4)), canvas)
        theirs = last_frame(inner.generate(smooth, canvas, plan(4)), canvas)
        assert torch.equal(ours.tokens, theirs.tokens)


@pytest.mark.parametrize("name", NAMES)
def test_banned_tokens_are_never_written(name):
    canvas = canvas_of(0, 20, 10)
    barred = dataclasses.replace(plan(20), banned=(0, 3), temperature=0.7)
    frame = last_frame(build(name, window=6).generate(smooth, canvas, barred), canvas)
    assert not torch.isin(frame.tokens[canvas.open], torch.tensor([0, 3])).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ancestral(steps=0),
        lambda: SemiAutoregressive(window=1),
        lambda: SemiAutoregressive(window=4, stride=5),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(UnmaskError):
        make()
