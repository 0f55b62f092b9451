"""Losses of the vocabulary projection, chunk by chunk; only logits [chunk, V] are in memory."""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.layers.inference_weights import is_plain
from unmask.backbones.layers.ops import ALIGNED
from unmask.diffusion.categorical import draw
from unmask.diffusion.parameterization import zero_masked
from unmask.runtime.kernels.availability import kernels_available

# (logsumexp of logits [chunk], logits at `ids` [chunk, ids], further tensors [chunk]) -> loss [chunk]
TokenLoss = Callable[..., Tensor]
# (distributions p [chunk, V], further tensors [chunk]) -> a sum over the vocabulary [chunk], and
# p times its derivative in p [chunk, V]. On a GPU, zeros may follow the vocabulary in p.
Statistic = Callable[..., tuple[Tensor, Tensor]]

CHUNK_BYTES = 1 << 29  # most bytes of a chunk of logits
CPU_CHUNK = 128  # tokens of a chunk on a CPU, which reuses small memory blocks at once


def projection_loss(
    head: nn.Linear,
    mask_id: int | None,
    h: Float[Tensor, "tokens width"],
    ids: Int[Tensor, "tokens chosen"],
    token_loss: TokenLoss,
    *rows: Tensor,
    statistic: Statistic | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, "tokens"]]:
    """`head_loss` of a network's head; a head with an adapter or a hook is called as a module.

    Args:
        head: The vocabulary projection.
        mask_id: Token id with probability 0; None for none.
        h: Features.
        ids: Token ids whose logits the loss reads.
        token_loss: The loss of a token.
        rows: Further arguments of `token_loss`, one value per token.
        statistic: A sum over the vocabulary that the loss reads in place of the logsumexp. The loss
            then reads log-probabilities in place of logits.

    Returns:
        The sum and the loss of each token.
    """
    if is_plain(head):
        bias: Any = head.weight.new_zeros(len(head.weight)) if head.bias is None else head.bias
        bias = bias if mask_id is None else zero_masked(bias, mask_id)
        return head_loss(h, head.weight, bias, ids, token_loss, *rows, statistic=statistic)
    logits = head(h)
    logits = logits.to(_wide(logits.dtype))
    if mask_id is not None:
        logits = zero_masked(logits, mask_id)
    total, chosen = logits.logsumexp(-1), logits.gather(-1, ids)
    if statistic is not None:
        total, chosen = statistic(logits.softmax(-1), *rows)[0], chosen - total[:, None]
    losses = token_loss(total, chosen, *rows)
    return losses.sum(), losses.detach()


def head_loss(
    h: Float[Tensor, "tokens width"],
    weight: Float[Tensor, "vocabulary width"],
    bias: Float[Tensor, "vocabulary"],
    ids: Int[Tensor, "tokens chosen"],
    token_loss: TokenLoss,
    *per_token: Tensor,
    chunk: int = 0,
    statistic: Statistic | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, "tokens"]]:
    """Sum of a loss over tokens, differentiable, and the detached loss of each token.

    The loss is a function of the logsumexp of the logits and of the logits at `ids`. So its
    gradient is a scaled softmax with a few entries changed. The forward pass computes the gradient
    of each chunk while its logits are in memory. This takes three matrix products, as in the
    plain form. Memory does not grow with the number of tokens.

    Args:
        h: Features.
        weight: Weight of the vocabulary projection.
        bias: Bias of the vocabulary projection.
        ids: Token ids whose logits the loss reads.
        token_loss: The loss of a token.
        per_token: Further arguments of `token_loss`, one value per token.
        chunk: Tokens of a chunk; 0 chooses by device and vocabulary size.
        statistic: As in `projection_loss`.

    Returns:
        The sum and the loss of each token.
    """
    training = torch.is_grad_enabled() and any(x.requires_grad for x in (h, weight, bias))
    # beside the logits of a statistic are two copies in float32
    chunk = chunk or _chunk(h, weight.shape[0] * (1 if statistic is None else 4))
    loss = (token_loss, statistic)
    return _HeadLoss.apply(h, weight, bias, ids, loss, per_token, chunk, training)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        ids: Tensor,
        loss_and_statistic: tuple[TokenLoss, Statistic | None],
        per_token: tuple[Tensor, ...],
        chunk: int,
        training: bool,
    ) -> tuple[Tensor, Tensor]:
        dtype, size = _compute_dtype(h), len(weight)
        wide, (token_loss, statistic) = _wide(dtype), loss_and_statistic
        weight, bias = _aligned(weight.to(dtype), bias.to(dtype))
        losses = h.new_empty(len(h), dtype=wide)
        if training:
            d_h = torch.empty_like(h)
            d_weight = torch.zeros_like(weight, dtype=wide)
            d_bias = torch.zeros_like(bias, dtype=wide)
        chunk_logits = _Fused if h.is_cuda and kernels_available() else _Plain
        for start in range(0, len(h), chunk):
            part = slice(start, start + chunk)
            h_part, inputs = h[part].to(dtype), [values[part] for values in per_token]
            scores = F.linear(h_part, weight, bias)
            logits = (
                chunk_logits(scores, ids[part])
                if statistic is None
                else _Distribution(scores, ids[part], statistic, inputs)
            )
            with torch.set_grad_enabled(training):
                total, chosen = (x.requires_grad_(training) for x in logits.summary)
                loss = token_loss(total, chosen, *inputs)
            losses[part] = loss.detach()
            if training:
                ones = torch.ones_like(loss)
                d_total, d_chosen = (
                    torch.autograd.grad(  # zeros for one that the loss does not read
                        loss, (total, chosen), ones, materialize_grads=True
                    )
                )
                d_logits = logits.gradient(d_total, d_chosen, d_bias)
                d_h[part] = d_logits @ weight
                _add_product(d_weight, d_logits.t(), h_part)
        if training:
            ctx.save_for_backward(d_h, d_weight[:size], d_bias[:size])
        ctx.mark_non_differentiable(losses)
        return losses.sum(), losses

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # in place, to save memory: autograd raises an error in a second backward pass
        d_h, d_weight, d_bias = (saved.mul_(grads[0]) for saved in ctx.saved_tensors)
        return d_h, d_weight, d_bias, None, None, None, None, None


