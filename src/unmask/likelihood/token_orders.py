"""Likelihoods with one network input per token: in one order, over random orders, pseudo-likelihood."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Int64
from torch import Tensor

from unmask.errors import UnmaskError, unknown
from unmask.likelihood.estimators import ByRow, CountedBatch, Estimator, OwnBound
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method, padding
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.shapes import Tokens, Valid

# a name in ORDERS, or a permutation of the positions of a row, with or without its padding
Order = str | Sequence[int]
Ranks = Int64[Tensor, "rows length"]  # rank of each position in the order
ORDERS = ("left_to_right", "right_to_left", "random")


@dataclass(frozen=True, eq=False)
class _TokenByToken(Estimator):
    """Base of the estimators with one network input per token. A pass holds `batch` inputs."""

    method: MaskedDiffusion
    batch: int = 32

    def log_p(self, batch: CountedBatch, ranks: Ranks | None) -> ByRow:
        """Sum over positions i of log p(x_i | given tokens and tokens of a lower rank), per row.

        Without ranks, each token is conditioned on all others. The sum runs over the positions
        in `batch.counted`. If that is None, it runs over all tokens that are not given.
        """
        x, valid, wanted = to_device(batch.x, self.method.device), batch.valid, batch.scored
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        summed = wanted if batch.counted is None else batch.counted
        rows, positions = summed.nonzero(as_tuple=True)
        for part in torch.arange(len(rows)).split(self.batch):
            at = rows[part], positions[part]
            if ranks is None:
                masked = torch.arange(x.shape[1]) == at[1][:, None]
            else:
                masked = ranks[at[0]] >= ranks[at][:, None]
            on_device = to_device(rows[part], x.device)
            log_p = self._log_p_at(x[on_device], valid[at[0]], masked & wanted[at[0]], at[1])
            total.index_add_(0, on_device, log_p)
        return total

    def _log_p_at(self, x: Tokens, valid: Valid, masked: Valid, positions: Tensor) -> ByRow:
        """log x_theta of the true token at one position of each row; `masked` positions become masks."""
        z = x.masked_fill(to_device(masked, x.device), self.method.vocabulary.mask_id)
        at = to_device(torch.arange(len(positions)) * x.shape[1] + positions, x.device)
        h = self.method.backbone.features(z, valid=padding(valid, x.device), at=at)
        true = x.flatten()[at][:, None]
        return self.method.log_mean(h).gather(1, true)[:, 0].double()


@dataclass(frozen=True, eq=False)
class Chain(_TokenByToken):
    """Exact likelihood of generation in one order, by the chain rule."""

    order: Order = "left_to_right"

    certificate = "exact"

    @property
    def of(self) -> str:
        if isinstance(self.order, str):
            return "a random order for each row" if self.order == "random" else self.order
        return f"the order {', '.join(map(str, self.order))}"

    def terms(self, rows: CountedBatch, streams: Sequence[RowStream]) -> dict[str, ByRow]:
        if self.order != "left_to_right" and _has_filling(rows):
            raise UnmaskError(
                f"{self.of} would also score the EOS tokens after the targets: for pairs give order "
                "left_to_right, which is exact, or orders K, which is a bound"
            )
        return {"nll": -self.log_p(rows, self._ranks(rows.valid, streams))}

    def _ranks(self, valid: Valid, streams: Sequence[RowStream]) -> Ranks:
        rows, length = valid.shape
        if self.order == "random":
            return random_ranks(streams, 1, length)[0]
        ranks = torch.arange(length)
        if self.order == "right_to_left":
            ranks = ranks.flip(0)
        elif not isinstance(self.order, str):
            _check_order(self.order, valid)
            padded = range(len(self.order), length)
            ranks = torch.tensor([*self.order, *padded]).argsort()
        return ranks.expand(rows, length)


@dataclass(frozen=True, eq=False)
class AnyOrder(_TokenByToken):
    """Upper bound: -log of the mean of p(x | order) over K random orders. It tightens with K."""

    orders: int = 1

    certificate = "upper"

    @property
    def of(self) -> str:
        return f"any order, {self.orders} random orders a draw"

    def terms(self, rows: CountedBatch, streams: Sequence[RowStream]) -> dict[str, ByRow]:
        all_ranks = random_ranks(streams, self.orders, rows.x.shape[1])
        uncounted = replace(rows, counted=None)  # a sum over counted tokens only would be no bound
        log_p = torch.stack([self.log_p(uncounted, ranks) for ranks in all_ranks])
        return {"any_order": math.log(self.orders) - log_p.logsumexp(0)}


@dataclass(frozen=True, eq=False)
class Pseudo(_TokenByToken):
    """Pseudo-likelihood: each token given all others. It is neither a likelihood nor a bound."""

    certificate = "pseudo"
    of = "each token given all others"

    def terms(self, rows: CountedBatch, streams: Sequence[RowStream]) -> dict[str, ByRow]:
        return {"pseudo": -self.log_p(rows, None)}


def _check_order(order: Sequence[int], valid: Valid) -> None:
    """Raises an error unless `order` is a permutation of the positions of a row or of its text.

    A permutation of the text needs texts of equal length, with the padding after them.
    """
    length, size = valid.shape[1], len(order)
    sizes = valid.sum(1)
    few, most = int(sizes.min()), int(sizes.max())
    text = few == most == size and bool(valid[:, :size].all())
    if sorted(order) == list(range(size)) and (size == length or text):
        return
    if few == length:
        raise UnmaskError(
            f"the order is incomplete: give each of the {length} positions of a row once, from 0"
        )
    tokens = f"{few}" if few == most else f"{few} to {most}"
    raise UnmaskError(
        f"the order does not fit rows of {length} positions with {tokens} tokens: give each position "
        "of a row once, from 0; if all texts have one length, their positions are enough"
    )


def _has_filling(rows: CountedBatch) -> bool:
    """True if some tokens are predicted but not counted: the EOS tokens that fill a row of a pair."""
    return rows.counted is not None and bool((rows.scored & ~rows.counted).any())


def random_ranks(
    streams: Sequence[RowStream], count: int, length: int
) -> Int64[Tensor, "orders rows length"]:
    """Ranks of `count` uniformly random orders for each row."""
    u = torch.cat([stream.uniform("order", count * length) for stream in streams])
    return u.view(len(u), count, length).argsort(-1).argsort(-1).transpose(0, 1)


def order_estimator(
    method: Method,
    batch: int,
    *,
    order: Order | None = None,
    orders: int | None = None,
) -> Estimator:
    """The estimator of the likelihood in one order, over random orders, or of the pseudo-likelihood.

    Args:
        method: The model.
        batch: Inputs of one pass of the network.
        order: One order of the tokens, for the likelihood by the chain rule.
        orders: Number of random orders, for the any-order bound.

    Returns:
        The estimator; without `order` and `orders`, that of the pseudo-likelihood.
    """
    if method.capabilities.causal:
        if order == "left_to_right":
            return OwnBound(method)
        if order is None and orders is None:
            raise UnmaskError(
                "pseudo needs a model that sees both sides of a token, but an autoregressive model sees "
                "the left side only: leave pseudo out"
            )
        raise UnmaskError("an autoregressive model has one order: left_to_right; give that or none")
    if not method.capabilities.any_order or method.backbone.time_conditioning:
        raise UnmaskError(
            "this network reads the time, so it defines no p(token | other tokens): leave order, orders "
            "and pseudo out, or train with backbone.time_conditioning false"
        )
    if method.backbone.predicts_length:
        raise UnmaskError(
            "a length head predicts the end of a target, so no order of its tokens does: leave order, "
            "orders and pseudo out"
        )
    diffusion = cast(MaskedDiffusion, method)
    if orders is not None:
        return AnyOrder(diffusion, batch, orders)
    if order is None:
        return Pseudo(diffusion, batch)
    if isinstance(order, str) and order not in ORDERS:
        raise unknown("order", order, ORDERS)
    return Chain(diffusion, batch, order)
