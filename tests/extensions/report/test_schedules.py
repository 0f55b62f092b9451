"""The same bound under every schedule, and the variance that an integral over time predicts."""

import math

import pytest
import torch

from unmask.backbones.backbone import Backbone
from unmask.diffusion.schedule import SCHEDULES, Schedule
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Uniform
from unmask.errors import UnmaskError
from unmask.extensions.report.schedule_variance import _spread, variance_by_schedule
from unmask.methods.method import METHODS
from unmask.randomness import RowStream, child_seed
from unmask.shapes import Batch, targets
from unmask.vocabulary import Vocabulary

NAMES = ("loglinear", "cosine", "cosine_squared", "linear")
ROWS, LENGTH, DRAWS, T_MIN = 400, 48, 16, 1e-3


class Tokens:
    """Rows of random tokens."""

    bytes = characters = ROWS * LENGTH

    def __init__(self, vocabulary: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randint(0, vocabulary - 1, (ROWS, LENGTH), generator=generator)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.x[rows.start : rows.stop]
        return x, torch.ones_like(x, dtype=torch.bool)


class Pairs(Tokens):
    """Half of every row is its source, and half of the rest is counted."""

    def given(self, rows: range) -> torch.Tensor:
        return (torch.arange(LENGTH) < LENGTH // 2).expand(len(rows), LENGTH)

    def counted(self, rows: range) -> torch.Tensor:
        return torch.full((len(rows),), LENGTH // 4)


class EvenNetwork(Backbone):
    """A network that gives all tokens the same probability."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(None, vocabulary)
        self.head = torch.nn.Linear(2, vocabulary.size)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def features(self, inputs, condition=None, *, at=None, **rest):
        return torch.zeros(*(inputs if at is None else at).shape, 2)


def untrained(name: str = "mdlm", schedule: str = "loglinear", **fields):
    """A method whose network gives every token the same probability."""
    vocabulary = Vocabulary.over(6)
    kind, backbone = METHODS[name], EvenNetwork(vocabulary)
    clock = SCHEDULES["learned"]() if schedule == "learned" else SCHEDULES.build(schedule)
    times = TIME_SAMPLERS.build("stratified")
    return kind(kind.Config(**fields), backbone, vocabulary, clock, times)


def expected(schedule: Schedule, nats: float) -> tuple[float, float, float]:
    """Mean, variance and central fourth moment of a row's loss if every masked token costs `nats`."""
    edges = T_MIN + (1 - T_MIN) * torch.linspace(0, 1, 400_001, dtype=torch.float64)
    t = (edges[1:] + edges[:-1]) / 2
    r = 1 - schedule.alpha(t)
    weight = (1 - T_MIN) * nats * -schedule.alpha_prime(t) / r / LENGTH
    # the raw moments of a binomial count of masks, from its factorial moments
    f1, f2, f3, f4 = (math.perm(LENGTH, k) * r**k for k in range(1, 5))
    counts = (f1, f2 + f1, f3 + 3 * f2 + f1, f4 + 6 * f3 + 7 * f2 + f1)
    m1, m2, m3, m4 = (float((weight**k * n).mean()) for k, n in enumerate(counts, 1))
    return m1, m2 - m1**2, m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4


@pytest.mark.parametrize(
    "schedule",
    # the last schedule has a third of all mask ratios at the ends of time
    [*map(SCHEDULES.build, NAMES), SCHEDULES.build("linear", sigma_min=0.4)],
    ids=[*NAMES, "late"],
)
def test_the_variance_is_that_of_the_integral(schedule):
    method = untrained()
    rows, schedules = Tokens(method.vocabulary.size), {"it": schedule}
    found = variance_by_schedule(method, rows, schedules, draws=DRAWS, batch=ROWS)["it"]
    bound = math.log(method.vocabulary.size - 1)  # never MASK
    mean, variance, fourth = expected(schedule, bound)
    assert found.samples == DRAWS * ROWS
    doubt = math.sqrt((fourth - variance**2) / found.samples)
    assert abs(found.variance - variance) < 4 * doubt < variance
    assert doubt / 4 < found.variance_error < 2 * doubt
    # training leaves out the ends of time, but the bound includes them
    assert mean < bound
    assert abs(found.nats - bound) < 4 * found.error
    assert 0.5 < found.error / math.sqrt(variance / found.samples) < 1.5


@pytest.mark.parametrize("kind", [Tokens, Pairs])
def test_the_variance_is_that_of_the_training_loss(kind):
    method, late = untrained(), SCHEDULES.build("linear", sigma_min=0.4)
    rows = kind(method.vocabulary.size)
    given = rows.given(range(ROWS)) if kind is Pairs else None
    counted, cost = (LENGTH // 4, 2) if kind is Pairs else (LENGTH, 1)
    found = variance_by_schedule(method, rows, {"late": late}, draws=2, batch=ROWS)["late"]
    method.schedule = late
    x, valid = rows[range(ROWS)]
    values = []
    for number in range(2):
        stream = RowStream(child_seed(0, number), 0, range(ROWS), ROWS)
        noise = method.noise(stream, targets(valid, given), Uniform())
        losses = method.nll(Batch(x, valid, given), noise)
        values.append(losses.per_token().detach().double().sum(1) / counted)
    assert found.variance == pytest.approx(float(torch.cat(values).var()), rel=1e-9)
    bound = cost * math.log(method.vocabulary.size - 1)  # every counted token has the nats of two
    assert abs(found.nats - bound) < 4 * found.error < bound


def test_given_tokens_have_no_loss_at_either_end_of_time():
    # a fifth of the tokens is never masked
    method, early = untrained(), SCHEDULES.build("loglinear", eps=0.2)
    rows = Pairs(method.vocabulary.size)
    found = variance_by_schedule(method, rows, {"early": early}, draws=4, batch=ROWS)["early"]
    bound = 2 * math.log(method.vocabulary.size - 1)
    assert abs(found.nats - bound) < 4 * found.error < 0.1 * bound


def test_the_error_of_few_rows_is_large_even_with_many_draws():
    generator = torch.Generator().manual_seed(0)
    rows, draws, tokens = 12, 50, torch.ones(12, dtype=torch.float64)
    found = []
    for _ in range(200):
        texts = torch.randn(rows, generator=generator, dtype=torch.float64)
        noise = torch.randn(draws, rows, generator=generator, dtype=torch.float64)
        found.append(_spread(noise, texts + 0.3 * noise, tokens))
    spread = torch.tensor([each.variance for each in found]).std()
    claimed = torch.tensor([each.variance_error for each in found]).mean()
    assert 0.7 < float(claimed / spread) < 1.4
    assert found[0].variance_freedom == rows - 1
    assert 0.9 * rows * (draws - 1) < found[0].freedom <= rows * (draws - 1)


def test_the_method_is_not_changed_and_schedules_are_independent():
    method = untrained().train()
    before, rows = method.schedule, Tokens(method.vocabulary.size)
    schedules = {name: SCHEDULES.build(name) for name in NAMES}
    together = variance_by_schedule(method, rows, schedules, draws=2, seed=5, batch=170)
    assert method.schedule is before
    assert method.training
    for name, schedule in reversed(schedules.items()):
        alone = variance_by_schedule(method, rows, {name: schedule}, draws=2, seed=5, batch=170)
        assert alone == {name: together[name]}


@pytest.mark.parametrize(
    "method",
    [untrained("mdlm", steps=10), untrained("mdlm", "learned"), untrained("d3pm")],
    ids=["steps", "learned", "d3pm"],
)
def test_only_continuous_time_can_change_its_schedule(method):
    with pytest.raises(UnmaskError, match="this model's schedule cannot be changed"):
        variance_by_schedule(method, Tokens(7), {"linear": SCHEDULES.build("linear")})


def test_a_variance_needs_two_draws():
    with pytest.raises(UnmaskError, match="1 draws of 400 rows have no variance"):
        variance_by_schedule(untrained(), Tokens(7), {}, draws=1)
