"""With a perfect denoiser every bound is the entropy; with any other it is still a bound."""

from dataclasses import fields
from itertools import pairwise, product

import pytest
import torch
from builders import schedule
from kit import (
    Language,
    ends_gap,
    expected_bound,
    expected_terms,
    likelihood,
    reverse_process,
    table_method,
)

from unmask.diffusion.schedule import SCHEDULES
from unmask.methods.method import METHODS

LANGUAGE = Language.random()
SCHEDULE_NAMES = list(SCHEDULES)
DIFFUSIONS = [  # blocks have laws of their own
    name
    for name in METHODS
    if METHODS[name].capabilities.time_bound and not METHODS[name].capabilities.blocks
]
CONTINUOUS = [name for name in DIFFUSIONS if not getattr(METHODS[name].Config(), "steps", 0)]
STEPPED = [  # every combination of a method's switches
    pytest.param(name, dict(zip(names, values, strict=True)), id=f"{name}{values}")
    for name in DIFFUSIONS
    if hasattr(METHODS[name].Config(), "steps")
    for names in [[field.name for field in fields(METHODS[name].Config) if field.type is bool]]
    for values in product([False, True], repeat=len(names))
]


def ends(method) -> tuple[float, float]:
    t = torch.tensor([1.0, 0.0 if method.steps else method.time_sampler.t_min], dtype=torch.float64)
    first, last = method.schedule.alpha(t).tolist()
    return first, last


@pytest.mark.parametrize("times", ["uniform", "importance"])
@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("name", SCHEDULE_NAMES)
@pytest.mark.parametrize("kind", CONTINUOUS)
def test_continuous_bound_is_the_entropy_and_what_the_ends_cost(kind, name, eps, times):
    method = table_method(kind, LANGUAGE, schedule(name, eps=eps), times=times)
    gap = ends_gap(LANGUAGE, *ends(method))
    assert gap >= -1e-12
    assert expected_bound(method, LANGUAGE) == pytest.approx(LANGUAGE.entropy + gap, abs=1e-6)


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_without_ends_it_is_the_entropy_alone(kind):
    method = table_method(kind, LANGUAGE, schedule("loglinear", eps=0.0), times="importance")
    terms = expected_terms(method, LANGUAGE)
    assert float(LANGUAGE.table @ terms["diffusion"]) == pytest.approx(LANGUAGE.entropy, abs=1e-6)


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
@pytest.mark.parametrize(("kind", "switches"), STEPPED)
def test_stepped_bound_falls_towards_the_entropy(kind, switches, name):
    bounds = [
        expected_bound(
            table_method(kind, LANGUAGE, schedule(name, eps=0.0), steps=steps, **switches), LANGUAGE
        )
        for steps in (1, 2, 8, 64)
    ]
    assert all(finer <= coarser + 1e-6 for coarser, finer in pairwise(bounds))
    assert (
        LANGUAGE.entropy - 1e-6
        <= bounds[-1]
        <= LANGUAGE.entropy + 0.1 * (bounds[0] - LANGUAGE.entropy)
    )


@pytest.mark.parametrize("name", [name for name in SCHEDULES if hasattr(schedule(name), "eps")])
@pytest.mark.parametrize(("kind", "switches"), STEPPED)
def test_one_and_two_steps_cost_what_guessing_at_once_costs(kind, switches, name):
    noise = schedule(name, eps=0.0)
    half = noise.alpha(torch.tensor([0.5], dtype=torch.float64)).item()
    for steps, guessed in [(1, 1.0), (2, half)]:
        method = table_method(kind, LANGUAGE, noise, steps=steps, **switches)
        expected = LANGUAGE.entropy + ends_gap(LANGUAGE, guessed, guessed)
        assert expected_bound(method, LANGUAGE) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(("kind", "switches"), STEPPED)
@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_stepped_bound_is_finite_and_a_bound_for_every_number_of_steps(name, kind, switches, steps):
    language = Language.random(2, 2)
    method = table_method(kind, language, schedule(name), steps=steps, **switches)
    assert language.entropy - 1e-6 <= expected_bound(method, language) < 2 * language.entropy


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("ends", [{"eps": 0.0}, {"eps": 0.2, "sigma_min": 0.2, "sigma_max": 2.0}])
@pytest.mark.parametrize(("kind", "switches"), STEPPED)
@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_bound_of_a_bad_network_is_no_less_than_its_exact_likelihood(
    name, kind, switches, ends, steps
):
    leak = 0.0 if switches.get("zero_masking", True) else 0.2
    conditionals = LANGUAGE.wrong_conditionals(leak)
    noise = schedule(name, **ends)
    method = table_method(kind, LANGUAGE, noise, conditionals, steps=steps, **switches)
    bound = torch.stack(list(expected_terms(method, LANGUAGE).values())).sum(0)
    carry_over = switches.get("carry_over", True)
    exact = -likelihood(LANGUAGE, noise, steps, conditionals, carry_over).log()
    assert (bound >= exact - 1e-6).all()


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_reverse_process_of_the_oracle_comes_close_to_the_language(name):
    def distance(steps):
        mass = reverse_process(LANGUAGE, schedule(name), steps)
        assert float(mass.sum()) == pytest.approx(1)
        return float((mass - LANGUAGE.table).abs().sum())

    assert distance(256) < 0.05 * distance(1)
