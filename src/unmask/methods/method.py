"""Interface of the methods: a bound for training and evaluation, and a denoiser for samplers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from unmask.backbones.backbone import Backbone
from unmask.backbones.compile import compile_backbone
from unmask.backbones.layers.attention_rules import AttentionRule
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.errors import UnmaskError
from unmask.randomness import RowStream
from unmask.registry import Registry
from unmask.runtime.device import emulation, to_device
from unmask.shapes import Batch, Tensors, Tokens, Valid, targets
from unmask.vocabulary import Vocabulary


class Losses(NamedTuple):
    """A bound on the negative log-likelihood, in nats: differentiable sum, and terms per token.

    With noise of `training_noise` it is the training loss, whose weights may differ from the bound's.
    """

    total: Float[Tensor, ""]
    terms: dict[str, Float[Tensor, "rows length"]]  # without gradients

    def per_token(self) -> Float[Tensor, "rows length"]:
        """The bound at each token.

        Returns:
            The sum of all terms.
        """
        return torch.stack(list(self.terms.values())).sum(0)

    def plus(
        self, name: str, total: Float[Tensor, ""], values: Float[Tensor, "rows length"]
    ) -> "Losses":
        """The losses and a further term.

        Args:
            name: Name of the term.
            total: Its sum.
            values: Its value at each token.

        Returns:
            The losses with the term.
        """
        return Losses(self.total + total, {**self.terms, name: values})


@dataclass(frozen=True)
class Serving:
    """Inference settings of a method."""

    dtype: torch.dtype = torch.float32  # precision of the matrix products
    fixed: bool = False  # True: inputs are padded to few shapes, for CUDA graphs and compiled code


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with an own learning rate and weight decay, chosen by the prefix of their names.

    Example:
        >>> ParameterGroup("codes.", lr=0.1, weight_decay=0.0)
        ParameterGroup(prefix='codes.', lr=0.1, weight_decay=0.0)
    """

    prefix: str
    lr: float = 1.0  # factor on the learning rate of the run
    weight_decay: float | None = None  # None: the weight decay of the run


@dataclass(frozen=True)
class Capabilities:
    """Properties of a method. Other packages test these instead of its class."""

    causal: bool = False  # needs a causal network and generates from left to right
    any_network: bool = False  # takes causal and bidirectional networks
    noise_level: bool = False  # needs a network that reads the noise level
    generate: bool = True  # generates text
    infill: bool = True  # fills gaps, with the text on both sides as context
    time_bound: bool = False  # its bound is a mean over time, with time samplers and T-step bounds
    any_order: bool = False  # predicts a token from any others, so the chain rule runs in any order
    blocks: bool = False  # denoises blocks of tokens given the blocks before them
    shared_head: bool = False  # log_x_theta calls of several texts can share one forward pass
    # its states between noise and text, which its samplers share: "masks", "vectors", "blocks" of
    # vectors after a context, or a word of its own
    states: str = "masks"
    token_schedule: bool = False  # each token has its own noise schedule
    per_row: bool = False  # its loss is one number per row, as of a classifier
    # the usual run to start from, if it trains from a trained model; then the last weights count,
    # not those with the best bound
    distills: str = ""
    score: bool = True  # the loss measures a text; False if it is no likelihood of any process

    @property
    def latent(self) -> bool:
        """True if it diffuses vectors, which its own samplers round to tokens."""
        return self.states in ("vectors", "blocks")

    @property
    def writes_once(self) -> bool:
        """True if it generates a text token by token, so that constraints can follow it."""
        return self.generate and self.states == "masks"

    @property
    def masked_lm(self) -> bool:
        """True if the network reads a text with masks and predicts the masked tokens."""
        return self.infill and self.states == "masks"


