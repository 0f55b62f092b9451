"""Protocols of denoisers. Methods provide them, and samplers call them."""

from collections.abc import Callable, Hashable
from typing import Literal, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from unmask.diffusion.process import UniformProcess
from unmask.shapes import At, LogProbabilities, Times, Tokens, Valid

# The states between noise and text, which a method and its samplers share: texts with masks, with
# uniform tokens, code vectors, code vectors of one block after a context, or any text
Between = Literal["masks", "uniform", "vectors", "blocks", "text"]


@runtime_checkable
class Denoiser(Protocol):
    """log x_theta at chosen tokens of z_t, with one time t for each row."""

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities: ...


@runtime_checkable
class StaticDenoiser(Protocol):
    """A denoiser that runs inside CUDA graphs, with few input shapes."""

    def condition(self, t: Times) -> Float[Tensor, "rows"] | None:
        """The network's noise level at time t, on the CPU; None without time conditioning."""

    def log_x_theta(self, z_t: Tokens, condition: Tensor | None, at: At) -> LogProbabilities:
        """log x_theta as a function of device tensors."""

    def fits(self, positions: int) -> bool:
        """True if the log-probabilities of this number of positions fit into a graph."""

    def graph(self, key: Hashable, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The CUDA graph of a function that calls `log_x_theta`; a graph of the same key is reused."""


@runtime_checkable
class LengthDenoiser(Denoiser, Protocol):
    """A denoiser of targets whose length is predicted from the source."""

    def log_lengths(self, z_t: Tokens) -> Float[Tensor, "rows lengths"]:
        """Log-probabilities of the number of tokens of each target, EOS included, from 1 on."""

    def up_to(self, tokens: int) -> Denoiser:
        """A denoiser of targets with at most this many tokens, EOS included."""


@runtime_checkable
class TokenScheduleDenoiser(Denoiser, Protocol):
    """A denoiser of a process in which each token has its own noise schedule."""

    def reveal_probability(self, s: float, t: float) -> Float[Tensor, "vocabulary"]:
        """The probability that a masked token of each id is revealed in the step from t to s."""


@runtime_checkable
class UniformDenoiser(Denoiser, Protocol):
    """A denoiser of texts with uniform tokens: log of the distribution of a token given the others."""

    @property
    def process(self) -> UniformProcess:
        """The forward process."""


@runtime_checkable
class CausalDecoder(Protocol):
    """log p(x_i | x_<i) of some rows at ascending columns; with `then`, then(log p, *more).

    After a call for a column, the tokens before that column must not change.
    """

    def __call__(
        self,
        z: Tokens,
        column: int,
        rows: Int[Tensor, "tokens"],
        then: Callable[..., Tensor] | None = None,
        *more: Tensor,
    ) -> Tensor: ...


@runtime_checkable
class CausalDenoiser(Protocol):
    """A denoiser with cached decoding from left to right."""

    def decoder(self) -> CausalDecoder: ...


@runtime_checkable
class VectorDenoiser(Protocol):
    """A denoiser of code vectors, for the samplers of methods that diffuse vectors."""

    @property
    def codes(self) -> Float[Tensor, "vocabulary width"]:
        """The code vector of each token, in the precision of the sampler."""

    @property
    def remembers(self) -> bool:
        """True if the network reads its last estimate."""

    def gamma(self, t: Times) -> Float[Tensor, "rows"]:
        """The noise level at each time, on the device."""

    def predict(
        self,
        z: Float[Tensor, "rows length width"],
        gamma: Float[Tensor, "rows"],
        guess: Float[Tensor, "rows length width"],
        valid: Valid | None = None,
    ) -> Float[Tensor, "rows length outputs"]:
        """The network's prediction; `guess` is the last estimate, or 0, and the code of each known token."""

    def estimate(self, prediction: Tensor) -> Float[Tensor, "rows length width"]:
        """The estimate of the code vectors in a prediction."""

    def informative(self, tokens: Tokens, known: Valid) -> Valid:
        """True at known tokens that the estimate is conditioned on."""

    def condition(
        self,
        estimate: Float[Tensor, "rows length width"],
        z: Float[Tensor, "rows length width"],
        gamma: Float[Tensor, "rows"],
        guess: Float[Tensor, "rows length width"],
        tokens: Tokens,
        known: Valid,
    ) -> Float[Tensor, "rows length width"]:
        """The estimate given known tokens."""

    def steer(
        self,
        estimate: Float[Tensor, "rows length width"],
        z: Float[Tensor, "rows length width"],
        gamma: Float[Tensor, "rows"],
        guess: Float[Tensor, "rows length width"],
    ) -> Float[Tensor, "rows length width"]:
        """The estimate after guidance; unchanged without guidance."""

    def log_tokens(self, prediction: Tensor) -> Float[Tensor, "rows length vocabulary"]:
        """log p(token | z_t) in a prediction."""

    def read(
        self, z_0: Float[Tensor, "rows length width"], gamma_0: Float[Tensor, "rows"]
    ) -> Float[Tensor, "rows length vocabulary"] | None:
        """log p(token | z_0) without the network; None if the network reads z_0 as it reads any z_t."""


@runtime_checkable
class BlockwiseDenoiser(VectorDenoiser, Protocol):
    """A denoiser of vectors that writes blocks of this many tokens after a context."""

    @property
    def block(self) -> int:
        """Number of tokens of a block."""
