"""Log-likelihoods of a row's last tokens given its first ones, independent of the batch."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.likelihood.estimate import How, Progress, checked, choose_estimator
from unmask.likelihood.estimators import Batch
from unmask.methods.compute.cached_decoding import CausalMethod
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method
from unmask.randomness import RowStream, child_seed
from unmask.runtime.device import to_device
from unmask.shapes import Tokens, Valid


@dataclass(frozen=True)
class ScoringRequest:
    """A row to score: the first `given` tokens are the condition, the others are the targets."""

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
    """Rows that score each token from `start` on once; a row holds `room` tokens behind `first`.

    A row with fewer targets is filled up with the tokens before them, as condition.
    """
    while start < len(ids):
        stop = min(start + room, len(ids))
        begin = max(stop - room, 0)
        yield ScoringRequest((*first, *ids[begin:stop]), len(first) + start - begin)
        start = stop


def shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common prefix of two texts, in tokens."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))


MOST_PLACES = 8192  # positions of one pass: each needs a distribution over the vocabulary


def unseen(share: float) -> None:
    """Does nothing: the default progress callback."""


class Scorer:
    """Scores targets in rows of `length` tokens. The positions behind the targets stay masked.

    So the likelihood is that of the row's first tokens, with any continuation. In a row that ended behind
    them the text would end there. The draws of one request share strata; requests share nothing. So neither
    the batch nor the order of requests changes a result.
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
        self.estimator = choose_estimator(method, batch, **how)
        self.draws = checked("draws", draws) if self.estimator.noisy else 1
        self._method, self._length, self._seed, self._batch = method, length, seed, batch
        self._banned = list(banned)  # tokens that are never generated
        self._order = how.get("order")

    @torch.no_grad()
    def log_p(
        self, questions: Sequence[ScoringRequest], progress: Progress = unseen
    ) -> list[float]:
        """log p of each request's targets: exact or a lower bound, depending on the estimator."""
        asked = [one for one in dict.fromkeys(questions) if one.targets]
        nats = torch.zeros(len(asked) * self.draws, dtype=torch.float64)
        for start in range(0, len(nats), self._batch):
            part = range(start, min(start + self._batch, len(nats)))
            nats[part.start : part.stop] = self._nats(asked, part)
            progress(part.stop / len(nats))
        means = -nats.view(-1, self.draws).mean(1)
        found = dict(zip(asked, means.tolist(), strict=True))
        return [found.get(question, 0.0) for question in questions]

    def _nats(self, asked: Sequence[ScoringRequest], part: range) -> Tensor:
        """Nats of some draws; draws are numbered request by request."""
        streams, rows = [], []
        for number in range(part.start // self.draws, -(-part.stop // self.draws)):
            first = number * self.draws
            mine = range(max(part.start - first, 0), min(part.stop - first, self.draws))
            streams.append(RowStream(asked[number].seed(self._seed), 0, mine, self.draws))
            rows += [asked[number]] * len(mine)
        x, targets = self._rows(rows)
        with self._method.arithmetic():
            batch = Batch(x, torch.ones_like(targets), given=~targets)
            terms = self.estimator.terms(batch, streams)
        return torch.stack(list(terms.values())).sum(0).cpu()

    @torch.no_grad()
    def greedy(self, questions: Sequence[ScoringRequest]) -> list[bool]:
        """True for each request whose targets greedy decoding writes.

        An autoregressive model decodes from left to right, as does the chain rule with that order.
        Otherwise the position of highest confidence comes first. The positions behind the targets stay
        masked.
        """
        asked = [one for one in dict.fromkeys(questions) if one.targets]
        found: dict[ScoringRequest, bool] = {}
        for some in _chunks(asked, 16 * self._batch):
            x, targets = self._rows(some)
            check = self._read if self._method.capabilities.causal else self._decode
            found |= zip(some, check(x, targets).tolist(), strict=True)
        return [found.get(question, True) for question in questions]

    def _read(self, x: Tokens, targets: Valid) -> Bool[Tensor, "rows"]:
        """Greedy check of an autoregressive model in one pass, with the true tokens as prefix.

        Greedy decoding has the same prefix as long as all tokens agree.
        """
        method = cast(CausalMethod, self._method)
        right = torch.ones(len(x), dtype=torch.bool)
        for rows in self._parts(torch.arange(len(x)), targets):
            at = to_device(targets[rows].flatten().nonzero()[:, 0], x.device)
            read = x[to_device(rows, x.device)]
            with method.arithmetic():
                h = method.backbone.features(method.inputs(read)).flatten(0, 1)
                best = self._likeliest(method.log_next(h[at - method.lag]))[1]
            same = torch.ones_like(read, dtype=torch.bool).flatten()
            same[at] = best == read.flatten()[at]
            right[rows] = same.view_as(read).all(1).cpu()
        return right

    def _decode(self, x: Tokens, targets: Valid) -> Bool[Tensor, "rows"]:
        """Greedy check by decoding one position at a time; a row stops at its first disagreement."""
        method = cast(MaskedDiffusion, self._method)
        z = x.masked_fill(to_device(targets, x.device), method.vocabulary.mask_id)
        hidden = targets.clone()
        right = torch.ones(len(x), dtype=torch.bool)
        while (going := (right & hidden.any(1)).nonzero()[:, 0]).numel():
            for rows in self._parts(going, hidden):
                column, token = self._next(method, z, hidden, targets, rows)
                on_device, where = to_device(rows, x.device), to_device(column, x.device)
                agrees = (token == x[on_device, where]).cpu()
                right[rows] = agrees
                z[on_device, where] = x[on_device, where]
                hidden[rows, column] = False
        return right

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
        # t is the time at which the expected share of masks is that of the targets
        visible = 1 - hidden[rows].sum(1) / targets[rows].sum(1).double()
        t = method.schedule.inverse(visible).detach()
        at = to_device(some, z.device), to_device(columns, z.device)
        sure, best = self._likeliest(method.log_x_theta(z[to_device(rows, z.device)], t, at))
        score = {"left_to_right": -columns, "right_to_left": columns}.get(str(self._order), sure)
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

    def _rows(self, questions: Sequence[ScoringRequest]) -> tuple[Tokens, Valid]:
        """Tokens on the device, masked behind the targets, and the mask of the targets."""
        x = torch.full((len(questions), self._length), self._method.vocabulary.mask_id)
        targets = torch.zeros_like(x, dtype=torch.bool)
        for row, question in enumerate(questions):
            x[row, : len(question.ids)] = torch.tensor(question.ids)
            targets[row, question.given : len(question.ids)] = True
        return to_device(x, self._method.device), targets

    def _parts(self, rows: Int[Tensor, "some"], places: Valid) -> Sequence[Tensor]:
        """Batches of rows, smaller if rows have many positions to predict."""
        most = int(places[rows].sum(1).max())
        return rows.split(min(self._batch, max(MOST_PLACES // most, 1)))


def _chunks(questions: Sequence[ScoringRequest], size: int) -> Iterator[Sequence[ScoringRequest]]:
    return (questions[start : start + size] for start in range(0, len(questions), size))
