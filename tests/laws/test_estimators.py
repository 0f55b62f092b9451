"""However times are drawn, the bound's mean stays and its variance is no more than that of uniform times."""

from itertools import pairwise

import pytest
import torch
from builders import known, schedule, small_method
from kit import Language, expected_terms, gauss_legendre, table_method

from unmask.diffusion.categorical import binomial
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Noise
from unmask.methods.method import METHODS
from unmask.randomness import RowStream
from unmask.shapes import Batch

LANGUAGE = Language.random(3, 3)
NETWORK = LANGUAGE.wrong_conditionals()
ROWS, DRAWS = 640, 64
# one fixed corpus: a sampler that tied rows to times would show a bias on it
CORPUS = torch.multinomial(
    LANGUAGE.table, ROWS, replacement=True, generator=torch.Generator().manual_seed(0)
)
VALID = torch.ones(ROWS, LANGUAGE.length).bool()
FREE = [name for name in TIME_SAMPLERS if name != "fixed_count"]  # of how many tokens are masked
KINDS = [("mdlm", 0), ("sedd", 0), ("mdlm", 8), ("mdlm", 2)]
CASES = [(times, kind, steps) for kind, steps in KINDS for times in TIME_SAMPLERS]
T = 5.5  # |t| of 64 draws beyond this has a chance of 1e-6 a test


def method(times: str, kind: str, steps: int, name: str):
    fields = {"steps": steps} if steps else {}
    return table_method(kind, LANGUAGE, schedule(name), NETWORK, times=times, **fields)


def merged(noises: list[Noise]) -> Noise:
    """Many draws as one batch."""
    parts = {
        name: torch.cat([getattr(noise, name) for noise in noises])
        for name in ("t", "masked", "importance", "unfinished")
    }
    return Noise(unstarted=noises[0].unstarted, t_min=noises[0].t_min, **parts)


@torch.no_grad()
def estimates(model, seed: int = 7) -> torch.Tensor:
    """The corpus' bound in nats a row, once per draw."""
    streams = [RowStream(seed, step, range(ROWS), ROWS) for step in range(DRAWS)]
    noise = merged([model.noise(stream, VALID) for stream in streams])
    x = LANGUAGE.sequences[CORPUS].repeat(DRAWS, 1)
    losses = model.nll(Batch(x, VALID.repeat(DRAWS, 1)), noise, full_bound=True)
    return losses.per_token().double().sum(1).view(DRAWS, ROWS).mean(1)


def exact(model) -> float:
    """The same, by quadrature over times and enumeration of masks."""
    terms = torch.stack(list(expected_terms(model, LANGUAGE).values())).sum(0)
    return float(terms[CORPUS].mean())


@pytest.mark.parametrize(
    ("times", "kind", "steps", "name"),
    [
        *((*case, "loglinear") for case in CASES),
        *((*case, "geometric") for case in CASES if not case[2]),  # of continuous time
    ],
)
def test_mean_is_that_of_quadrature(times, kind, steps, name):
    found = estimates(method(times, kind, steps, name))
    if times == "fixed_count" and not steps:  # leaves out no end, whatever the schedule
        everything = schedule("loglinear", eps=0.0)
        model = table_method(kind, LANGUAGE, everything, NETWORK, times="importance")
    else:
        model = method(times, kind, steps, name)
    error = float(found.std()) / DRAWS**0.5
    assert abs(float(found.mean()) - exact(model)) < T * error


@pytest.mark.parametrize("times", FREE)
def test_times_left_out_at_the_start_move_into_the_reconstruction(times):
    fields = known(TIME_SAMPLERS[times], {"t_min": 0.3})
    sampler = TIME_SAMPLERS.build(times, **fields)
    model = table_method("mdlm", LANGUAGE, schedule("loglinear"), NETWORK, times=sampler)
    found = estimates(model)
    assert abs(float(found.mean()) - exact(model)) < T * float(found.std()) / DRAWS**0.5


