"""Laws of DiffusionBERT: bounds by enumeration and its sampler by chi-square, with Bayes' rule."""

import math

import pytest
import torch
from builders import schedule, small_method
from kit import Language, gauss_legendre, p_value
from torch import Tensor, nn

from unmask.backbones.backbone import Backbone
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Noise
from unmask.extensions.diffusion_bert.methods.diffusion_bert import (
    DiffusionBERT,
    MaskUniforms,
    spindle_alpha,
    spindle_rate,
)
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS
from unmask.shapes import Batch

PAIRS = Language.random(3, 2, seed=2)


class Bayes(Backbone):
    """A network that computes log p(x_l | z_t); `published` gives the minimiser of the published ELBO."""

    time_conditioning = True

    def __init__(self, language: Language, published: bool) -> None:
        super().__init__(None, language.vocabulary)
        self.language, self.published, self.method = language, published, None
        self.head = nn.Linear(language.size + 1, language.size + 1).double()
        nn.init.eye_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def features(
        self, z: Tensor, sigma: Tensor | None = None, at: Tensor | None = None, **rest: object
    ) -> Tensor:
        x, size = self.language.sequences, self.language.size
        [method] = self.of
        t = (1 - torch.exp(-sigma.double()))[:, None, None]
        valid = torch.ones_like(x).bool()
        information = method.row_information(x, valid) if self.published else method.information[x]
        information = information.double()
        alpha = spindle_alpha(t, information, method.config.weight)  # [rows, sequences, length]
        masked = (z == size)[:, None]
        agrees = torch.where(masked, 1 - alpha, alpha * (z[:, None] == x))
        mass = (self.language.table * agrees.prod(-1))[..., None].expand_as(alpha)
        if self.published:
            mass = mass * spindle_rate(t, information, method.config.weight)
        one_hot = nn.functional.one_hot(x, size + 1).double()
        h = torch.einsum("rsl,slv->rlv", mass, one_hot)
        h = (h / h.sum(-1, keepdim=True)).log().clamp(min=-1e4)
        return h if at is None else h.flatten(0, 1)[at]


def exact(language: Language, weight: float = 0.3, published: bool = False) -> DiffusionBERT:
    """The method with Bayes' rule and the frequencies of the language."""
    network = Bayes(language, published)
    parts = schedule("loglinear", eps=0.0), TIME_SAMPLERS.build("uniform")
    config = DiffusionBERT.Config(weight=weight)
    method = DiffusionBERT(config, network, language.vocabulary, *parts).double().eval()
    network.__dict__["of"] = [method]
    one_hot = nn.functional.one_hot(language.sequences, language.size + 1).double()
    method.set_frequencies(1e6 * torch.einsum("s,slv->v", language.table, one_hot))
    return method


@torch.no_grad()
def expected(method: DiffusionBERT, language: Language, published: bool = False) -> float:
    """The bound, or the published ELBO, averaged over masks, times and the language."""
    masks = language.masks.repeat(len(language.sequences), 1)
    x = language.sequences.repeat_interleave(len(language.masks), 0)
    valid, weights = torch.ones_like(masks), language.table.repeat_interleave(len(language.masks))
    own = method.row_information(x, valid) if published else method.information[x]
    u, w = gauss_legendre(24)
    total = 0.0
    for t, weight in zip((u**3).tolist(), (3 * u**2 * w).tolist(), strict=True):
        rows = torch.full((len(x),), t, dtype=torch.float64)
        noise = MaskUniforms(rows, torch.where(masks, 0.0, 1.0).double(), torch.ones_like(rows))
        losses = (
            method.published_elbo(Batch(x, valid), noise)
            if published
            else method.nll(Batch(x, valid), noise, full_bound=True)
        )
        alpha = spindle_alpha(rows[:, None], own, method.config.weight)
        chance = torch.where(masks, 1 - alpha, alpha).prod(1)
        total += weight * float((weights * chance) @ losses.per_token().sum(1).double())
    return total


def test_the_bound_is_the_entropy_and_the_published_elbo_falls_below_it():
    assert expected(exact(PAIRS), PAIRS) == pytest.approx(PAIRS.entropy, abs=1e-4)
    assert expected(exact(PAIRS, published=True), PAIRS, True) < PAIRS.entropy - 1e-3


def test_without_differences_of_tokens_it_is_mdlm():
    ours, mdlm = small_method("diffusion_bert", weight=0.0), small_method("mdlm")
    mdlm.schedule = schedule("loglinear", eps=0.0)
    ours.set_frequencies(torch.arange(11).double())
    x = torch.randint(1, 10, (6, 10), generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(x).bool()
    u = torch.rand(6, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    t = torch.linspace(0.1, 1, 6, dtype=torch.float64)
    found = ours.nll(Batch(x, valid), MaskUniforms(t, u, torch.ones_like(t))).per_token()
    masked = u < t[:, None]
    noise = Noise(t, masked, torch.ones_like(t), 0.0, torch.zeros_like(masked))
    torch.testing.assert_close(
        found, mdlm.nll(Batch(x, valid), noise).per_token(), rtol=1e-4, atol=1e-5
    )


def test_schedules_fall_and_rare_tokens_are_masked_first():
    t = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None]
    alpha = spindle_alpha(t, torch.tensor([-1.0, 0.0, 1.0]), 0.999 / math.pi)
    assert (alpha.diff(dim=0) < 0).all()
    assert (alpha[1:-1, 0] > alpha[1:-1, 1]).all() and (alpha[1:-1, 1] > alpha[1:-1, 2]).all()


@torch.no_grad()
def test_the_sampler_draws_the_language_as_its_steps_grow():
    method, rows = exact(PAIRS), 1000
    canvas = Canvas(torch.full((rows, 2), PAIRS.size), PAIRS.size)
    task = SamplingTask(list(range(rows)), method.schedule, watched=False)
    values = []
    for steps in (1, 32):
        frames = SAMPLERS.build("token_schedule", steps=steps)
        found = last_frame(frames.generate(method.denoiser(), canvas, task), canvas).tokens
        counts = torch.bincount(PAIRS.index(found, PAIRS.size), minlength=len(PAIRS.table))
        values.append(p_value(counts.double(), PAIRS.table))
    assert values[0] < 1e-6 and values[1] > 1e-3
