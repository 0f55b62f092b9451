"""Bounds for every T from one set of draws equal the bounds that `likelihood`
measures for each T.
"""

import math

import pytest
import torch
from builders import small_method

from unmask.diffusion.schedule import SCHEDULES
from unmask.errors import UnmaskError
from unmask.extensions.report.bound_by_steps import nats_by_steps, shares_draws, step_weights
from unmask.likelihood.estimate import likelihood

SIZE, LENGTH = 11, 10


class Texts:
    """Rows of random tokens; the last few of every other row are padding."""

    bytes = characters = 1

    def __init__(self, rows: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randint(1, SIZE - 1, (rows, LENGTH), generator=generator)
        self.valid = torch.ones_like(self.x).bool()
        self.valid[::2, -3:] = False

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[rows.start : rows.stop], self.valid[rows.start : rows.stop]


class Pairs(Texts):
    """Rows that begin with a source. Of the EOS tokens after a target one is counted."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.valid[:] = True
        self.sources = torch.tensor([2, 7, 4, 10, 0] * rows)[:rows]

    def given(self, rows: range) -> torch.Tensor:
        return torch.arange(LENGTH) < self.sources[rows.start : rows.stop, None]

    def counted(self, rows: range) -> torch.Tensor:
        return (LENGTH - self.sources[rows.start : rows.stop] + 1) // 2


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 300])
@pytest.mark.parametrize("schedule", ["loglinear", "cosine", "linear", "geometric"])
def test_every_token_is_revealed_once(schedule, steps):
    weights = step_weights(SCHEDULES.build(schedule), LENGTH, steps)
    counts = torch.arange(LENGTH + 1, dtype=torch.float64)
    assert float((weights * counts).sum()) == pytest.approx(LENGTH, rel=1e-9)
    if steps == 1:  # all at once, from all masked
        assert float(weights[LENGTH]) > 0.9


def test_many_steps_weigh_as_continuous_time():
    many, always = (step_weights(SCHEDULES.build("loglinear", eps=0.0), 8, T) for T in (20_000, 0))
    assert torch.allclose(many[1:], always[1:], rtol=2e-3)


def test_draws_are_shared_where_it_does_not_increase_the_error():
    schedule = SCHEDULES.build("loglinear")
    assert [shares_draws(schedule, 128, T) for T in (10, 20, 100, 200, 1000, 0)] == [
        *(False, False, False),
        *(True, True, True),
    ]


@pytest.mark.parametrize(
    ("schedule", "kind"), [("loglinear", Texts), ("linear", Texts), ("linear", Pairs)]
)
def test_the_curve_equals_a_measurement_of_each_T(schedule, kind):
    method, texts = small_method("mdlm"), kind(40)
    method.schedule = SCHEDULES.build(schedule)
    steps = (2, 5, 20, 400, 0)
    curve = nats_by_steps(method, texts, steps, draws=24, seed=1)
    for T in steps:
        alone = likelihood(method, texts, draws=24, seed=2, steps=T)
        error = math.hypot(alone.error, float(curve[T].std()) / math.sqrt(24))
        assert abs(float(curve[T].mean()) - alone.nats) < 4 * error, T
        assert error < 0.07 * alone.nats
    same = likelihood(method, texts, draws=24, seed=1)
    assert float(curve[0].mean()) == pytest.approx(same.nats, rel=1e-9)
    # draws are shared, so neighbours differ by far less than their errors
    assert float((curve[400] - curve[0]).std()) < 0.2 * float(curve[0].std())


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (small_method("mdlm", steps=5), "this model has no bound by T"),
        (small_method("sedd"), "this model has no bound by T"),
        (small_method("mdlm", time_conditioning=True), "measure each T by itself"),
    ],
    ids=["steps", "sedd", "time"],
)
def test_other_models_are_refused(method, message):
    with pytest.raises(UnmaskError, match=message):
        nats_by_steps(method, Texts(2), [10])
