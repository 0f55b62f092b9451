"""Samplers that claim to be exact draw from the enumerated distribution, whatever the batch."""

import dataclasses

import pytest
import torch
from builders import schedule
from kit import Language, p_value, reverse_process

from unmask.diffusion import SCHEDULES
from unmask.samplers import SAMPLERS, Canvas, LeftToRight, Plan, Sampler, last_frame

LANGUAGE = Language.random()
EXACT = [name for name in SAMPLERS if SAMPLERS[name].exact]
RARELY = 1e-4  # a right sampler fails a test with this chance, once for the fixed seeds
SEEDS = list(range(5000))
INFILL = torch.tensor([3, 1, 3])  # MASK is 3: the middle is given


def build(name: str, steps: int = 3) -> Sampler:
    fields = {field.name for field in dataclasses.fields(SAMPLERS[name])}
    return SAMPLERS.build(name, **({"steps": steps} if "steps" in fields else {}))


def sample(sampler, name, start, seeds: list[int]) -> torch.Tensor:
    canvas = Canvas(start.expand(len(seeds), -1).clone(), LANGUAGE.size)
    frames = sampler.generate(LANGUAGE.denoise, canvas, Plan(seeds, schedule(name)))
    return last_frame(frames, canvas).tokens


def counts(tokens: torch.Tensor) -> torch.Tensor:
    index = LANGUAGE.index(tokens, LANGUAGE.size)
    return torch.bincount(index, minlength=len(LANGUAGE.table)).double()


def target(sampler, name, start) -> torch.Tensor:
    """T steps of the reverse process; without steps, the language itself, given what is fixed."""
    if hasattr(sampler, "steps"):
        return reverse_process(LANGUAGE, schedule(name), sampler.steps, start)
    agrees = ((start == LANGUAGE.size) | (start == LANGUAGE.sequences)).all(1)
    return LANGUAGE.table * agrees / (LANGUAGE.table * agrees).sum()


EMPTY = torch.full_like(INFILL, LANGUAGE.size)


@pytest.mark.parametrize("name", list(SCHEDULES))
@pytest.mark.parametrize("which", EXACT)
def test_samples_follow_the_enumerated_distribution(which, name):
    sampler = build(which)
    tokens = sample(sampler, name, EMPTY, SEEDS)
    assert p_value(counts(tokens), target(sampler, name, EMPTY)) > RARELY


@pytest.mark.parametrize("which", EXACT)
def test_infills_follow_the_enumerated_conditional_distribution(which):
    sampler = build(which)
    tokens = sample(sampler, "cosine", INFILL, SEEDS)
    assert p_value(counts(tokens), target(sampler, "cosine", INFILL)) > RARELY


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("which", EXACT)
def test_samples_follow_it_at_every_batch_size(which, batch):
    sampler = build(which)
    total = 384 if batch == 1 else 4096
    batches = [range(start, start + batch) for start in range(10_000, 10_000 + total, batch)]
    tokens = torch.cat([sample(sampler, "loglinear", EMPTY, list(seeds)) for seeds in batches])
    assert p_value(counts(tokens), target(sampler, "loglinear", EMPTY)) > RARELY
    together = sample(sampler, "loglinear", EMPTY, list(range(10_000, 10_000 + total)))
    assert torch.equal(tokens, together)  # a row depends on its own seed alone


def test_one_step_is_far_from_the_language_and_the_test_would_notice():
    tokens = sample(build("ancestral", steps=1), "loglinear", EMPTY, SEEDS)
    assert p_value(counts(tokens), LANGUAGE.table) < 1e-12


def test_left_to_right_is_the_chain_rule():
    tokens = sample(LeftToRight(), "loglinear", EMPTY, SEEDS)
    assert p_value(counts(tokens), LANGUAGE.table) > RARELY


def test_many_steps_come_to_the_language():
    tokens = sample(build("ancestral", steps=1000), "loglinear", EMPTY, SEEDS)
    assert p_value(counts(tokens), LANGUAGE.table) > RARELY
