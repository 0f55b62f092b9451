"""Protocols of denoisers of code vectors."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from unmask.shapes import Times, Tokens, Valid


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
