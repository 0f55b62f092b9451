"""What a method is: a bound that training minimises and evaluation reports, and a denoiser for samplers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.backbones.backbone import Backbone
from unmask.backbones.compile import compile_backbone
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.errors import UnmaskError
from unmask.randomness import RowStream
from unmask.registry import Registry
from unmask.runtime.device import emulation, to_device
from unmask.shapes import Tokens, Valid
from unmask.vocabulary import Vocabulary


@dataclass(frozen=True)
class Losses:
    """A bound on the negative log-likelihood, in nats: its differentiable sum and its parts by token.

    With noise of `training_noise` it is the training loss, whose weights may differ from the bound's.
    """

    total: Float[Tensor, ""]
    terms: dict[str, Float[Tensor, "rows length"]]

    def per_token(self) -> Float[Tensor, "rows length"]:
        """All terms together, at each token."""
        return torch.stack(list(self.terms.values())).sum(0)


@dataclass(frozen=True)
class Serving:
    """How a method is asked: in which precision, and as the questions come or at few shapes."""

    dtype: torch.dtype = torch.float32
    fixed: bool = False


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters, by the start of their names, that the optimizer treats in their own way.

    Example:
        >>> ParameterGroup("codes.", lr=0.1, weight_decay=0.0)
        ParameterGroup(prefix='codes.', lr=0.1, weight_decay=0.0)
    """

    prefix: str
    lr: float = 1.0  # times the learning rate of the others
    weight_decay: float | None = None  # the run's own unless given


@dataclass(frozen=True)
class Capabilities:
    """Facts about a method that other packages rely on, instead of its class."""

    causal: bool = False  # it needs a causal network and writes from left to right
    any_network: bool = False  # it takes causal and bidirectional networks
    noise_level: bool = False  # it needs a network that reads the noise level
    generate: bool = True  # it writes text
    infill: bool = True  # it fills gaps with both sides in view
    time_bound: bool = False  # its bound is a mean over time: time samplers, bound of T steps
    any_order: bool = False  # it knows a token given any others: the chain rule in every order
    shared_head: bool = False  # calls of log_x_theta by several texts can share one pass
    latent: bool = False  # it diffuses vectors, which its own samplers round to tokens
    per_row: bool = False  # its loss is one number a row, as a classifier's


class Method(nn.Module, ABC):
    """A way to make a likelihood model of a backbone."""

    certificate: ClassVar[Literal["exact", "upper", "none"]]  # what nll is of the true value
    capabilities: ClassVar[Capabilities] = Capabilities()
    sampler: ClassVar[str] = "ancestral"  # the sampler that writes unless another is named
    parameter_groups: tuple[
        ParameterGroup, ...
    ] = ()  # parameters that are trained in their own way
    loss_weight: str = ""  # the name of the training loss's weights, if the bound has others

    def __init__(
        self,
        config: Any,
        backbone: Backbone,
        vocabulary: Vocabulary,
        schedule: Schedule,
        time_sampler: TimeSampler,
    ) -> None:
        super().__init__()
        if self.capabilities.noise_level and not backbone.time_conditioning:
            raise UnmaskError(
                f"{type(self).__name__} depends on the noise level: set backbone.time_conditioning true"
            )
        self.config = config  # the method's own Config
        self.backbone = backbone
        self.vocabulary = vocabulary
        self.schedule = schedule  # the clock of the noise and of every sampler
        self.time_sampler = time_sampler
        self.serving = Serving()

    @abstractmethod
    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> RowNoise | None:
        """The randomness of a loss, a pure function of (seed, step, row); `time_sampler` replaces the method's own."""

    def training_noise(self, stream: RowStream, valid: Valid) -> RowNoise | None:
        """The randomness of the training loss: `noise`, unless training weighs times differently."""
        return self.noise(stream, valid)

    @abstractmethod
    def nll(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        full_bound: bool = False,
        given: Valid | None = None,
    ) -> Losses:
        """Terms of the bound under a draw of `noise`; `full_bound` adds those at the ends of time.

        With `full_bound`, the mean over draws is the full bound, which validation and evaluation report.
        `given` tokens are seen and cost nothing: the bound is one of the others given them, and the
        noise is drawn for the others alone.
        """

    def forward(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> Float[Tensor, ""]:
        """The training loss of rows, summed over their tokens; DDP and FSDP wrap this call.

        It is the bound without its ends, or, with a `loss_weight`, a loss with other weights.

        Args:
            x: token ids, on the CPU.
            valid: True where a token is no padding.
            given: True at tokens that cost nothing; None if all tokens cost.
            stream: the randomness of these rows.
        """
        with torch.autocast(self.device.type, enabled=False):  # times and schedules are exact
            noise = self.training_noise(stream, targets(valid, given))
        return self.nll(to_device(x, self.device), valid, noise, given=given).total

    def passes(self, rows: int) -> set[int]:
        """How many rows the network reads at a time, in training on so many."""
        return {rows}

    @abstractmethod
    def denoiser(self) -> Denoiser:
        """A fresh callable for one generation; it may remember what it has computed."""

    def serve(self, dtype: torch.dtype = torch.float32, compile: bool = False) -> None:
        """Makes ready to be asked often: weights worked out once, calls of few shapes captured on a GPU."""
        self.backbone.freeze(dtype)
        if compile:
            compile_backbone(self.backbone)
        fixed = self.device.type == "cuda" or (compile and self.device.type == "cpu")
        self.serving = Serving(dtype, fixed)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    @property
    def edition(self) -> tuple[Serving, int]:
        """What graphs are made of: those of another edition read weights that are no longer there."""
        return self.serving, self.backbone.edition

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Autocast's types, where the network serves in half precision."""
        if self.serving.dtype == torch.float32:
            yield
            return
        # a cache of cast weights would outlive the graph that it was made in
        cast = torch.autocast(self.device.type, dtype=self.serving.dtype, cache_enabled=False)
        with emulation(self.device, "bf16"), cast:
            yield


METHODS: Registry[Method] = Registry("method")


def padding(valid: Valid, device: torch.device) -> Valid | None:
    """The mask that a backbone needs: none when nothing is padding, which is the fast path."""
    return None if bool(valid.all()) else to_device(valid, device)


def targets(valid: Valid, given: Valid | None) -> Valid:
    """The tokens that a loss falls on."""
    return valid if given is None else valid & ~given


def spread(
    values: Float[Tensor, "tokens"], at: Int[Tensor, "tokens"], like: Tokens
) -> Float[Tensor, "rows length"]:
    """Values at some tokens, and zeros elsewhere."""
    return values.new_zeros(like.numel()).index_copy(0, at, values).view(like.shape)
