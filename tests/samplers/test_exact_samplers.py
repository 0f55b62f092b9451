"""Exact samplers draw from the enumerated distribution, in any batch."""

import pytest
import torch
from builders import MASK_SAMPLERS, schedule
from drafts import build, conditional, sample, texts
from kit import Language, p_value, reverse_process

from unmask.diffusion.schedule import SCHEDULES
from unmask.samplers.core.time_grid import grid_times
from unmask.samplers.sampler import SAMPLERS

LANGUAGE = Language.random()
EXACT = [name for name in MASK_SAMPLERS if SAMPLERS[name].exact]
STEPPED = [name for name in EXACT if hasattr(SAMPLERS[name], "steps")]
RARELY = 1e-4  # chance that a correct sampler fails a test with a fresh choice of seeds
SEEDS = list(range(2000))
INFILL = torch.tensor([3, 1, 3])  # MASK is 3: the middle is given
EMPTY = torch.full_like(INFILL, LANGUAGE.size)
GIVEN = "1,0.7,0.4,0.1,0"


def target(sampler, name, start) -> torch.Tensor:
    """The distribution of T steps of the reverse process; without steps that of the language,
    given the fixed tokens.
    """
    if not hasattr(sampler, "steps"):
        return conditional(LANGUAGE, start)
    times = grid_times(sampler.grid, sampler.steps).tolist()
    return reverse_process(LANGUAGE, schedule(name), sampler.steps, start, times)


@pytest.mark.parametrize("name", list(SCHEDULES))
@pytest.mark.parametrize("which", EXACT)
def test_samples_follow_the_enumerated_distribution(which, name):
    sampler = build(which, steps=3)
    found = sample(LANGUAGE, sampler, SEEDS, EMPTY, name)
    assert p_value(found, target(sampler, name, EMPTY)) > RARELY


@pytest.mark.parametrize("start", [EMPTY, INFILL], ids=["empty", "infill"])
@pytest.mark.parametrize(("grid", "steps"), [("cosine", 3), (GIVEN, 4)])
@pytest.mark.parametrize("which", STEPPED)
def test_samples_follow_it_on_every_grid(which, grid, steps, start):
    sampler = build(which, steps=steps, grid=grid)
    expected = target(sampler, "loglinear", start)
    assert p_value(sample(LANGUAGE, sampler, SEEDS, start), expected) > RARELY
    even = reverse_process(LANGUAGE, schedule("loglinear"), steps, start)
    assert (expected - even).abs().max() > 1e-3  # the grid matters


@pytest.mark.parametrize("which", EXACT)
def test_infills_follow_the_enumerated_conditional_distribution(which):
    sampler = build(which, steps=3)
    found = sample(LANGUAGE, sampler, SEEDS, INFILL, "cosine")
    assert p_value(found, target(sampler, "cosine", INFILL)) > RARELY


@pytest.mark.parametrize("start", [EMPTY, INFILL], ids=["empty", "infill"])
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("which", EXACT)
def test_a_row_depends_on_its_own_seed_alone(which, batch, start):
    """The distributions of the other tests therefore hold for every batch size."""
    sampler = build(which, steps=3)
    seeds = list(range(10_000, 10_048 if batch == 1 else 10_256))
    tokens = [
        texts(LANGUAGE, sampler, seeds[first : first + batch], start)
        for first in range(0, len(seeds), batch)
    ]
    assert torch.equal(torch.cat(tokens), texts(LANGUAGE, sampler, seeds, start))


def test_the_test_detects_that_one_step_is_far_from_the_language():
    assert p_value(sample(LANGUAGE, build("ancestral", steps=1), SEEDS), LANGUAGE.table) < 1e-12


def test_many_steps_converge_to_the_language():
    found = sample(LANGUAGE, build("ancestral", steps=1000), SEEDS)
    assert p_value(found, LANGUAGE.table) > RARELY
