"""Noise schedules: alpha(t), the probability that a token is unmasked at time t.

At t = 0 all tokens are unmasked, at t = 1 all are masked.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.options import Checked, option
from unmask.registry import Registry

Times = Float[Tensor, "*batch"]


class Schedule(ABC):
    """A decreasing alpha(t) with its derivative and its inverse.

    Example:
        >>> schedule = SCHEDULES.build("loglinear", eps=0.0)
        >>> t = torch.tensor([0.0, 0.25, 1.0])
        >>> schedule.alpha(t).tolist(), schedule.inverse(schedule.alpha(t)).tolist()
        ([1.0, 0.75, 0.0], [0.0, 0.25, 1.0])
    """

    @abstractmethod
    def alpha(self, t: Times) -> Times:
        """Probability that a token is unmasked at time t.

        Args:
            t: Times in [0, 1].

        Returns:
            alpha(t), decreasing in t.
        """

    @abstractmethod
    def alpha_prime(self, t: Times) -> Times:
        """Derivative d alpha / d t.

        Args:
            t: Times in [0, 1].

        Returns:
            The derivative, never positive.
        """

    @abstractmethod
    def inverse(self, alpha: Times) -> Times:
        """The time at which alpha(t) has a value.

        Args:
            alpha: Values of alpha.

        Returns:
            Times in [0, 1].
        """

    def sigma(self, t: Times) -> Times:
        """Total noise sigma, with alpha = exp(-sigma): the input of a time-conditioned network.

        Args:
            t: Times in [0, 1].

        Returns:
            sigma(t).
        """
        return -torch.log(self.alpha(t))

    def sigma_prime(self, t: Times) -> Times:
        """Noise rate d sigma / d t.

        Args:
            t: Times in [0, 1].

        Returns:
            The derivative of sigma, never negative.
        """
        return -self.alpha_prime(t) / self.alpha(t)


SCHEDULES: Registry[Schedule] = Registry("schedule")


@dataclass(frozen=True)
class _Clipped(Checked, Schedule):
    """A schedule with alpha(1) = eps, so that sigma stays finite."""

    eps: float = option(1e-3, ge=0, lt=0.5)

    def _level(self, alpha: Times) -> Times:
        """alpha rescaled to 1 at t = 0 and 0 at t = 1."""
        return ((alpha - self.eps) / (1 - self.eps)).clamp(0, 1)


@SCHEDULES.register("loglinear")
@dataclass(frozen=True)
class LogLinear(_Clipped):
    """alpha = 1 - (1 - eps) t: the paper's choice, with uniform mask ratios."""

    def alpha(self, t: Times) -> Times:
        return 1 - (1 - self.eps) * t

    def alpha_prime(self, t: Times) -> Times:
        return torch.full_like(t, self.eps - 1)

    def inverse(self, alpha: Times) -> Times:
        return 1 - self._level(alpha)


@SCHEDULES.register("cosine")
@dataclass(frozen=True)
class Cosine(_Clipped):
    """alpha = eps + (1 - eps) cos(pi t / 2): more time at few masks."""

    def alpha(self, t: Times) -> Times:
        return self.eps + (1 - self.eps) * torch.cos(math.pi / 2 * t)

    def alpha_prime(self, t: Times) -> Times:
        return -(1 - self.eps) * math.pi / 2 * torch.sin(math.pi / 2 * t)

    def inverse(self, alpha: Times) -> Times:
        return 2 / math.pi * torch.acos(self._level(alpha))


@SCHEDULES.register("cosine_squared")
@dataclass(frozen=True)
class CosineSquared(_Clipped):
    """alpha = eps + (1 - eps) cos^2(pi t / 2): more time at few and at many masks."""

    def alpha(self, t: Times) -> Times:
        return self.eps + (1 - self.eps) * torch.cos(math.pi / 2 * t) ** 2

    def alpha_prime(self, t: Times) -> Times:
        return -(1 - self.eps) * math.pi / 2 * torch.sin(math.pi * t)

    def inverse(self, alpha: Times) -> Times:
        return 2 / math.pi * torch.acos(self._level(alpha).sqrt())


@SCHEDULES.register("polynomial")
@dataclass(frozen=True)
class Polynomial(_Clipped):
    """alpha = 1 - (1 - eps) t^power; power 1 is log-linear."""

    power: float = option(2.0, gt=0)

    def alpha(self, t: Times) -> Times:
        return 1 - (1 - self.eps) * t**self.power

    def alpha_prime(self, t: Times) -> Times:
        return -(1 - self.eps) * self.power * t ** (self.power - 1)

    def inverse(self, alpha: Times) -> Times:
        return (1 - self._level(alpha)) ** (1 / self.power)