class _Plain:
    """Logsumexp, chosen logits and gradient of a chunk, in plain torch."""

    def __init__(self, logits: Tensor, ids: Tensor) -> None:
        self.ids, self.dtype = ids, logits.dtype
        logits = logits.to(_wide(logits.dtype))
        self.p = logits.softmax(-1)
        # logsumexp; the largest probability is 1 / sum(exp(logits - largest)), never 0
        total = logits.amax(-1) - self.p.amax(-1).log()
        self.summary = total, logits.gather(-1, ids)

    def gradient(self, d_total: Tensor, d_chosen: Tensor, d_bias: Tensor) -> Tensor:
        """The gradient of the logits, in their precision. Adds its sum over tokens to `d_bias`."""
        d_logits = self.p.mul_(d_total[:, None]).scatter_add_(-1, self.ids, d_chosen)
        d_bias += d_logits.sum(0)
        return d_logits.to(self.dtype)


class _Distribution:
    """A statistic of the distribution and log-probabilities of a chunk, with their gradient."""

    summary: tuple[Tensor, Tensor]

    def __init__(
        self, logits: Tensor, ids: Tensor, statistic: Statistic, inputs: list[Tensor]
    ) -> None:
        plain = _Plain(logits, ids)
        total, chosen = plain.summary
        self.ids, self.dtype, self.p = ids, logits.dtype, plain.p
        found, self.share = statistic(self.p, *inputs)
        self.summary = found, chosen - total[:, None]

    def gradient(self, d_found: Tensor, d_chosen: Tensor, d_bias: Tensor) -> Tensor:
        """The gradient of the logits, as that of `_Plain`."""
        mean = d_found * self.share.sum(-1) + d_chosen.sum(-1)
        d_logits = (self.share * d_found[:, None]).addcmul_(self.p, mean[:, None], value=-1)
        d_logits.scatter_add_(-1, self.ids, d_chosen)
        d_bias += d_logits.sum(0)
        return d_logits.to(self.dtype)


class _Fused:
    """The same as `_Plain`, in fused kernels, which overwrite the logits with the gradient."""

    def __init__(self, logits: Tensor, ids: Tensor) -> None:
        from unmask.runtime.kernels import vocabulary_loss

        self.kernels, self.logits, self.ids = vocabulary_loss, logits, ids
        self.summary = vocabulary_loss.summarise(logits, ids)

    def gradient(self, d_total: Tensor, d_chosen: Tensor, d_bias: Tensor) -> Tensor:
        # the kernel sums over tokens in an order that differs from run to run
        exact = torch.are_deterministic_algorithms_enabled()
        total = self.summary[0].detach()
        self.kernels.differentiate_(
            self.logits, self.ids, total, d_total, d_chosen, None if exact else d_bias
        )
        if exact:
            d_bias += self.logits.sum(0, dtype=torch.float32)
        return self.logits


def _chunk(h: Tensor, size: int) -> int:
    """Tokens of a chunk. Chunks have about equal sizes, so that the last one is not small."""
    most = max(64, CHUNK_BYTES // (size * _compute_dtype(h).itemsize))
    if h.device.type == "cpu":
        return min(CPU_CHUNK, most)
    return max(64, math.ceil(len(h) / max(1, math.ceil(len(h) / most))))


def _aligned(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The projection, padded on a GPU to an aligned size with tokens of probability 0."""
    padding = -len(weight) % ALIGNED
    if weight.device.type == "cpu" or not padding:
        return weight, bias
    return F.pad(weight, (0, 0, 0, padding)), F.pad(bias, (0, padding), value=-math.inf)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, summed in float32."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    elif a.is_cuda:
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total += a @ b


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of losses and distributions: float32, unless the logits are in float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _compute_dtype(h: Tensor) -> torch.dtype:
    """The dtype of a linear layer under autocast."""
    kind = h.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else h.dtype


@torch.no_grad()
def drawn_tokens(
    backbone: Any,
    mask_id: int,
    h: Float[Tensor, "tokens width"],
    uniforms: Float64[Tensor, "tokens"],
) -> Int[Tensor, "tokens"]:
    """A token drawn from the network's distribution at each position, chunk by chunk, never MASK."""
    size = _chunk(h, 4 * backbone.head.weight.shape[0]) if len(h) else 1  # draws are in float64
    parts = [
        draw(torch.log_softmax(zero_masked(backbone.logits(part), mask_id).float(), -1), u)
        for part, u in zip(h.split(size), uniforms.split(size), strict=True)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.long, device=h.device)
