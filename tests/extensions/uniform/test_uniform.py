"""Laws of diffusion with uniform tokens: bounds by enumeration and samplers by chi-square, with Bayes' rule."""

from itertools import pairwise

import pytest
import torch
from bayes import Bayes
from builders import schedule
from kit import Language, distance, gauss_legendre, listing, p_value
from torch import Tensor, nn

from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.extensions.uniform.diffusion.uniform_divergence import uniform_prior
from unmask.extensions.uniform.diffusion.uniform_process import UniformProcess
from unmask.extensions.uniform.methods.uniform_diffusion import (
    Replacements,
    TokenDenoiser,
    UniformDiffusion,
)
from unmask.methods.method import METHODS
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS
from unmask.shapes import Batch

PAIRS, TRIPLES = Language.random(3, 2, seed=2), Language.random(3, 3, seed=1)


def exact(
    name: str,
    language: Language,
    leave_one_out: bool = True,
    eps: float = 0.0,
    given: int = 0,
    **fields: object,
) -> UniformDiffusion:
    kind, network = METHODS[name], Bayes(language, leave_one_out, given)
    parts = schedule("loglinear", eps=eps), TIME_SAMPLERS.build("uniform")
    method = kind(kind.Config(**fields), network, language.vocabulary, *parts).eval()
    assert isinstance(method, UniformDiffusion)
    return method


@torch.no_grad()
def expected_bound(method: UniformDiffusion, language: Language) -> float:
    """The bound of the method's own `nll`, averaged over z_t, times and the language."""
    states = listing(language.size, language.length)
    x = language.sequences.repeat_interleave(len(states), 0)
    z = states.repeat(len(language.sequences), 1)
    valid = torch.ones_like(x, dtype=torch.bool)
    if method.steps:
        t = torch.arange(1, method.steps + 1, dtype=torch.float64) / method.steps
        w = torch.full_like(t, 1 / method.steps)
    else:
        u, w = gauss_legendre(24)
        t, w = u**3, 3 * u**2 * w  # the integrand grows like log t
    total = 0.0
    for one, weight in zip(t.tolist(), w.tolist(), strict=True):
        rows = torch.full((len(x),), one, dtype=torch.float64)
        noise = Replacements(rows, torch.ones_like(rows), valid, z)
        loss = method.nll(Batch(x, valid), noise, full_bound=True).per_token().sum(1)
        alpha = method.schedule.alpha(rows)[:, None]
        chance = (alpha * (x == z) + (1 - alpha) / language.size).prod(1)
        total += weight * float(
            (language.table.repeat_interleave(len(states)) * chance) @ loss.double()
        )
    return total


@pytest.mark.parametrize("name", ["udlm", "duo"])
def test_udlms_bound_is_the_entropy_with_the_leave_one_out_posterior_only(name):
    assert expected_bound(exact(name, TRIPLES), TRIPLES) == pytest.approx(TRIPLES.entropy, abs=1e-4)
    assert expected_bound(exact(name, TRIPLES, False), TRIPLES) > TRIPLES.entropy + 0.1


def test_d3pms_bound_falls_to_the_entropy_as_its_steps_grow():
    few, more, many = (
        expected_bound(exact("d3pm_uniform", PAIRS, steps=steps), PAIRS) for steps in (1, 8, 64)
    )
    assert few > more > many > PAIRS.entropy
    assert many < PAIRS.entropy + 0.02


def test_one_token_costs_d3pm_its_entropy_in_any_number_of_steps():
    one = Language.random(4, 1)
    for steps in (1, 3, 20):
        bound = expected_bound(exact("d3pm_uniform", one, steps=steps), one)
        assert bound == pytest.approx(one.entropy, abs=1e-6)


def test_the_prior_costs_the_text_that_is_left_at_the_end():
    alpha = torch.tensor([0.3, 0.0], dtype=torch.float64)
    q = torch.tensor([0.3 + 0.7 / 4, *[0.7 / 4] * 3], dtype=torch.float64)
    wanted = torch.tensor([float((q * (4 * q).log()).sum()), 0.0])
    torch.testing.assert_close(uniform_prior(4, alpha), wanted.double())
    assert expected_bound(exact("udlm", PAIRS, eps=0.2), PAIRS) > PAIRS.entropy


def test_the_reverse_step_is_bayes_rule():
    process, generator = UniformProcess(5, 2), torch.Generator().manual_seed(0)
    mu = torch.rand(6, 5, generator=generator, dtype=torch.float64)
    mu[:, 2] = 0
    mu = mu / mu.sum(1, keepdim=True)
    z_t = process.tokens(torch.rand(6, generator=generator))
    s, t = torch.tensor(0.7).double(), torch.tensor(0.4).double()
    q_s = (s * mu + (1 - s) / 4).index_fill(1, torch.tensor([2]), 0.0)
    step = (1 - t / s) / 4 + t / s * nn.functional.one_hot(z_t, 5)
    wanted = step * q_s / (step * q_s).sum(1, keepdim=True)
    torch.testing.assert_close(process.log_posterior(mu, z_t, s, t).exp(), wanted)


