"""Laws of Gaussian diffusion: bounds by quadrature and samplers by chi-square, with the exact denoiser."""

import math
from unittest.mock import patch

import pytest
import torch
from builders import small_method
from kit import Language, distance, gauss_legendre, p_value

from unmask.diffusion.schedule import SCHEDULES
from unmask.extensions.vectors.diffusion.gaussian import StepNoise, signal
from unmask.extensions.vectors.methods.latent_diffusion import LatentDiffusion
from unmask.extensions.vectors.methods.vector_method import LatentDenoiser, VectorMethod
from unmask.randomness import RowStream
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS
from unmask.shapes import Batch

ONE, TWO = Language.random(3, 1), Language.random(2, 2, seed=1)
PAIRS = Language.random(3, 2, seed=2)


def exact(
    name: str, language: Language, reads_guess: bool = True, **fields: object
) -> VectorMethod:
    """A method whose network is Bayes' rule; a certain guess makes a token known, if it reads that."""
    if name in ("plaid", "analog_bits"):
        fields["self_conditioning"] = 0.0
    method = small_method(name, language.size + 1, **fields)
    assert isinstance(method, VectorMethod)
    method.double()
    with torch.no_grad():
        if name == "plaid":
            method.gammas.ends.copy_(torch.tensor([method.config.gamma_first, 6.0]))
        if name == "diffusion_lm":
            # codes of one norm, far apart, so that the inner product finds the nearest
            angle = torch.arange(language.size + 1) * 2 * torch.pi / language.size
            method.codebook.weight.copy_(3 * torch.stack([angle.cos(), angle.sin()], 1))
            method.codebook.bias.zero_()

    def predict(z, gamma, guess, valid=None):
        codes = method.codes.detach().double()
        alpha, sigma = signal(gamma.double()[:, None, None])
        x = codes[language.sequences[:, : z.shape[1]]]  # a block hides the tokens behind it
        far = (z[:, None] - alpha[..., None] * x).square().sum(-1) / (2 * sigma**2)
        known, agrees = (guess != 0).any(-1), (guess[:, None] == x).all(-1)
        if reads_guess:
            far = torch.where(known[:, None], torch.where(agrees, 0.0, math.inf), far)
        weight = torch.softmax(language.table.log() - far.sum(-1), -1)
        one_hot = torch.nn.functional.one_hot(language.sequences, language.size + 1).double()
        marginals = torch.einsum("rs,slv->rlv", weight, one_hot[:, : z.shape[1]])
        log_p = marginals.clamp(min=1e-300).log()  # 0 would have no gradient
        return log_p if name in ("plaid", "ssd_lm") else marginals @ codes

    method.predict = predict
    return method


def hermite(dimensions: int, count: int = 28) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes and weights of an integral over normal numbers (Golub and Welsch)."""
    off = torch.arange(1, count, dtype=torch.float64).sqrt()
    x, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    grid = torch.cartesian_prod(*[x] * dimensions).view(-1, dimensions)
    weight = torch.cartesian_prod(*[vectors[0] ** 2] * dimensions).view(-1, dimensions).prod(1)
    return grid, weight


@torch.no_grad()
def expected_bound(method: LatentDiffusion, language: Language, count: int = 28) -> float:
    """The bound of the method's own `nll`, integrated over noise, times and the language."""
    width = method.codes.shape[1]
    nodes, weight = hermite(language.length * width, count)
    x = language.sequences.repeat_interleave(len(nodes), 0)
    chance = (language.table[:, None] * weight).flatten()
    nodes = nodes.view(-1, language.length, width).repeat(len(language.sequences), 1, 1)
    valid, rows = torch.ones_like(x, dtype=torch.bool), len(x)
    if method.steps:
        t = torch.arange(1, method.steps + 1, dtype=torch.float64) / method.steps
        times = [(each - 1 / method.steps, each, 1.0) for each in t.tolist()]
    else:
        times = [
            (t, t, w) for t, w in zip(*map(torch.Tensor.tolist, gauss_legendre(24)), strict=True)
        ]
    total = 0.0
    for number, (s, t, importance) in enumerate(times):
        t, s, importance = (
            torch.full((rows,), value, dtype=torch.float64) for value in (t, s, importance)
        )
        never, keys = torch.zeros(rows, dtype=torch.bool), torch.zeros(rows, 2, dtype=torch.int32)
        noise = StepNoise(t, importance, keys, s, never, never)
        # the nodes of the quadrature in place of random numbers
        with patch.object(StepNoise, "normal", lambda self, site, like: nodes):
            terms = method.nll(Batch(x, valid), noise, full_bound=True).terms
        counted = [terms["diffusion"]] if number else terms.values()
        total += sum(float(chance @ values.sum(1)) for values in counted)
    return total


