"""Protocols of denoisers. Methods provide them, and samplers call them."""

from collections.abc import Callable, Hashable
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from unmask.shapes import At, LogProbabilities, Times, Tokens


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
class RowDenoiser(Protocol):
    """A denoiser that knows more of each row than the tokens of a call."""

    def of_rows(self, rows: Int[Tensor, "read"]) -> Denoiser:
        """The denoiser of some of the rows."""


@runtime_checkable
class BlockContext(Denoiser, RowDenoiser, Protocol):
    """log x_theta at chosen tokens of a block, given the text before it, which is cached."""

    def append(self, tokens: Tokens) -> None:
        """Adds the next tokens of all rows, which are whole blocks and no longer change."""

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        """Drops all rows but some."""


@runtime_checkable
class BlockDenoiser(Denoiser, Protocol):
    """A denoiser of block diffusion."""

    @property
    def block(self) -> int:
        """The smallest block size of training; 0 for whole rows."""

    def context(self, rows: int, capacity: int, block: int) -> BlockContext:
        """An empty context for rows of at most `capacity` tokens."""


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
