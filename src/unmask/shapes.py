"""Shapes of the tensors that several packages pass to each other.

A name in a shape stands for one number within a call: `rows`, `length`, `tokens`, `vocabulary`.
The tests check these shapes at run time.
"""

from jaxtyping import Bool, Float, Float64, Int, Shaped
from torch import Tensor

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