@torch.no_grad()
def prior_cost(method: LatentDiffusion, language: Language, count: int = 28) -> float:
    """KL(q(z_1) || N(0, 1)), where q(z_1) is a mixture over the language."""
    codes = method.codes.detach()[language.sequences].flatten(1)
    nodes, weight = hermite(codes.shape[1], count)
    alpha, sigma = signal(method.gammas.gamma(torch.ones(1, dtype=torch.float64)))
    z = alpha * codes[:, None] + sigma * nodes
    far = (z[:, :, None] - alpha * codes).square().sum(-1) / (2 * sigma**2)
    log_q = torch.logsumexp(language.table.log() - far, -1) - codes.shape[1] * sigma.log()
    return float(language.table @ ((log_q + z.square().sum(-1) / 2) @ weight))


def test_plaids_bound_is_the_entropy_plus_the_divergence_of_the_prior():
    method = exact("plaid", ONE, width=2)
    wanted = ONE.entropy + prior_cost(method, ONE)
    assert expected_bound(method, ONE) == pytest.approx(wanted, abs=2e-4)
    assert prior_cost(method, ONE) > 1e-6


def test_tokens_read_apart_cost_plaid_their_correlation():
    """The reconstruction reads each token alone: its cost vanishes as the noise at t = 0 does."""
    gaps = []
    for first in (-1.0, -5.0):
        method = exact("plaid", TWO, width=1, gamma_first=first)
        with torch.no_grad():
            method.codebook.weight.copy_(torch.tensor([[1.0], [-1.0], [1.0]]))
        gaps.append(expected_bound(method, TWO) - TWO.entropy - prior_cost(method, TWO))
    assert gaps[0] > 1e-3
    assert abs(gaps[1]) < 5e-4


@pytest.mark.parametrize("name", ["diffusion_lm", "analog_bits"])
def test_bounds_of_steps_are_above_the_entropy_and_fall_with_the_steps(name):
    fields = {"width": 2} if name == "diffusion_lm" else {}
    few, many = (expected_bound(exact(name, ONE, steps=steps, **fields), ONE) for steps in (4, 64))
    assert few > many > ONE.entropy


def test_clamping_spares_diffusion_lm_the_cost_of_small_errors():
    bounds = {}
    for clamped in (0.0, 0.15):
        method = exact("diffusion_lm", ONE, width=2, steps=64, clamped=clamped)
        bounds["exact", clamped] = expected_bound(method, ONE)
        rough = method.predict
        method.predict = lambda *inputs, rough=rough: rough(*inputs) + 0.2
        bounds["rough", clamped] = expected_bound(method, ONE)
    assert min(bounds.values()) > ONE.entropy
    assert bounds["rough", 0.0] > bounds["exact", 0.0] + 1
    assert bounds["rough", 0.15] < bounds["exact", 0.15] + 0.2 < bounds["exact", 0.0] + 0.5


def test_analog_bits_cost_little_more_than_the_entropy():
    assert expected_bound(exact("analog_bits", ONE, steps=200), ONE) < ONE.entropy + 0.02


def test_the_released_variances_of_diffusion_lm_cost_nats():
    ours, theirs = (
        expected_bound(exact("diffusion_lm", ONE, width=2, steps=32, variance=variance), ONE)
        for variance in ("posterior", "released")
    )
    assert theirs > ours + 0.1


