"""Operations of transformer blocks: linear maps, layer norm, GELU, SwiGLU, token selection."""

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

EPS = 1e-5  # of layer norm and RMS norm
ALIGNED = 64  # columns are padded to a multiple: a GPU's matrix units need aligned rows

_SLOPE = 2 * (2 / math.pi) ** 0.5  # slope of 2 u at 0; GELU(x) = x (1 + tanh u) / 2
_SHORT = 128  # keys
_PART = 1 << 16  # elements of a part, which fits into the CPU's cache


class BlockWeights(NamedTuple):
    """Matrices and biases of a block."""

    qkv: tuple[Tensor, ...]  # one matrix, or one for queries and keys and one for values
    qkv_bias: tuple[Tensor | None, ...]
    out: Tensor
    up: Tensor
    up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None

    def frozen(self, dtype: torch.dtype) -> "BlockWeights":
        """The weights for inference: cast to `dtype`, with one matrix for queries,
        keys and values.
        """
        biases = [bias for bias in self.qkv_bias if bias is not None]
        rest: list[Any] = [None if part is None else part.detach().to(dtype) for part in self[2:]]
        qkv = torch.cat(self.qkv).detach().to(dtype)
        bias = torch.cat(biases).detach().to(dtype) if biases else None
        return BlockWeights((qkv,), (bias,), *rest)


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Attention with torch's fused kernel.

    On a CPU the backward pass of short rows takes 2 to 6 times as long in bf16 as in fp32,
    so it is computed in fp32.

    Args:
        q: Queries, [rows, heads, queries, head width].
        k: Keys, [rows, heads, keys, head width]. With fewer heads than `q`, neighbouring heads of
            queries share keys and values.
        v: Values of the keys.
        mask: False where a query does not attend to a key, or numbers that are added to the scores.
        causal: Each query attends to the keys up to its own position.

    Returns:
        The values of each query, in the type of `q`.
    """
    if q.shape[1] != k.shape[1]:
        return _attend_in_groups(q, k, v, mask, causal)
    bf16 = q.dtype == torch.bfloat16 and q.device.type == "cpu"
    trains = any(part.requires_grad for part in (q, k, v))
    if not (bf16 and trains and k.shape[-2] <= _SHORT):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    if mask is not None and mask.is_floating_point():
        mask = mask.float()
    with torch.autocast("cpu", enabled=False):
        y = F.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), attn_mask=mask, is_causal=causal
        )
    return y.to(q.dtype)


def _attend_in_groups(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """`attend` with fewer heads of keys than of queries.

    A causal call repeats the keys. Without `causal`, the queries of a group become queries of one
    head, so that a long cache is not copied.
    """
    groups = q.shape[1] // k.shape[1]
    if causal:
        k, v = (part.repeat_interleave(groups, 1) for part in (k, v))
        return attend(q, k, v, mask, causal)
    if mask is not None:
        mask = mask.expand(*mask.shape[:2], q.shape[2], -1).repeat(1, 1, groups, 1)
    stacked = q.unflatten(1, (-1, groups)).flatten(2, 3)
    y = attend(stacked, k, v, mask)
    return y.unflatten(2, (groups, -1)).flatten(1, 2)


def feed_forward(h: Tensor, w: BlockWeights) -> Tensor:
    """The MLP: up, GELU, down; SwiGLU if the first matrix has two rows for each hidden value."""
    if len(w.up) != w.down.shape[1]:
        gate, value = linear(h, w.up, w.up_bias).chunk(2, -1)
        return linear(F.silu(gate) * value, w.down, w.down_bias)
    if h.is_cuda and not torch.is_grad_enabled() and h.dtype == w.up.dtype:
        up_bias: Any = w.up_bias
        # one kernel for product, bias and GELU; it has no backward pass
        flat = torch._addmm_activation(up_bias, h.flatten(0, -2), w.up.t(), use_gelu=True)
        return linear(flat.unflatten(0, h.shape[:-1]), w.down, w.down_bias)
    return linear(gelu(linear(h, w.up, w.up_bias)), w.down, w.down_bias)


class SwiGLU(nn.Module):
    """silu(gate) * value, from a last axis with all gates before all values."""

    def forward(self, x: Float[Tensor, "*tokens doubled"]) -> Float[Tensor, "*tokens hidden"]:
        gate, value = x.chunk(2, -1)
        return F.silu(gate) * value


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form; on a CPU without gradients, in place as x sigmoid(2 u).

    torch's own CPU kernel takes twice as long. Here x is computed in parts that fit into the cache.
    """
    plain = x.device.type == "cpu" and x.dtype == torch.float32
    # a trace would fix the number of parts
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if not plain or traced or torch.is_grad_enabled():
        return F.gelu(x, approximate="tanh")
    slope = x.new_tensor(_SLOPE)
    for part in x.view(-1).split(_PART):
        u = torch.addcmul(slope, part, part, value=_SLOPE * 0.044715).mul_(part)  # 2 u
        part.mul_(u.sigmoid_())
    return x


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Linear map in the precision of its weights, or in that of autocast."""
    cast = torch.is_autocast_enabled(x.device.type)
    return F.linear(x if cast else x.to(weight.dtype), weight, bias)


def normal(x: Tensor, w: BlockWeights, rms: bool = False, eps: float = EPS) -> Tensor:
    """Layer norm or RMS norm without gain, in the precision of the linear map that follows."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else w.up.dtype
    if rms:
        return F.rms_norm(x, x.shape[-1:], eps=eps).to(dtype)
    if dtype == x.dtype and torch.compiler.is_compiling():
        # torch 2.11's tracer computes wrong gradients if a function saves its own output
        return F.layer_norm(x, x.shape[-1:])
    return _Normal.apply(x, dtype)


def taken(
    x: Float[Tensor, "rows length width"], at: Int[Tensor, "tokens"]
) -> Float[Tensor, "tokens width"]:
    """The features of chosen tokens: distinct indices into the flattened batch."""
    return _Taken.apply(x.flatten(0, 1), at)


class _Taken(torch.autograd.Function):
    """x[at] for distinct indices, so that the gradient is copied and not summed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, at: Tensor) -> Tensor:
        ctx.save_for_backward(at)
        ctx.tokens = len(x)
        return x.index_select(0, at)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (at,) = ctx.saved_tensors
        d_x = grads[0].new_zeros(ctx.tokens, grads[0].shape[1])
        return d_x.index_copy_(0, at, grads[0]), None


class _Normal(torch.autograd.Function):
    """Layer norm that saves its output, not its input:
    the next linear map saves that tensor too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
        n, _, rstd = torch.native_layer_norm(x, x.shape[-1:], None, None, EPS)
        n = n.to(dtype)
        ctx.save_for_backward(n, rstd)
        return n

    @staticmethod
    @once_differentiable  # rstd is saved without its graph
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        n, rstd = (
            saved.to(torch.promote_types(saved.dtype, torch.float32)) for saved in ctx.saved_tensors
        )
        d_n = grads[0].to(n.dtype)
        projection = (d_n * n).mean(-1, keepdim=True)
        return rstd * (d_n - d_n.mean(-1, keepdim=True) - n * projection), None


def modulate(x: Tensor, shift: Tensor | int, scale: Tensor | int) -> Tensor:
    """adaLN's affine map, with a shift and a scale for each row; no map if they are integers,
    which are 0.
    """
    return x if isinstance(scale, int) else x * (1 + scale) + shift


def gated(x: Tensor, gate: Tensor | int) -> Tensor:
    """x times adaLN's gate of each row; x itself if the gate is an integer, which is 1."""
    return x if isinstance(gate, int) else gate * x