@dataclass(frozen=True)
class _Sigma(Schedule):
    """A schedule defined by its total noise, from sigma_min to sigma_max."""

    sigma_min: float = 1e-3
    sigma_max: float = 7.0

    def __post_init__(self) -> None:
        if not 0 < self.sigma_min < self.sigma_max:
            raise UnmaskError(
                f"sigma_min {self.sigma_min} and sigma_max {self.sigma_max} are out of order: "
                "choose 0 < sigma_min < sigma_max"
            )

    def alpha(self, t: Times) -> Times:
        return torch.exp(-self.sigma(t))

    def alpha_prime(self, t: Times) -> Times:
        return -self.sigma_prime(t) * self.alpha(t)

    def _sigma_of(self, alpha: Times) -> Times:
        return -torch.log(alpha.clamp(math.exp(-self.sigma_max), math.exp(-self.sigma_min)))


@SCHEDULES.register("linear")
@dataclass(frozen=True)
class Linear(_Sigma):
    """sigma grows linearly: most of the time at many masks."""

    def sigma(self, t: Times) -> Times:
        return self.sigma_min + t * (self.sigma_max - self.sigma_min)

    def sigma_prime(self, t: Times) -> Times:
        return torch.full_like(t, self.sigma_max - self.sigma_min)

    def inverse(self, alpha: Times) -> Times:
        span = self.sigma_max - self.sigma_min
        return ((self._sigma_of(alpha) - self.sigma_min) / span).clamp(0, 1)


@SCHEDULES.register("geometric")
@dataclass(frozen=True)
class Geometric(_Sigma):
    """sigma grows geometrically: one of SEDD's two schedules."""

    sigma_max: float = 20.0

    def sigma(self, t: Times) -> Times:
        return self.sigma_min ** (1 - t) * self.sigma_max**t

    def sigma_prime(self, t: Times) -> Times:
        return self.sigma(t) * math.log(self.sigma_max / self.sigma_min)

    def inverse(self, alpha: Times) -> Times:
        ratio = torch.log(self._sigma_of(alpha) / self.sigma_min)
        return (ratio / math.log(self.sigma_max / self.sigma_min)).clamp(0, 1)


@SCHEDULES.register("learned")
class Learned(nn.Module, Schedule):
    """A monotone Bernstein polynomial. Training its increments lowers the variance of the bound."""

    @dataclass(frozen=True)
    class Config(Checked):
        degree: int = option(8, ge=1)
        eps: float = option(1e-3, ge=0, lt=0.5)

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        config = config or self.Config()
        self.degree, self.eps = config.degree, config.eps
        self.logits = nn.Parameter(torch.zeros(self.degree))  # equal increments: log-linear

    def _basis(self, t: Times, degree: int) -> Float[Tensor, "*batch terms"]:
        """The Bernstein basis polynomials of a degree."""
        k = torch.arange(degree + 1, device=t.device, dtype=t.dtype)
        # binomial coefficients, computed on the device: a copy from the CPU would break a CUDA
        # graph
        factors = torch.where(k > 0, (degree + 1 - k) / k, 1.0)
        choose = factors.cumprod(0).round()
        t = t[..., None]
        return choose * t**k * (1 - t) ** (degree - k)

    def _increments(self, t: Times) -> Float[Tensor, "degree"]:
        return torch.softmax(self.logits.to(t), 0)

    def alpha(self, t: Times) -> Times:
        increments = self._increments(t)
        heights = torch.cat([increments.new_zeros(1), increments.cumsum(0)])
        return 1 - (1 - self.eps) * (self._basis(t, self.degree) @ heights)

    def alpha_prime(self, t: Times) -> Times:
        slope = self._basis(t, self.degree - 1) @ self._increments(t)
        return -(1 - self.eps) * self.degree * slope

    @torch.no_grad()
    def inverse(self, alpha: Times) -> Times:
        low, high = torch.zeros_like(alpha), torch.ones_like(alpha)
        for _ in range(60):  # bisection to the last bit of a double
            middle = (low + high) / 2
            above = self.alpha(middle) > alpha
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return (low + high) / 2

    def second_moment(
        self, t: Times, loss: Float[Tensor, "*batch"], importance: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """Estimates of E[loss^2] under uniform times, differentiable in this schedule.

        The mean of the bound does not depend on the schedule, so a lower second moment is a lower
        variance. With the mask ratio r = 1 - alpha, the loss is r'(t) g(r), and the second moment
        is the integral of r'(t(r)) g(r)^2 dr. At fixed r only r'(t(r)) depends on the schedule.

        Args:
            t: Drawn times.
            loss: Losses at these times.
            importance: Importance weights of the times.

        Returns:
            The estimate of each time.
        """
        drawn = self.alpha_prime(t).detach()
        alpha = self.alpha(t)
        # t(r) at fixed r: its value is t, and its gradient is dt = -d alpha / alpha'
        t_of_r = t - (alpha - alpha.detach()) / drawn
        return importance * loss.detach() ** 2 * self.alpha_prime(t_of_r) / drawn
