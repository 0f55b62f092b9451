"""Tensors that several packages pass to each other: their shapes, and a batch of rows.

A name in a shape stands for one number within a call: `rows`, `length`, `tokens`, `vocabulary`.
The tests check these shapes at run time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtyping import Bool, Float, Float64, Int, Shaped
from torch import Tensor

# tensors by name
Tensors = Mapping[str, Tensor]

# token ids of a batch
Tokens = Int[Tensor, "rows length"]
# token ids of a batch, or vectors if the method diffuses vectors
Inputs = Shaped[Tensor, "rows length *latent"]
# True at tokens that are not padding
Valid = Bool[Tensor, "rows length"]
# True at chosen tokens
Places = Bool[Tensor, "rows length"]
# rows and columns of chosen tokens
At = tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]]
# log-probabilities of every id at chosen tokens
LogProbabilities = Float[Tensor, "tokens vocabulary"]
# a uniform random number for each token, from the row's own stream
Uniforms = Float64[Tensor, "rows length"]
# one diffusion time per row, on the CPU
Times = Float64[Tensor, "rows"]
# a value for each token of a batch of any shape
PerToken = Float[Tensor, "*batch"]


def targets(valid: Valid, given: Valid | None) -> Valid:
    """True at tokens that count in a loss: neither padding nor given."""
    return valid if given is None else valid & ~given


def last_of(places: Valid) -> Valid:
    """True at the last of the positions of each row.

    Args:
        places: True at the positions.

    Returns:
        A mask with at most one position per row.

    Example:
        >>> last_of(torch.tensor([[True, True, False], [False, False, False]]))
        tensor([[False,  True, False],
                [False, False, False]])
    """
    return places & (places.flip(1).cumsum(1).flip(1) == 1)


@dataclass(frozen=True)
class Batch:
    """Rows of tokens, on the CPU. `given` tokens condition the others and cost nothing.

    Example:
        >>> valid = torch.tensor([[True, True, False]])
        >>> Batch(torch.tensor([[4, 5, 0]]), valid, given=~valid).scored
        tensor([[ True,  True, False]])
    """

    x: Tokens
    valid: Valid  # True at tokens that are not padding
    given: Valid | None = None  # None if no token is given
    # of each token in a loss; None: 1
    weight: Float[Tensor, "rows length"] | None = field(default=None, kw_only=True)

    @property
    def scored(self) -> Valid:
        """True at tokens that count in a loss: neither padding nor given."""
        return targets(self.valid, self.given)

    @property
    def padding(self) -> Valid | None:
        """`valid`; None without padding, since attention is faster without a mask."""
        return None if bool(self.valid.all()) else self.valid

    def part(self, rows: slice | Int[Tensor, "chosen"]) -> "Batch":
        """Some of the rows.

        Args:
            rows: The rows, as a slice or by their indices, which may repeat.

        Returns:
            Their batch.
        """
        given = None if self.given is None else self.given[rows]
        weight = None if self.weight is None else self.weight[rows]
        return Batch(self.x[rows], self.valid[rows], given, weight=weight)
