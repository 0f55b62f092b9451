"""What the network is asked: some tokens given those before them, wherever and beside whatever it is asked."""

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
    """The first `given` of a row's tokens are seen and cost nothing; how likely are the others?"""

    ids: tuple[int, ...]
    given: int

    @property
    def targets(self) -> int:
        """How many tokens are asked for."""
        return len(self.ids) - self.given

    def seed(self, seed: int) -> int:
        """The seed of its randomness: what is asked decides it, not when or in which batch."""
        content = hashlib.blake2b(repr((self.ids, self.given)).encode(), digest_size=8)
        return child_seed(seed, int.from_bytes(content.digest(), "little"), "question")


def windows(
    first: Sequence[int], ids: Sequence[int], start: int, room: int
) -> Iterator[ScoringRequest]:
    """The tokens from `start` on, each asked for once, in rows that hold `room` tokens behind `first`.

    A row that is not filled by what it asks for holds what stands before it, as far as it goes.
    """
    while start < len(ids):
        stop = min(start + room, len(ids))
        begin = max(stop - room, 0)
        yield ScoringRequest((*first, *ids[begin:stop]), len(first) + start - begin)
        start = stop


def shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))


MOST_PLACES = 8192  # that are looked at together: each has a distribution over the vocabulary


def unseen(share: float) -> None:
    """Nobody watches."""


class Scorer:
    """Answers questions in rows of `length` tokens, of which those behind a question stay masked.

    So the likelihood is that of the row's first tokens, whatever follows them: a row that ended with
    them would say that the text ends there. The draws of a question share strata, and nothing else
    is shared: neither the batch nor the order of questions changes an answer.
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
        self._banned = list(banned)  # tokens that no text is written with
        self._order = how.get("order")

    @torch.no_grad()
    def log_p(
        self, questions: Sequence[ScoringRequest], progress: Progress = unseen
    ) -> list[float]:
        """log p of each question's tokens: exact, or a bound from below, as the estimator says."""
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
        """What some of all draws cost; those of the first question come first, then the second's."""
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
        """Whether the likeliest token, written place by place, is the question's at every place.

        An autoregressive model writes from left to right, and so does the chain rule if that is its
        order; otherwise the surest place comes first. What follows the question stays masked.
        """
        asked = [one for one in dict.fromkeys(questions) if one.targets]
        found: dict[ScoringRequest, bool] = {}
        for some in _chunks(asked, 16 * self._batch):
            x, targets = self._rows(some)
            check = self._read if self._method.capabilities.causal else self._decode
            found |= zip(some, check(x, targets).tolist(), strict=True)
        return [found.get(question, True) for question in questions]

    def _read(self, x: Tokens, targets: Valid) -> Bool[Tensor, "rows"]:
        """All places at once: what stands before each is what greedy decoding has written if all agree."""
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
        """Writes place after place, in a row only as long as it agrees."""
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
        """The place of each row that is written next, and its likeliest token."""
        some, columns = hidden[rows].nonzero(as_tuple=True)
        # as much of the question is masked as at the time t
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
        """The largest probability of tokens that may be written, and whose it is."""
        log_p[:, self._banned] = -torch.inf
        return log_p.max(-1)

    def _rows(self, questions: Sequence[ScoringRequest]) -> tuple[Tokens, Valid]:
        """Tokens on the device, masked behind each question, and which of them are asked for."""
        x = torch.full((len(questions), self._length), self._method.vocabulary.mask_id)
        targets = torch.zeros_like(x, dtype=torch.bool)
        for row, question in enumerate(questions):
            x[row, : len(question.ids)] = torch.tensor(question.ids)
            targets[row, question.given : len(question.ids)] = True
        return to_device(x, self._method.device), targets

    def _parts(self, rows: Int[Tensor, "some"], places: Valid) -> Sequence[Tensor]:
        """Rows a batch at a time, fewer where many places are looked at."""
        most = int(places[rows].sum(1).max())
        return rows.split(min(self._batch, max(MOST_PLACES // most, 1)))


def _chunks(questions: Sequence[ScoringRequest], size: int) -> Iterator[Sequence[ScoringRequest]]:
    return (questions[start : start + size] for start in range(0, len(questions), size))
