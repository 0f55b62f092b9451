"""Shapes of the tensors that several packages pass to each other."""

from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

Tokens = Int[Tensor, "rows length"]
Valid = Bool[Tensor, "rows length"]  # True where a token is no padding
Places = Bool[Tensor, "rows length"]  # chosen tokens
At = tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]]  # rows and columns of chosen tokens
LogProbabilities = Float[Tensor, "tokens vocabulary"]
Uniforms = Float64[Tensor, "rows length"]
Times = Float64[Tensor, "rows"]  # one diffusion time a row, on the CPU
PerToken = Float[Tensor, "*batch"]