class Slices(RowStream):
    """A stream that hands out the slices in order, many points in each."""

    def strata(self) -> torch.Tensor:
        return torch.arange(self.total).repeat_interleave(len(self.rows) // self.total)


@torch.no_grad()
def moments(model, slices: int = 16, nodes: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """First two moments of a row's bound with its time in each slice, [sequence, slice]."""
    node, w = gauss_legendre(nodes)
    stream = Slices(0, 0, range(slices * nodes), slices)
    t, importance = model.time_sampler.times(node.repeat(slices), stream)
    t_min = 0.0 if model.steps else model.time_sampler.t_min
    t = torch.ceil(t * model.steps) / model.steps if model.steps else t_min + (1 - t_min) * t
    losses, chance = LANGUAGE.every_loss(model, t, importance * (1 - t_min))
    first = (losses * chance).sum(1).view(-1, slices, nodes) @ w
    second = (losses**2 * chance).sum(1).view(-1, slices, nodes) @ w
    return first, second


def variance_in_slices(first: torch.Tensor, second: torch.Tensor) -> float:
    """Variance of the sum over rows, no two of which share a slice (Hoeffding 1951)."""
    rows = len(first)
    centred = first - first.mean(0) - first.mean(1, keepdim=True) + first.mean()
    return float((second - first**2).sum() / rows + (centred**2).sum() / (rows - 1))


def variance_apart(first: torch.Tensor, second: torch.Tensor) -> float:
    """Variance of the sum over rows with independent times."""
    return float((second.mean(1) - first.mean(1) ** 2).sum())


VARIED = [  # a schedule, whether the network is exact, steps: one at a time, and in the slow form all
    *((name, False, 0) for name in SCHEDULES),
    *(("loglinear", True, 0), ("loglinear", False, 8), ("geometric", True, 8)),
]
ALL = [(name, exact, steps) for name in SCHEDULES for exact in (False, True) for steps in (0, 8)]
REST = [pytest.param(*one, marks=pytest.mark.slow) for one in ALL if one not in VARIED]


@pytest.mark.parametrize(("name", "oracle", "steps"), [*VARIED, *REST])
@pytest.mark.parametrize("times", [name for name in FREE if name != "uniform"])
def test_variance_is_no_more_than_that_of_uniform_times(times, name, oracle, steps):
    network = LANGUAGE.conditionals if oracle else NETWORK
    fields = {"steps": steps} if steps else {}
    rows = CORPUS[:16]  # as many as slices

    def row_moments(sampler: str) -> list[torch.Tensor]:
        model = table_method("mdlm", LANGUAGE, schedule(name), network, times=sampler, **fields)
        return [moment[rows] for moment in moments(model)]

    # slices of the uniform density, taken together, are uniform times
    assert variance_in_slices(*row_moments(times)) <= variance_apart(*row_moments("stratified"))


@pytest.mark.parametrize("steps", [0, 8])
def test_variance_of_a_fixed_count_is_a_fraction_of_that_of_uniform_times(steps):
    found, uniform = (
        estimates(method(times, "mdlm", steps, "loglinear")).var()
        for times in ("fixed_count", "uniform")
    )
    assert found < 0.5 * uniform  # about 0.1; the error of the ratio of 64 draws each is about 0.03


@pytest.mark.parametrize("times", list(TIME_SAMPLERS))
@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("cuts", [[0, 640], [0, 1, 640], [0, 10, 20, 639, 640]])
def test_noise_of_a_row_does_not_depend_on_who_draws_it(times, steps, cuts):
    model = method(times, "mdlm", steps, "loglinear")
    whole = model.noise(RowStream(3, 5, range(ROWS), ROWS), VALID)
    parts = merged(
        [model.noise(RowStream(3, 5, range(a, b), ROWS), VALID[a:b]) for a, b in pairwise(cuts)]
    )
    for name in ("t", "masked", "importance", "unfinished"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))


@pytest.mark.parametrize("times", list(TIME_SAMPLERS))
def test_noise_changes_with_seed_step_and_row(times):
    model = method(times, "mdlm", 0, "loglinear")
    draws = [
        model.noise(RowStream(seed, step, range(ROWS), ROWS), VALID).t
        for seed, step in [(0, 0), (0, 1), (1, 0)]
    ]
    assert len(torch.cat(draws).unique()) > 0.99 * 3 * ROWS  # a fixed count stops at t = 1


@pytest.mark.parametrize("steps", [0, 8])
@pytest.mark.parametrize("name", list(SCHEDULES))
def test_fixed_count_weighs_k_masked_tokens_by_length_over_k(name, steps):
    """In steps too: each is drawn as often as it reveals a token, and the ends are left to their own terms."""
    model = method("fixed_count", "mdlm", steps, name)
    valid = torch.ones(ROWS, 40).bool()
    valid[::2, 25:] = False
    valid[1] = False
    noise = model.noise(RowStream(0, 0, range(ROWS), ROWS), valid)
    (weight,) = model.loss_inputs(noise.t)
    assert not (noise.masked & ~valid).any()
    first, last = model.schedule.alpha(torch.tensor([0.0, 1.0], dtype=torch.float64)).detach()
    share = first - last if steps else 1.0
    some = valid.any(1)
    found = (weight * noise.importance).detach()
    expected = share * valid.sum(1) / noise.masked.sum(1).double()
    torch.testing.assert_close(found[some], expected[some])
    assert found.isfinite().all()


def test_fixed_count_covers_every_count_evenly():
    model = method("fixed_count", "mdlm", 0, "loglinear")
    noise = model.noise(RowStream(0, 0, range(ROWS), ROWS), torch.ones(ROWS, 16).bool())
    counts = torch.bincount(noise.masked.sum(1), minlength=17)[1:]
    assert (counts == ROWS // 16).all()


def test_fixed_count_finds_as_many_masked_as_a_step_does():
    """Given the step, one token and a binomial number of the 15 others; steps come evenly."""
    rows, steps = 40_000, 4
    model = method("fixed_count", "mdlm", steps, "loglinear")
    noise = model.noise(RowStream(0, 0, range(rows), rows), torch.ones(rows, 16).bool())
    counts, step = noise.masked.sum(1), (noise.t * steps).round().long()
    for number, r in enumerate(1 - model.schedule.alpha(torch.arange(1, 5).double() / 4), start=1):
        found = torch.bincount(counts[step == number], minlength=17)[1:].double()
        assert float(found.sum()) == pytest.approx(rows / steps, abs=1.5)
        expected = binomial(torch.arange(16), torch.tensor(15), r)
        torch.testing.assert_close(found / found.sum(), expected, atol=3e-4, rtol=0)


@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
@pytest.mark.parametrize("times", list(TIME_SAMPLERS))
def test_stepped_times_lie_on_the_grid(times, steps):
    noise = method(times, "mdlm", steps, "loglinear").noise(
        RowStream(0, 0, range(ROWS), ROWS), VALID
    )
    ticks = noise.t * steps
    torch.testing.assert_close(ticks, ticks.round())
    assert (ticks.round() >= 1).all()
    assert (noise.t <= 1).all()


@pytest.mark.parametrize(
    "name", [name for name in ("udlm", "duo", "diffusion_bert") if name in METHODS]
)
def test_bounds_without_a_time_sampler_have_a_finite_variance(name):
    """Near t = 0 a token has noise with probability t and weighs 1/t, so importance^2 / t must be bounded."""
    rows = 4096
    noise = small_method(name).noise(RowStream(0, 0, range(rows), rows), torch.ones(rows, 4).bool())
    assert float(noise.importance.mean()) == pytest.approx(1, rel=0.01)
    assert float((noise.importance**2 / noise.t).max()) < 50  # uniform times: more than the rows