@torch.no_grad()
def drawn(name: str, language: Language, steps: int, rows: int = 1000) -> Tensor:
    """Counts of the sequences that the reverse process draws."""
    method = exact(name, language)
    canvas = Canvas(torch.full((rows, language.length), language.size), language.size)
    task = SamplingTask(list(range(rows)), method.schedule, watched=False)
    sampler = SAMPLERS.build("uniform_ancestral", steps=steps)
    found = last_frame(sampler.generate(method.denoiser(), canvas, task), canvas).tokens
    counts = torch.bincount(language.index(found, language.size), minlength=len(language.table))
    return counts.double()


def test_the_sampler_draws_the_language_as_its_steps_grow():
    few, many = drawn("udlm", PAIRS, 1), drawn("d3pm_uniform", PAIRS, 32)
    assert p_value(many, PAIRS.table) > 1e-3
    assert p_value(few, PAIRS.table) < 1e-6
    assert distance(few, 1000 * PAIRS.table) > 2 * distance(many, 1000 * PAIRS.table)


@torch.no_grad()
def test_steps_correct_tokens_and_leave_fixed_ones():
    method = exact("udlm", TRIPLES)
    canvas = Canvas(torch.tensor([[3, 1, 3]]).repeat(200, 1), 3)
    task = SamplingTask(list(range(200)), method.schedule)
    frames = list(
        SAMPLERS.build("uniform_ancestral", steps=12).generate(method.denoiser(), canvas, task)
    )
    assert all(
        (frame.tokens[:, 1] == 1).all() and not (frame.tokens == 3).any() for frame in frames
    )
    late = sum(int((one.tokens != two.tokens).sum()) for one, two in pairwise(frames[6:]))
    assert late > 0


@torch.no_grad()
def after_one(given: int, steps: int, rows: int = 1000) -> Tensor:
    """Counts of the second token after the fixed first token 1."""
    method = exact("udlm", PAIRS, given=given)
    canvas = Canvas(torch.tensor([[1, 3]]).repeat(rows, 1), 3)
    task = SamplingTask(list(range(rows)), method.schedule, watched=False)
    sampler = SAMPLERS.build("uniform_ancestral", steps=steps)
    found = last_frame(sampler.generate(method.denoiser(), canvas, task), canvas).tokens
    return torch.bincount(found[:, 1], minlength=3).double()


def test_a_prompt_is_exact_only_for_a_network_that_trained_with_prompts_without_noise():
    """Else the network takes the prompt for a noised one, in any number of steps."""
    joint = PAIRS.table.view(3, 3)
    wanted, alone = joint[1] / joint[1].sum(), joint.sum(0)
    assert p_value(after_one(given=1, steps=8), wanted) > 1e-3
    few, many = (after_one(given=0, steps=steps) for steps in (8, 40))
    for counts in (few, many):
        assert p_value(counts, wanted) < 1e-3
    assert distance(many, 1000 * wanted) < distance(few, 1000 * wanted)
    assert distance(many, 1000 * wanted) < distance(1000 * alone, 1000 * wanted) / 2


@torch.no_grad()
def unrolled(steps: int, rows: int = 400) -> tuple[float, float]:
    """Share of the texts that are sentences of a language, and their distance from its distribution.

    The network is Bayes' rule of SUNDAE's noise: each share of replaced tokens is equally likely.
    """
    generator, size, length = torch.Generator().manual_seed(7), 20, 8
    sentences = torch.randint(size, (60, length), generator=generator)
    p = torch.rand(60, generator=generator).double() + 0.05
    p, same = p / p.sum(), torch.arange(length + 1)
    share = gauss_legendre(24)[0][:, None]
    seen = (1 - share + share / size) ** same * (share / size) ** (length - same)
    seen = gauss_legendre(24)[1] @ seen  # q(text | sentence), by the number of equal tokens

    def log_x_theta(z: Tensor, t: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        weight = p * seen[(z[:, None] == sentences).sum(-1)]
        weight = weight / weight.sum(1, keepdim=True)
        one_hot = nn.functional.one_hot(sentences, size + 1).double()
        return torch.einsum("rs,slv->rlv", weight, one_hot)[at].log()

    canvas = Canvas(torch.full((rows, length), size), size)
    task = SamplingTask(list(range(rows)), schedule("loglinear"), watched=False)
    denoiser = TokenDenoiser(UniformProcess(size + 1, size), log_x_theta)
    frames = SAMPLERS.build("unrolled", steps=steps).generate(denoiser, canvas, task)
    found = (last_frame(frames, canvas).tokens[:, None] == sentences).all(-1).double()
    return float(found.sum(1).mean()), float((found.mean(0) - p).abs().sum() / 2)


def test_sundaes_sampler_writes_sentences_of_the_language_as_its_steps_grow():
    (few, _), (many, apart) = unrolled(4), unrolled(64)
    assert 0.2 < few < 0.6
    assert many > 0.98 and apart < 0.25