@pytest.mark.parametrize("name", ["diffusion_lm", "analog_bits"])
def test_steps_are_drawn_with_the_chance_that_their_weight_undoes(name):
    method = small_method(name, steps=20)
    noise = method.noise(RowStream(0, 0, range(4096), 4096), torch.ones(4096, 1).bool())
    gamma = method.gammas.gamma(torch.arange(21, dtype=torch.float64) / 20)
    drawn = (noise.t * 20).round().long() - 1
    steps = gamma.diff() > 0
    assert set(drawn.tolist()) <= set(steps.nonzero()[:, 0].tolist())
    assert float(noise.importance.mean()) == pytest.approx(int(steps.sum()), rel=0.02)


def drawn(method: VectorMethod, language: Language, sampler: str, steps: int, rows: int = 2000):
    """Counts of the sequences that a sampler draws, with the first token fixed or none."""
    tokens = torch.full((rows, language.length), language.size)
    return _drawn(method, language, sampler, steps, tokens)


def _drawn(method, language, sampler, steps, tokens):
    task = SamplingTask(list(range(len(tokens))), SCHEDULES.build("loglinear"), watched=False)
    canvas = Canvas(tokens, language.size)
    with torch.no_grad():
        frames = SAMPLERS.build(sampler, steps=steps).generate(method.denoiser(), canvas, task)
        found = last_frame(frames, canvas).tokens
    counts = torch.bincount(language.index(found, language.size), minlength=len(language.table))
    return counts.double()


@pytest.mark.parametrize(
    ("name", "sampler", "fields", "steps"),
    [
        ("plaid", "latent_ancestral", {"width": 2, "gamma_first": -6.0}, 80),
        ("diffusion_lm", "latent_ancestral", {"width": 2}, 200),
        ("analog_bits", "latent_ddim", {}, 80),
        ("ssd_lm", "simplex_blocks", {"block": 1}, 3),
    ],
)
def test_a_sampler_with_the_exact_denoiser_draws_the_language(name, sampler, fields, steps):
    method = exact(name, PAIRS, **fields)
    assert p_value(drawn(method, PAIRS, sampler, steps), PAIRS.table) > 1e-3


@pytest.mark.parametrize(
    ("name", "sampler", "fields"),
    [
        ("plaid", "latent_ancestral", {"width": 2, "gamma_first": -6.0}),
        ("ssd_lm", "simplex_blocks", {"block": 2}),
    ],
)
def test_few_steps_draw_another_language_and_more_steps_come_nearer(name, sampler, fields):
    method = exact(name, PAIRS, **fields)
    few, more = (drawn(method, PAIRS, sampler, steps) / 2000 for steps in (1, 16))
    assert distance(few, PAIRS.table) > 2 * distance(more, PAIRS.table)


@pytest.mark.parametrize(
    ("name", "sampler"), [("plaid", "latent_ancestral"), ("analog_bits", "latent_ddim")]
)
def test_a_fixed_token_conditions_the_others(name, sampler):
    fields = {"width": 2, "gamma_first": -6.0} if name == "plaid" else {}
    method = exact(name, PAIRS, **fields)
    tokens = torch.tensor([[PAIRS.size, 1]]).repeat(2000, 1)
    counts = _drawn(method, PAIRS, sampler, 60, tokens)
    assert p_value(counts, given_one()) > 1e-3


def given_one() -> torch.Tensor:
    """The language given that its second token is 1."""
    agrees = PAIRS.sequences[:, 1] == 1
    return torch.where(agrees, PAIRS.table, 0.0) / PAIRS.table[agrees].sum()


def test_a_fixed_token_conditions_a_network_that_never_trained_with_given_tokens(monkeypatch):
    method = exact("plaid", PAIRS, reads_guess=False, width=2, gamma_first=-6.0)
    tokens = torch.tensor([[PAIRS.size, 1]]).repeat(1000, 1)
    counts = _drawn(method, PAIRS, "latent_ancestral", 60, tokens)
    assert p_value(counts, given_one()) > 1e-3
    monkeypatch.setattr(LatentDenoiser, "condition", lambda self, estimate, *_: estimate)
    noised_only = _drawn(method, PAIRS, "latent_ancestral", 60, tokens)
    assert p_value(noised_only, given_one()) < 1e-6
