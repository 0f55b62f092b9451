"""Losses through the vocabulary projection that never hold all its logits: [chunk, V] at a time."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

# (logits [chunk, V] in float32, the rows' own tensors [chunk, ...]) -> loss [chunk]
RowLoss = Callable[..., Tensor]

CHUNK_ELEMENTS = 1 << 24  # logits held at a time: 64 MiB in float32
CPU_CHUNK = 128  # tokens at a time on a CPU, where small blocks of memory are reused at once


def head_loss(
    h: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "vocabulary width"],
    bias: Float[Tensor, "vocabulary"],
    row_loss: RowLoss,
    *rows: Tensor,
    chunk: int = 0,
) -> tuple[Float[Tensor, ""], Float[Tensor, "tokens"]]:
    """Sum over tokens of row_loss(linear(h), ...), differentiable, and its detached parts.

    Each chunk's gradient is taken at once, while its logits are there: three matrix products, as
    in the plain form, and memory that does not grow with the number of tokens.
    """
    fitting = max(64, CHUNK_ELEMENTS // weight.shape[0])
    chunk = chunk or (min(CPU_CHUNK, fitting) if h.device.type == "cpu" else fitting)
    training = torch.is_grad_enabled() and (h.requires_grad or weight.requires_grad)
    return _HeadLoss.apply(h, weight, bias, row_loss, rows, chunk, training)


def summary(
    logits: Float[Tensor, "tokens vocabulary"], ids: Int[Tensor, "tokens chosen"]
) -> tuple[Float[Tensor, "tokens"], Float[Tensor, "tokens chosen"]]:
    """logsumexp of each row and its logits at `ids`: all that a loss needs to know of them.

    The gradient is the softmax with a few entries changed, which costs a third of autograd's passes
    over the logits.
    """
    return _Summary.apply(logits, ids)


class _Summary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        p = logits.softmax(-1)
        ctx.save_for_backward(p, ids)
        # the largest probability is 1 / sum(exp(logits - largest)), and never 0
        return logits.amax(-1) - p.amax(-1).log(), logits.gather(-1, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        p, ids = ctx.saved_tensors
        d_total, d_chosen = grads
        # in place: autograd would notice a second use
        return p.mul_(d_total[:, None]).scatter_add_(-1, ids, d_chosen), None


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        row_loss: RowLoss,
        rows: tuple[Tensor, ...],
        chunk: int,
        training: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype = _compute_dtype(h)
        weight, bias_cast = weight.to(dtype), bias.to(dtype)
        losses = h.new_empty(len(h), dtype=torch.float32)
        if training:
            d_h = torch.empty_like(h)
            d_weight = torch.zeros_like(weight, dtype=torch.float32)
            d_bias = torch.zeros_like(bias, dtype=torch.float32)
        for start in range(0, len(h), chunk):
            part = slice(start, start + chunk)
            h_part = h[part].to(dtype)
            logits = F.linear(h_part, weight, bias_cast).float()
            with torch.set_grad_enabled(training):
                logits.requires_grad_(training)
                loss = row_loss(logits, *(row[part] for row in rows))
            losses[part] = loss.detach()
            if training:
                (d_logits,) = torch.autograd.grad(loss, logits, torch.ones_like(loss))
                d_bias += d_logits.sum(0)
                d_logits = d_logits.to(dtype)
                d_h[part] = d_logits @ weight
                if dtype == torch.float32:
                    d_weight.addmm_(d_logits.t(), h_part)
                else:
                    d_weight += d_logits.t() @ h_part
        if training:
            ctx.save_for_backward(d_h, d_weight, d_bias)
        ctx.mark_non_differentiable(losses)
        return losses.sum(), losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # in place, for want of memory: autograd would notice a second use
        d_h, d_weight, d_bias = (saved.mul_(grads[0]) for saved in ctx.saved_tensors)
        return d_h, d_weight, d_bias, None, None, None, None


def _compute_dtype(h: Tensor) -> torch.dtype:
    """The dtype that autocast would run a linear layer in."""
    kind = h.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else h.dtype
