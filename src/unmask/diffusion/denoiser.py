"""Protocols between methods, which answer, and samplers, which ask."""

from collections.abc import Callable, Hashable
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from unmask.runtime.cuda_graphs import CudaGraph
from unmask.shapes import At, LogProbabilities, Times, Tokens


@runtime_checkable
class Denoiser(Protocol):
    """What a sampler asks: log x_theta at chosen tokens of z_t, at time t (one a row)."""

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities: ...


@runtime_checkable
class StaticDenoiser(Protocol):
    """A denoiser that can answer without the host, at shapes of which there are few."""

    def condition(self, t: Times) -> Float[Tensor, "rows"] | None:
        """What the network reads of the time, on the CPU."""

    def answer(self, z_t: Tokens, condition: Tensor | None, at: At) -> LogProbabilities:
        """log x_theta, a function of tensors on the device."""

    def fits(self, places: int) -> bool:
        """Are so many places few enough?"""

    def replay(self, key: Hashable, function: Callable[..., Tensor]) -> CudaGraph:
        """Such a function at few shapes, the one that was made for the same key if there is one."""


@runtime_checkable
class CausalReader(Protocol):
    """log p(x_i | x_<i) of some rows at one column after the other, or what `then` makes of it.

    What stands before a column does not change once the column was asked for.
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
class ReadsCausally(Protocol):
    """A denoiser that can read a text once, from left to right."""

    def reading(self) -> CausalReader: ...
