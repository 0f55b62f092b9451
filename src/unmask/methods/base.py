"""What a method is: a bound that training minimises and evaluation reports, and a denoiser for samplers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.backbones.base import Backbone
from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampling import Noise, TimeSampler
from unmask.randomness import RowStream
from unmask.registry import Registry
from unmask.vocabulary import Vocabulary

Tokens = Int[Tensor, "rows length"]
Valid = Bool[Tensor, "rows length"]
At = tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]]  # rows and columns
LogProbabilities = Float[Tensor, "tokens vocabulary"]


@runtime_checkable
class Denoiser(Protocol):
    """What a sampler asks: log x_theta at chosen tokens of z_t, at time t (one a row)."""

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities: ...


@dataclass(frozen=True)
class Losses:
    """A bound on the negative log-likelihood, in nats: its differentiable sum and its parts by token."""

    total: Float[Tensor, ""]
    terms: dict[str, Float[Tensor, "rows length"]]

    def per_token(self) -> Float[Tensor, "rows length"]:
        """All terms together, at each token."""
        return torch.stack(list(self.terms.values())).sum(0)


class Method(nn.Module, ABC):
    """A way to make a likelihood model of a backbone."""

    certificate: ClassVar[Literal["exact", "upper"]]  # what nll is of the true value
    order: ClassVar[Literal["any", "left_to_right"]] = "any"  # in which tokens can be generated

    def __init__(
        self,
        config: Any,
        backbone: Backbone,
        vocabulary: Vocabulary,
        schedule: Schedule,
        times: TimeSampler,
    ) -> None:
        super().__init__()
        self.config = config  # the method's own Config
        self.backbone = backbone
        self.vocabulary = vocabulary
        self.schedule = schedule  # the clock of the noise and of every sampler
        self.times = times

    @abstractmethod
    def noise(
        self, stream: RowStream, valid: Valid, times: TimeSampler | None = None
    ) -> Noise | None:
        """The randomness of a loss, a pure function of (seed, step, row); `times` replaces the method's own."""

    @abstractmethod
    def nll(self, x: Tokens, valid: Valid, noise: Noise | None, whole: bool = False) -> Losses:
        """What training minimises; `whole` adds the terms at the ends of time that make it the full bound."""

    @abstractmethod
    def denoiser(self) -> Denoiser:
        """A fresh callable for one generation; it may remember what it has computed."""


METHODS: Registry[Method] = Registry("method")


def padding(valid: Valid) -> Valid | None:
    """The mask that a backbone needs: none when nothing is padding, which is the fast path."""
    return None if bool(valid.all()) else valid