class Method(nn.Module, ABC):
    """A likelihood model around a backbone: its loss, its bound and its denoiser."""

    # the mean of the full bound is the true value, an upper bound on it, or neither
    certificate: ClassVar[Literal["exact", "upper", "none"]]
    capabilities: ClassVar[Capabilities] = Capabilities()
    sampler: str = "ancestral"  # name of the default sampler
    # parameters with an own learning rate or weight decay
    parameter_groups: tuple[ParameterGroup, ...] = ()
    noise_schedule: ClassVar[str] = (
        "section schedule"  # the noise schedule, for `unmask list methods`
    )
    loss_weight: str = ""  # name of the training loss's weights; empty for those of the bound
    rule: AttentionRule | None = None  # of the network in whole rows; None: the network's own
    whole_rows: bool = True  # False: trained on blocks only, so it sees no text behind a gap
    few_shapes: bool = False  # True: `tensors_of` has few shapes, as a CUDA graph needs

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
                f"{type(self).__name__} needs a backbone that reads the noise level: "
                "set backbone.time_conditioning true"
            )
        self.config = config  # the method's own Config
        self.backbone = backbone
        self.vocabulary = vocabulary
        self.schedule = schedule  # alpha(t) of the noise and of all samplers
        self.time_sampler = time_sampler
        self.serving = Serving()

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> RowNoise | None:
        """The random noise of a loss, a pure function of (seed, step, row).

        Args:
            stream: Randomness of the rows.
            valid: True at tokens that are not padding.
            time_sampler: Time sampler; the method's own by default.

        Returns:
            Noise of each row; None if the loss has none, as by default.
        """
        return None

    def set_frequencies(self, counts: Float64[Tensor, "vocabulary"]) -> None:
        """Receives the token counts of the training rows, before the first step of a run.

        Args:
            counts: Number of occurrences of each id.
        """

    def begin_training(self) -> None:
        """Prepares for training, with the initial weights, before they are resumed, placed or compiled."""

    def training_tensors(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint holds beside the weights, such as a teacher; models lack them.

        Returns:
            Tensors by name. A resumed run writes the saved values into them.
        """
        return {}

    def training_noise(self, stream: RowStream, valid: Valid) -> RowNoise | None:
        """The random noise of the training loss: `noise`, unless training weighs times differently.

        Args:
            stream: Randomness of the rows.
            valid: True at tokens that are not padding.

        Returns:
            Noise of each row; None if the loss has none.
        """
        return self.noise(stream, valid)

    @abstractmethod
    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        """Inputs of `loss_of` for a draw of the noise.

        Args:
            batch: The rows, on the CPU.
            noise: Randomness from `noise` or `training_noise`.
            full_bound: True for the full bound, with its prior and reconstruction terms.

        Returns:
            Tensors by name, on the CPU. If `few_shapes`, their shapes are few, since a CUDA graph
            has one shape.
        """

    @abstractmethod
    def loss_of(self, tensors: Tensors) -> Losses:
        """The loss, from tensors on the device: the one place of the method's equation.

        Training, laws, reports and evaluation call it. It does not wait for the device, so that a
        CUDA graph can compute it.

        Args:
            tensors: The tensors of `tensors_of` by name.

        Returns:
            The loss and its terms per token.
        """

    def loss_tensors(self, batch: Batch, stream: RowStream) -> dict[str, Tensor]:
        """Inputs of `loss_of` for the training loss.

        It is the bound without its prior and reconstruction terms, or a loss with other weights
        (`loss_weight`).

        Args:
            batch: The rows, on the CPU.
            stream: Randomness of these rows.

        Returns:
            Tensors by name, on the CPU.
        """
        return self.tensors_of(batch, self.training_noise(stream, batch.scored))

    def forward(self, batch: Batch, stream: RowStream) -> Losses:
        """The training loss of rows; DDP and FSDP wrap this call.

        Args:
            batch: The rows, on the CPU.
            stream: Randomness of these rows.

        Returns:
            The loss and its terms per token.
        """
        with torch.autocast(self.device.type, enabled=False):  # times and schedules need precision
            tensors = self.loss_tensors(batch, stream)
        return self.loss_of(on_device(tensors, self.device))

    def nll(self, batch: Batch, noise: RowNoise | None, full_bound: bool = False) -> Losses:
        """The loss under a draw of the noise.

        The mean over draws of the full bound is the number that validation and evaluation report.

        Args:
            batch: The rows, on the CPU.
            noise: Randomness from `noise` or `training_noise`.
            full_bound: True for the full bound, with its prior and reconstruction terms.

        Returns:
            The loss and its terms per token.
        """
        with torch.autocast(self.device.type, enabled=False):
            tensors = self.tensors_of(batch, noise, full_bound)
        return self.loss_of(on_device(tensors, self.device))

    @property
    def networks(self) -> list[Backbone]:
        """The networks that a training step computes, to be compiled."""
        return [self.backbone]

    def passes(self, rows: int) -> set[int]:
        """Batch sizes of the network's forward passes in a training step.

        Args:
            rows: Number of rows of the batch.

        Returns:
            The batch sizes, one for each kind of forward pass.
        """
        return {rows}

    def diagnosis(self) -> str:
        """The reason for steps that are not finite, if the parameters show it.

        Returns:
            What is wrong and the mend; empty if the parameters are sound.
        """
        return ""

    @abstractmethod
    def denoiser(self) -> Denoiser:
        """A new denoiser for one generation.

        Returns:
            The denoiser, which may cache features from step to step.
        """

    def serve(self, dtype: torch.dtype = torch.float32, compile: bool = False) -> None:
        """Prepares for inference: precomputes weights and, on a GPU, turns CUDA graphs on.

        Args:
            dtype: Precision of the matrix products.
            compile: True to compile the network.
        """
        self.backbone.freeze(dtype)
        if compile:
            compile_backbone(self.backbone)
        fixed = self.device.type == "cuda" or (compile and self.device.type == "cpu")
        self.serving = Serving(dtype, fixed and self.backbone.static)

    def clean_inputs(self, x: Tokens) -> Tensor:
        """The network's inputs for tokens without noise.

        Args:
            x: Token ids.

        Returns:
            The token ids; vectors if the method diffuses vectors.
        """
        return x

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        found = next(self.parameters(), None)
        # a replica of DataParallel holds its weights as plain tensors
        return self.backbone.head.weight.device if found is None else found.device

    @property
    def edition(self) -> tuple[Serving, int]:
        """Version of settings and weights. A CUDA graph of another edition reads freed weights."""
        return self.serving, self.backbone.edition

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """A context in which matrix products use the inference precision: autocast if it is bfloat16.

        Returns:
            The context manager.
        """
        if self.serving.dtype == torch.float32:
            yield
            return
        # autocast's cache of cast weights would outlive the CUDA graph that allocated it
        cast = torch.autocast(self.device.type, dtype=self.serving.dtype, cache_enabled=False)
        with emulation(self.device, "bf16"), cast:
            yield


METHODS: Registry[Method] = Registry("method")


def methods_that(can: Callable[[Capabilities], bool]) -> str:
    """Names of the methods that can do something, for an error message.

    Args:
        can: The condition on the capabilities.

    Returns:
        The names, such as "d3pm, mdlm or sedd".

    Example:
        >>> methods_that(lambda can: can.causal)
        'autoregressive'
    """
    names = [name for name in METHODS if can(METHODS[name].capabilities)]
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def on_device(tensors: Tensors, device: torch.device) -> dict[str, Tensor]:
    """Tensors by name, on the device; Apple's GPUs have no float64."""
    narrow = device.type == "mps"
    return {
        name: to_device(
            value, device, torch.float32 if narrow and value.dtype == torch.float64 else None
        )
        for name, value in tensors.items()
    }


def padding(valid: Valid, device: torch.device) -> Valid | None:
    """`valid` on the device; None without padding, since attention is faster without a mask."""
    return None if bool(valid.all()) else to_device(valid, device)


def without_last_padding(valid: Valid) -> Valid:
    """`valid`, and True at the padding after each text.

    Example:
        >>> without_last_padding(torch.tensor([[False, True, False]]))
        tensor([[False,  True,  True]])
    """
    return valid | (valid.flip(1).cumsum(1).flip(1) == 0)


def check_lengths(backbone: Backbone, valid: Valid, given: Valid | None) -> None:
    """Raises an error if a source or a target is longer than the network reads.

    Args:
        backbone: The network.
        valid: True at tokens that are not padding, on the CPU.
        given: True at the tokens of the sources; None if the rows are not pairs.
    """
    if given is None or not backbone.pairs:
        return
    for side, places in (("source", given), ("target", targets(valid, given))):
        limit, longest = getattr(backbone, f"longest_{side}"), int(places.sum(1).max())
        if limit is not None and longest > limit:
            reader = "encoder" if side == "source" else "decoder"
            raise UnmaskError(
                f"a {side} has {longest} tokens with its special tokens and the {reader} reads "
                f"{limit}: shorten it, or train with backbone.{side}_positions {longest}"
            )
