"""Log-likelihoods of the last tokens of a row given its first tokens, independent of the batch."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack, cast

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.likelihood.estimate import How, Progress, checked, choose_estimator
from unmask.likelihood.estimators import CountedBatch, OwnBound
from unmask.methods.compute.cached_decoding import CausalMethod
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import METHODS, Method, methods_that
from unmask.randomness import RowStream, child_seed
from unmask.runtime.device import to_device
from unmask.shapes import Tokens, Valid


@dataclass(frozen=True)
class ScoringRequest:
    """A row to score: its first `given` tokens are given, the others are the targets."""

    ids: tuple[int, ...]
    given: int

    @property
    def targets(self) -> int:
        """Number of tokens to score."""
        return len(self.ids) - self.given

    def seed(self, seed: int) -> int:
        """The seed of the noise; it depends on the tokens, not on the batch."""
        content = hashlib.blake2b(repr((self.ids, self.given)).encode(), digest_size=8)
        return child_seed(seed, int.from_bytes(content.digest(), "little"), "question")


def windows(
    first: Sequence[int], ids: Sequence[int], start: int, room: int
) -> Iterator[ScoringRequest]:
    """Rows that together score each token from `start` on once: `first`, and at most `room` tokens.

    If fewer than `room` targets are left, the tokens before them fill the row and are given.
    """
    while start < len(ids):
        stop = min(start + room, len(ids))
        begin = max(stop - room, 0)
        yield ScoringRequest((*first, *ids[begin:stop]), len(first) + start - begin)
        start = stop


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix of two token sequences."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))


MAX_POSITIONS = 8192  # positions of one pass; each has a distribution over the vocabulary
DRAWS = 1024  # draws of the noise that are in memory together


def no_progress(share: float) -> None:
    """Does nothing: the default progress callback."""


class Scorer:
    """Scores targets in rows of `length` tokens. The positions behind the targets stay masked.

    The masks stand for any continuation. In a shorter row the model would take the last target for the
    end of the text. The noise draws of one request are stratified among themselves. So neither the batch
    nor the other requests change a result.
    """

    def __init__(
        self,
        method: Method,
        length: int,
        *,
        draws: int = 32,
        seed: int = 0,
        batch: int = 32,
        banned: Collection[int] = (),
        **how: Unpack[How],
    ) -> None:
        if method.capabilities.latent:
            able = methods_that(lambda can: can.score and can.generate and not can.latent)
            raise UnmaskError(
                f"the harness cannot score the method {METHODS.name_of(method)}: give a model of "
                f"method {able}"
            )
        self.estimator = choose_estimator(method, batch, **how)
        self.draws = checked("draws", draws) if self.estimator.noisy else 1
        self._method, self._length, self._seed, self._batch = method, length, seed, batch
        self._banned = list(banned)  # tokens that are never generated
        self._order = how.get("order")

    @torch.no_grad()
    def log_p(
        self, requests: Sequence[ScoringRequest], progress: Progress = no_progress
    ) -> list[float]:
        """log p of the targets of each request: exact or a lower bound, depending on the estimator."""
        unique = [one for one in dict.fromkeys(requests) if one.targets]
        log_p = torch.zeros(len(unique), dtype=torch.float64)
        for first, some in _chunks(unique, max(DRAWS // self.draws, 1)):
            for numbers, shares, nats in self._passes(some):
                log_p.index_add_(0, first + numbers, -shares * nats)
                progress((first + int(numbers[-1]) + 1) / len(unique))
        found = dict(zip(unique, log_p.tolist(), strict=True))
        return [found.get(request, 0.0) for request in requests]

    def _passes(
        self, requests: Sequence[ScoringRequest]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Passes of the network over the draws of requests; equal draws of a request are one row.

        Each pass yields the number of each row's request, the share of its draws that the row stands
        for, and the negative log-likelihood.
        """
        x, targets = self._rows(requests)
        seeds = [request.seed(self._seed) for request in requests]
        streams = [RowStream(seed, 0, range(self.draws), self.draws) for seed in seeds]
        number = torch.arange(len(requests)).repeat_interleave(self.draws)  # of a draw's request
        draws, counts = torch.arange(len(number)), torch.ones_like(number)
        own = self.estimator if isinstance(self.estimator, OwnBound) else None
        noise = None if own is None else own.noise(targets[number], streams)
        if own is not None and noise is not None and own.method.capabilities.time_bound:
            key = cast(MaskedDiffusion, own.method).noise_key(noise)
            rows = torch.cat([number[:, None], key], 1).numpy()
            _, first, equal = np.unique(rows, axis=0, return_index=True, return_counts=True)
            draws, counts = torch.from_numpy(first), torch.from_numpy(equal)
        for part, count in zip(draws.split(self._batch), counts.split(self._batch), strict=True):
            of = number[part]
            batch = CountedBatch(
                x[of],
                torch.ones(len(of), self._length, dtype=torch.bool),
                given=~targets[of],
            )
            with self._method.arithmetic():
                if own is not None:
                    terms = own.terms_of(batch, None if noise is None else noise.rows(part))
                else:
                    places = (divmod(draw, self.draws) for draw in part.tolist())
                    cut = [replace(streams[i], rows=range(row, row + 1)) for i, row in places]
                    terms = self.estimator.terms(batch, cut)
            yield of, count / self.draws, torch.stack(list(terms.values())).sum(0).cpu()

    @torch.no_grad()
    def greedy(self, requests: Sequence[ScoringRequest]) -> list[bool]:
        """True for each request whose targets greedy decoding writes.

        An autoregressive model decodes from left to right. A diffusion model decodes in the order
        left_to_right or right_to_left if that is its `order`, otherwise by highest confidence. The
        positions behind the targets stay masked.
        """
        unique = [one for one in dict.fromkeys(requests) if one.targets]
        found: dict[ScoringRequest, bool] = {}
        for _, some in _chunks(unique, 16 * self._batch):
            x, targets = self._rows(some)
            x = to_device(x, self._method.device)
            check = (
                self._greedy_causal if self._method.capabilities.causal else self._greedy_diffusion
            )
            found |= zip(some, check(x, targets).tolist(), strict=True)
        return [found.get(request, True) for request in requests]

    def _greedy_causal(self, x: Tokens, targets: Valid) -> Bool[Tensor, "rows"]:
        """Greedy check of an autoregressive model in one pass, with the true tokens as prefix.

        Up to the first disagreement, greedy decoding has the same prefix.
        """
        method = cast(CausalMethod, self._method)
        correct = torch.ones(len(x), dtype=torch.bool)
        for rows in self._batches(torch.arange(len(x)), targets):
            at = to_device(targets[rows].flatten().nonzero()[:, 0], x.device)
            read = x[to_device(rows, x.device)]
            with method.arithmetic():
                h = method.backbone.features(method.inputs(read)).flatten(0, 1)
                best = self._likeliest(method.log_next(h[at - method.lag]))[1]
            same = torch.ones_like(read, dtype=torch.bool).flatten()
            same[at] = best == read.flatten()[at]
            correct[rows] = same.view_as(read).all(1).cpu()
        return correct

    def _greedy_diffusion(self, x: Tokens, targets: Valid) -> Bool[Tensor, "rows"]:
        """Greedy check by decoding one position at a time; a row stops at its first disagreement."""
        method = cast(MaskedDiffusion, self._method)
        z = x.masked_fill(to_device(targets, x.device), method.vocabulary.mask_id)
        hidden = targets.clone()
        correct = torch.ones(len(x), dtype=torch.bool)
        while (active := (correct & hidden.any(1)).nonzero()[:, 0]).numel():
            for rows in self._batches(active, hidden):
                column, token = self._next(method, z, hidden, targets, rows)
                on_device, where = to_device(rows, x.device), to_device(column, x.device)
                agrees = (token == x[on_device, where]).cpu()
                correct[rows] = agrees
                z[on_device, where] = x[on_device, where]
                hidden[rows, column] = False
        return correct

    def _next(
        self,
        method: MaskedDiffusion,
        z: Tokens,
        hidden: Valid,
        targets: Valid,
        rows: Int[Tensor, "some"],
    ) -> tuple[Int[Tensor, "some"], Int[Tensor, "some"]]:
        """The column of each row that is decoded next, and its likeliest token."""
        some, columns = hidden[rows].nonzero(as_tuple=True)
        # t is the time at which the expected share of masks equals the share of masked targets
        visible = 1 - hidden[rows].sum(1) / targets[rows].sum(1).double()
        t = method.schedule.inverse(visible).detach()
        at = to_device(some, z.device), to_device(columns, z.device)
        confidence, best = self._likeliest(method.log_x_theta(z[to_device(rows, z.device)], t, at))
        score = {"left_to_right": -columns, "right_to_left": columns}.get(
            str(self._order), confidence
        )
        dense = torch.full((len(rows), self._length), -torch.inf, dtype=torch.float64)
        dense[some, columns] = score.to(dense)
        column = dense.argmax(1)
        tokens = torch.zeros(len(rows), self._length, dtype=torch.long, device=z.device)
        tokens[at] = best
        return column, tokens.gather(1, to_device(column[:, None], z.device))[:, 0]

    def _likeliest(self, log_p: Tensor) -> tuple[Tensor, Tensor]:
        """The largest log-probability of a token that may be generated, and the token."""
        log_p[:, self._banned] = -torch.inf
        return log_p.max(-1)

    def _rows(self, requests: Sequence[ScoringRequest]) -> tuple[Tokens, Valid]:
        """Tokens with masks behind the targets, and True at the targets."""
        x = torch.full((len(requests), self._length), self._method.vocabulary.mask_id)
        targets = torch.zeros_like(x, dtype=torch.bool)
        for row, request in enumerate(requests):
            x[row, : len(request.ids)] = torch.tensor(request.ids)
            targets[row, request.given : len(request.ids)] = True
        return x, targets

    def _batches(self, rows: Int[Tensor, "some"], positions: Valid) -> Sequence[Tensor]:
        """Batches of rows; smaller if the rows have many positions to predict."""
        largest = int(positions[rows].sum(1).max())
        return rows.split(min(self._batch, max(MAX_POSITIONS // largest, 1)))


def _chunks(
    requests: Sequence[ScoringRequest], size: int
) -> Iterator[tuple[int, Sequence[ScoringRequest]]]:
    """Parts of at most `size` requests, with the number of the first."""
    return ((start, requests[start : start + size]) for start in range(0, len(requests), size))
