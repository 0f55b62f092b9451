"""Gaussian diffusion of vectors: z_t = alpha x + sigma noise, with gamma = log(sigma^2 / alpha^2).

alpha^2 = sigmoid(-gamma) and sigma^2 = sigmoid(gamma), so gamma is minus the log of the signal-to-noise
ratio. gamma grows with t. A method reads the tokens off the vectors at t = 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.diffusion.schedule import Learned
from unmask.diffusion.time_sampler import RowNoise
from unmask.randomness import Keys, RowStream, keyed_normals, stream_keys
from unmask.runtime.device import to_device

Gamma = Float[Tensor, "*level"]  # a shape that broadcasts with the vectors
Vectors = Float[Tensor, "*batch width"]
Variance = Literal["posterior", "released"]
LEAST_SIGNAL = 1e-6  # alpha^2 at t = 1 of schedules that would reach 0


def signal(gamma: Gamma) -> tuple[Gamma, Gamma]:
    """alpha and sigma of a noise level.

    Args:
        gamma: Noise levels.

    Returns:
        alpha and sigma, with alpha^2 + sigma^2 = 1.

    Example:
        >>> round(float(signal(torch.tensor(0.0))[0]) ** 2, 2)
        0.5
    """
    return torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma).sqrt()


def noised(x: Vectors, gamma: Gamma, noise: Vectors) -> Vectors:
    """z_t ~ q(z_t | x) = N(alpha x, sigma^2), from normal noise.

    Args:
        x: Code vectors.
        gamma: Noise levels, of a shape that broadcasts with the vectors.
        noise: Normal numbers.

    Returns:
        The vectors at these noise levels.
    """
    alpha, sigma = signal(gamma)
    return alpha * x + sigma * noise


def posterior_step(
    z_t: Vectors, x: Vectors, gamma_s: Gamma, gamma_t: Gamma, noise: Vectors
) -> Vectors:
    """z_s ~ q(z_s | z_t, x) for s < t; `noise` 0 gives the mean.

    Args:
        z_t: Vectors at time t.
        x: Code vectors, or an estimate of them.
        gamma_s: Noise level of s.
        gamma_t: Noise level of t.
        noise: Normal numbers.

    Returns:
        The vectors at time s.
    """
    alpha_s, sigma_s = signal(gamma_s)
    alpha_t, _ = signal(gamma_t)
    kept = torch.exp(gamma_s - gamma_t)
    c = -torch.expm1(gamma_s - gamma_t)  # 1 - kept
    return alpha_s / alpha_t * kept * z_t + alpha_s * c * x + sigma_s * c.sqrt() * noise


def ddim_step(z_t: Vectors, x: Vectors, gamma_s: Gamma, gamma_t: Gamma) -> Vectors:
    """z_s with the same noise as z_t (arXiv 2010.02502, eta = 0).

    Args:
        z_t: Vectors at time t.
        x: An estimate of the code vectors.
        gamma_s: Noise level of s.
        gamma_t: Noise level of t.

    Returns:
        The vectors at time s.
    """
    (alpha_s, sigma_s), (alpha_t, sigma_t) = signal(gamma_s), signal(gamma_t)
    return alpha_s * x + sigma_s / sigma_t * (z_t - alpha_t * x)


def prior_divergence(x: Vectors, gamma_1: Float[Tensor, ""]) -> Float[Tensor, "*batch"]:
    """KL(q(z_1 | x) || N(0, 1)) of each vector, in nats.

    Args:
        x: Code vectors.
        gamma_1: Noise level of t = 1.

    Returns:
        The divergence, summed over the width.
    """
    alpha_2 = torch.sigmoid(-gamma_1)
    return (alpha_2 * x.square() - alpha_2 - F.logsigmoid(gamma_1)).sum(-1) / 2


def step_divergence(
    error: Float[Tensor, "*batch"],
    width: int,
    gamma_s: Gamma,
    gamma_t: Gamma,
    variance: Variance = "posterior",
) -> Float[Tensor, "*batch"]:
    """KL(q(z_s | z_t, x) || p(z_s | z_t)) of one step, in nats.

    With the posterior's own variance it is (SNR(s) - SNR(t)) / 2 times the squared error. The released
    Diffusion-LM has the variance of q(z_t | z_s) instead, which costs nats even with a perfect estimate.

    Args:
        error: Squared error of the estimate of x, summed over the width.
        width: Width of a vector.
        gamma_s: Noise level of s.
        gamma_t: Noise level of t.
        variance: Variance of the model's step.

    Returns:
        The divergence of each vector.
    """
    c = -torch.expm1(gamma_s - gamma_t)
    if variance == "posterior":
        return c * torch.exp(-gamma_s) / 2 * error
    log_ratio = F.logsigmoid(gamma_s) - F.logsigmoid(gamma_t)  # of the posterior's variance to ours
    mismatch = width * (torch.expm1(log_ratio) - log_ratio) / 2
    return mismatch + torch.sigmoid(-gamma_s) * c / torch.sigmoid(gamma_t) / 2 * error


@dataclass(frozen=True)
class GaussianNoise(RowNoise):
    """A time and a weight of each row, and the keys of its normal noise, which the device computes."""

    importance: Float64[Tensor, "rows"]
    keys: Keys

    def normal(
        self,
        site: int,
        like: Float[Tensor, "rows length width"],
        first: Int64[Tensor, "rows"] | None = None,
    ) -> Tensor:
        """Normal numbers of the shape, dtype and device of `like`, of their own for each site.

        The vectors of a row begin at position `first`, or at 0.
        """
        keys = to_device(self.keys, like.device)
        return keyed_normals(keys, site, like.shape[1], like.shape[2], like.dtype, first)


@dataclass(frozen=True)
class StepNoise(GaussianNoise):
    """Noise of a bound: the mean of f over the steps (or over uniform t) is E[importance * f(s, t)]."""

    s: Float64[Tensor, "rows"]  # time before t in a bound of T steps; t itself in continuous time
    start: Bool[Tensor, "rows"]  # True at rows that train the reconstruction, at t = 0
    guessed: Bool[Tensor, "rows"]  # True at rows with self-conditioning


class GammaSchedule(ABC):
    """gamma(t) of Gaussian diffusion, increasing in t."""

    @abstractmethod
    def gamma(self, t: Gamma) -> Gamma:
        """The noise level.

        Args:
            t: Times in [0, 1].

        Returns:
            gamma(t).
        """


def uniform_times(stream: RowStream) -> Float64[Tensor, "rows"]:
    """Uniform times in [0, 1), stratified over the rows."""
    return (stream.strata() + stream.uniform("time", 1)[:, 0]) / stream.total


@torch.no_grad()
def bound_noise(
    stream: RowStream, gammas: GammaSchedule, steps: int = 0, guessed: float = 0.0
) -> StepNoise:
    """Noise of a bound, in continuous time or in T steps.

    A step has a probability proportional to its range of gamma.

    Args:
        stream: Randomness of the rows.
        gammas: Noise schedule.
        steps: T of the bound; 0 is continuous time.
        guessed: Share of the rows with self-conditioning.

    Returns:
        The noise of each row.
    """
    u = uniform_times(stream)
    if not steps:
        return _step_noise(stream, u, u, torch.ones_like(u), guessed)
    grid = torch.arange(steps + 1, dtype=torch.float64) / steps
    gamma = gammas.gamma(grid)
    share = (gamma - gamma[0]) / (gamma[-1] - gamma[0])
    step = torch.searchsorted(share[1:], u, right=True).clamp(max=steps - 1)
    chance = share[step + 1] - share[step]
    return _step_noise(stream, grid[step + 1], grid[step], 1 / chance, guessed)


def uniform_noise(stream: RowStream, steps: int = 0, guessed: float = 0.0) -> StepNoise:
    """Noise with uniform times, for losses that weigh all times alike.

    Args:
        stream: Randomness of the rows.
        steps: T of the bound; 0 is continuous time.
        guessed: Share of the rows with self-conditioning.

    Returns:
        The noise of each row.
    """
    u = uniform_times(stream)
    t = torch.ceil((1 - u) * steps) / steps if steps else u
    s = t - 1 / steps if steps else t
    return _step_noise(stream, t, s, torch.ones_like(u), guessed)


def _step_noise(
    stream: RowStream, t: Tensor, s: Tensor, importance: Tensor, guessed: float
) -> StepNoise:
    chosen = stream.uniform("guess", 1)[:, 0] < guessed
    keys = stream_keys(stream, "gaussian")
    return StepNoise(t, importance, keys, s, torch.zeros_like(chosen), chosen)


@dataclass(frozen=True)
class SquareRoot(GammaSchedule):
    """alpha^2 = 1 - sqrt(t + offset): Diffusion-LM (arXiv 2205.14217)."""

    offset: float = 1e-4

    def gamma(self, t: Gamma) -> Gamma:
        noise = (t + self.offset).sqrt()
        return torch.log(noise) - torch.log((1 - noise).clamp(min=LEAST_SIGNAL))


@dataclass(frozen=True)
class CosineSignal(GammaSchedule):
    """alpha^2 = cos^2(pi t / 2) with a limit at both ends, where gamma would be infinite."""

    least: float = -6.0
    most: float = 10.0

    def gamma(self, t: Gamma) -> Gamma:
        angle = torch.pi / 2 * t
        return (2 * torch.log(torch.tan(angle))).nan_to_num(self.most).clamp(self.least, self.most)


class LearnedGamma(nn.Module, GammaSchedule):
    """A monotone polynomial between two learned ends: Plaid's schedule (arXiv 2305.18619).

    The ends minimise the bound. The bound does not depend on the values between them, which minimise its
    variance.
    """

    def __init__(self, first: float, last: float, degree: int) -> None:
        super().__init__()
        self.ends = nn.Parameter(torch.tensor([first, last]))
        self.between = Learned(Learned.Config(degree=degree, eps=0.0))

    def gamma(self, t: Gamma) -> Gamma:
        return self.gamma_and_slope(t)[0]

    def gamma_and_slope(
        self, t: Gamma, hook: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Gamma, Gamma]:
        """The noise level and its derivative in t.

        Args:
            t: Times in [0, 1].
            hook: Changes the gradient that reaches the values between the ends.

        Returns:
            gamma(t) and gamma'(t), differentiable in the parameters.
        """
        first, last = self.ends.to(t)
        share, slope = 1 - self.between.alpha(t), -self.between.alpha_prime(t)
        if hook is not None and share.requires_grad:
            share.register_hook(hook)
            slope.register_hook(hook)
        return first + (last - first) * share, (last - first) * slope
