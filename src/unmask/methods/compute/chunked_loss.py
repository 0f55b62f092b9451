"""Losses through the vocabulary projection that never hold all its logits: [chunk, V] at a time."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from unmask.backbones.layers.ops import ALIGNED
from unmask.runtime.kernels.availability import kernels_available

# (logsumexp of the logits [chunk], those at `ids` [chunk, ids], the rows' own tensors) -> loss [chunk]
RowLoss = Callable[..., Tensor]

CHUNK_BYTES = 1 << 29  # of logits held at a time
CPU_CHUNK = 128  # tokens at a time on a CPU, where small blocks of memory are reused at once


def head_loss(
    h: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "vocabulary width"],
    bias: Float[Tensor, "vocabulary"],
    ids: Int[Tensor, "tokens chosen"],
    row_loss: RowLoss,
    *rows: Tensor,
    chunk: int = 0,
) -> tuple[Float[Tensor, ""], Float[Tensor, "tokens"]]:
    """Sum over tokens of a loss of linear(h), differentiable, and its detached parts.

    A loss reads of the logits their logsumexp and those at `ids`, so its gradient is the softmax
    with a few entries changed. Each chunk's is taken at once, while its logits are there: three
    matrix products, as in the plain form, and memory that does not grow with the number of tokens.
    """
    training = torch.is_grad_enabled() and any(x.requires_grad for x in (h, weight, bias))
    chunk = chunk or _chunk(h, weight.shape[0])
    return _HeadLoss.apply(h, weight, bias, ids, row_loss, rows, chunk, training)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        ids: Tensor,
        row_loss: RowLoss,
        rows: tuple[Tensor, ...],
        chunk: int,
        training: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = _compute_dtype(h)
        size = len(weight)
        weight, bias = _aligned(weight.to(dtype), bias.to(dtype))
        losses = h.new_empty(len(h), dtype=torch.float32)
        if training:
            d_h = torch.empty_like(h)
            d_weight = torch.zeros_like(weight, dtype=torch.float32)
            d_bias = torch.zeros_like(bias, dtype=torch.float32)
        read = _Fused if h.is_cuda and kernels_available() else _Plain
        for start in range(0, len(h), chunk):
            part = slice(start, start + chunk)
            h_part = h[part].to(dtype)
            logits = read(F.linear(h_part, weight, bias), ids[part])
            with torch.set_grad_enabled(training):
                total, chosen = (x.requires_grad_(training) for x in logits.summary)
                loss = row_loss(total, chosen, *(row[part] for row in rows))
            losses[part] = loss.detach()
            if training:
                ones = torch.ones_like(loss)
                d_total, d_chosen = torch.autograd.grad(loss, (total, chosen), ones)
                d_logits = logits.gradient(d_total, d_chosen, d_bias)
                d_h[part] = d_logits @ weight
                _add_product(d_weight, d_logits.t(), h_part)
        if training:
            ctx.save_for_backward(d_h, d_weight[:size], d_bias[:size])
        ctx.mark_non_differentiable(losses)
        return losses.sum(), losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # in place, for want of memory: autograd would notice a second use
        d_h, d_weight, d_bias = (saved.mul_(grads[0]) for saved in ctx.saved_tensors)
        return d_h, d_weight, d_bias, None, None, None, None, None


class _Plain:
    """What a loss reads of a chunk's logits, and their gradient, by torch alone."""

    def __init__(self, logits: Tensor, ids: Tensor) -> None:
        self.ids, self.dtype = ids, logits.dtype
        logits = logits.float()
        self.p = logits.softmax(-1)
        # the largest probability is 1 / sum(exp(logits - largest)), and never 0
        total = logits.amax(-1) - self.p.amax(-1).log()
        self.summary = total, logits.gather(-1, ids)

    def gradient(self, d_total: Tensor, d_chosen: Tensor, d_bias: Tensor) -> Tensor:
        """Of the logits, in their precision; its sum over tokens is added to `d_bias`."""
        d_logits = self.p.mul_(d_total[:, None]).scatter_add_(-1, self.ids, d_chosen)
        d_bias += d_logits.sum(0)
        return d_logits.to(self.dtype)


class _Fused:
    """The same by kernels that read the logits once and write the gradient in their place."""

    def __init__(self, logits: Tensor, ids: Tensor) -> None:
        from unmask.runtime.kernels import vocabulary_loss

        self.kernels, self.logits, self.ids = vocabulary_loss, logits, ids
        self.summary = vocabulary_loss.summarise(logits, ids)

    def gradient(self, d_total: Tensor, d_chosen: Tensor, d_bias: Tensor) -> Tensor:
        # the kernel's sum over tokens adds in whatever order its blocks arrive
        exact = torch.are_deterministic_algorithms_enabled()
        total = self.summary[0].detach()
        self.kernels.differentiate_(
            self.logits, self.ids, total, d_total, d_chosen, None if exact else d_bias
        )
        if exact:
            d_bias += self.logits.sum(0, dtype=torch.float32)
        return self.logits


def _chunk(h: Tensor, size: int) -> int:
    """How many tokens go together: all chunks alike, so that none is too small to be worth it."""
    most = max(64, CHUNK_BYTES // (size * _compute_dtype(h).itemsize))
    if h.device.type == "cpu":
        return min(CPU_CHUNK, most)
    return max(64, math.ceil(len(h) / max(1, math.ceil(len(h) / most))))


def _aligned(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """On a GPU, the projection with rows that no text has, of probability zero, up to a round size."""
    missing = -len(weight) % ALIGNED
    if weight.device.type == "cpu" or not missing:
        return weight, bias
    return F.pad(weight, (0, 0, 0, missing)), F.pad(bias, (0, missing), value=-math.inf)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, summed in float32."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif a.is_cuda:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total += a @ b


def _compute_dtype(h: Tensor) -> torch.dtype:
    """The dtype that autocast would run a linear layer in."""
    kind = h.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else h.dtype
