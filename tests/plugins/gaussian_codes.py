"""Gaussian diffusion of learned code vectors, with a bound of the likelihood and its own sampler."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from unmask.diffusion.parameterization import zero_masked
from unmask.diffusion.time_sampler import RowNoise
from unmask.methods.method import METHODS, Capabilities, Losses, Method, ParameterGroup
from unmask.randomness import row_uniforms
from unmask.runtime.device import to_device
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.sampler import SAMPLERS, Sampler


@dataclass(frozen=True)
class GaussianNoise(RowNoise):
    """Noise of each vector at time t, and at the time where the diffusion begins."""

    by_token = ("noise", "first")
    noise: Tensor
    first: Tensor


@METHODS.register("gaussian_codes")
class GaussianCodes(Method):
    """z_t = sqrt(alpha) x + sqrt(1 - alpha) noise, where x is the code vector of a token."""

    certificate = "upper"
    capabilities = Capabilities(states="vectors", noise_level=True)
    sampler = "denoise_codes"
    parameter_groups = (ParameterGroup("codes.", lr=0.3, weight_decay=0.0),)

    @dataclass(frozen=True)
    class Config:
        width: int = 16  # of a code
        t_min: float = 0.05  # where the diffusion begins: tokens are decoded from z there

    def __init__(self, config, backbone, *parts):
        super().__init__(config, backbone, *parts)
        self.codes = nn.Embedding(self.vocabulary.size, config.width)
        width = backbone.width
        backbone.embedding = nn.Linear(config.width, width)
        backbone.head = nn.Linear(width, config.width)

    def noise(self, stream, valid, time_sampler=None):
        shape, t_min = (*valid.shape, self.config.width), self.config.t_min
        u = (stream.strata() + stream.uniform("time", 1)[:, 0]) / stream.total
        drawn = (stream.uniform(name, shape[1] * shape[2]) for name in ("z", "z_0"))
        return GaussianNoise(t_min + (1 - t_min) * u, *(normal(each, shape) for each in drawn))

    def tensors_of(self, batch, noise, full_bound=False):
        slope = -self.schedule.alpha_prime(noise.t) / (1 - self.schedule.alpha(noise.t)) ** 2
        weight = ((1 - self.config.t_min) * slope / 2).float()
        drawn = {name: value.float() for name, value in vars(noise).items()}
        rows = {"x": batch.x, "valid": batch.valid, "scored": batch.scored}
        return {**rows, **drawn, "weight": weight}

    def loss_of(self, tensors):
        x, t, scored = tensors["x"], tensors["t"], tensors["scored"]
        codes, start = self.codes(x), torch.full_like(t, self.config.t_min)
        z_t = torch.where(scored[..., None], self.noised(codes, t, tensors["noise"]), codes)
        missed = codes - self.estimate(z_t, t, tensors["valid"])
        last = self.schedule.alpha(torch.ones_like(t[0]))
        prior = last * codes**2 - last - torch.log1p(-last)
        read = self.log_tokens(self.noised(codes, start, tensors["first"]), start)
        terms = {
            "diffusion": tensors["weight"][:, None] * missed.square().sum(-1),
            "prior": prior.sum(-1) / 2,
            "reconstruction": -read.gather(-1, x[..., None])[..., 0],
        }
        terms = {name: values * scored for name, values in terms.items()}
        total = sum(values.sum() for values in terms.values())
        return Losses(total, {name: values.detach() for name, values in terms.items()})

    def denoiser(self):
        return self

    def alpha(self, t, like):
        """alpha_t of each row, as it multiplies vectors."""
        return to_device(self.schedule.alpha(t), like.device, torch.float32)[:, None, None]

    def noised(self, codes, t, noise):
        """z_t of codes."""
        alpha = self.alpha(t, codes)
        return alpha.sqrt() * codes + (1 - alpha).sqrt() * to_device(noise, codes.device)

    def estimate(self, z_t, t, valid=None):
        """The network's estimate of the codes."""
        alpha = self.alpha(t, z_t)
        with self.arithmetic():
            h = self.backbone.features(z_t, 5 * (1 - alpha).flatten(), valid=valid)
            correction = self.backbone.logits(h).float()
        return alpha.sqrt() * z_t + (1 - alpha) * correction

    def log_tokens(self, z, t):
        """log p(token | z_t) by Bayes' rule, all tokens being equally likely; MASK has none."""
        alpha, codes = self.alpha(t, z), self.codes.weight
        near = alpha.sqrt() * (z @ codes.t()) - alpha * codes.square().sum(1) / 2
        return zero_masked(near / (1 - alpha), self.vocabulary.mask_id).log_softmax(-1)


@SAMPLERS.register("denoise_codes")
@dataclass(frozen=True)
class DenoiseCodes(Sampler):
    """Steps from noise to codes; the tokens nearest to them are shown."""

    states = "vectors"
    steps: int = 64

    def generate(self, denoiser, canvas, task):
        state, rows = SamplerState(denoiser, canvas, task), len(canvas.tokens)
        known, fixed = denoiser.codes(canvas.tokens), ~canvas.open[..., None]
        shape, at = known.shape, canvas.open.nonzero(as_tuple=True)
        times = torch.linspace(1, denoiser.config.t_min, self.steps + 1, dtype=torch.float64)
        z = to_device(
            normal(row_uniforms(task.seeds, "z", shape[1] * shape[2]), shape), known.device
        )
        for step, (t, s) in enumerate(pairwise(times), start=1):
            t, s = t.expand(rows), s.expand(rows)
            x = torch.where(fixed, known, denoiser.estimate(torch.where(fixed, known, z), t))
            drawn = normal(row_uniforms(task.seeds, "z", shape[1] * shape[2], step), shape)
            z = posterior(z, x, denoiser.alpha(t, z), denoiser.alpha(s, z), drawn.to(z.device))
            state.count(torch.arange(rows), t)
            state.hide(canvas.open)
            state.write(state.seen(at, denoiser.log_tokens(z, s)[at]), state.uniforms("token"))
            yield state.frame()


def posterior(z, x, alpha_t, alpha_s, noise):
    """z_s given z_t and the codes."""
    ratio = alpha_t / alpha_s
    added = (1 - alpha_t) - ratio * (1 - alpha_s)  # the noise between s and t
    mean = (ratio.sqrt() * (1 - alpha_s) * z + alpha_s.sqrt() * added * x) / (1 - alpha_t)
    return mean + (added * (1 - alpha_s) / (1 - alpha_t)).sqrt() * noise


def normal(uniforms, shape):
    """Normal numbers from uniform ones."""
    return torch.special.ndtri(uniforms.clamp(2**-53, 1 - 2**-53)).view(shape).float()
