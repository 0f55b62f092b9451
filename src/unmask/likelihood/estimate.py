"""Monte-Carlo estimates of the likelihood, or of a bound on it, over the rows of a corpus.

The noise of a row depends on the seed, the draw, the number of draws and the row's number in the
corpus. So a row has the same value in every batch and every shard. Times are stratified over a block of
rows, or over the draws of a block if it has few rows.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.likelihood.bound import Bound
from unmask.likelihood.decoding import DecodingRule
from unmask.likelihood.draws import BLOCK, draw_stream
from unmask.likelihood.estimators import CountedBatch, Estimator, own_bound
from unmask.likelihood.measured_rows import TokenRows, counted_in, first_targets, given_in
from unmask.likelihood.sums import Conditions, Sums
from unmask.likelihood.token_orders import Order, order_estimator
from unmask.methods.block_diffusion import with_block
from unmask.methods.method import Method
from unmask.randomness import RowStream
from unmask.samplers.sampler import Sampler

_PENDING = 4  # batches that are queued on the device at the same time
Progress = Callable[[float], None]


class How(TypedDict, total=False):
    """Choice of the estimator."""

    estimator: str | None  # fixed_count, stratified, importance, uniform, pseudo
    steps: int | None  # T of the bound; 0 is continuous time
    order: Order | None  # of the chain rule: a name of ORDERS, or each position of a row once
    orders: int | None  # K of the any-order bound
    block: int | None  # tokens of a block, of a model of block diffusion; 0 is the whole row
    rule: Sampler | None  # the likelihood of the texts that this sampler writes
    temperature: float | None  # of the rule's draws; 1 unless given


def likelihood(
    method: Method,
    rows: TokenRows,
    *,
    draws: int = 8,
    seed: int = 0,
    batch: int = 32,
    shard: tuple[int, int] = (0, 1),
    progress: Progress | None = None,
    keep_rows: bool = False,
    **how: Unpack[How],
) -> Bound:
    """The likelihood of `rows`, estimated with `draws` draws of the noise per row.

    Memory does not grow with the number of rows, unless `keep_rows` is set.

    Args:
        method: The model.
        rows: Rows to measure.
        draws: Noise draws per row.
        seed: Seed of the noise.
        batch: Rows of one pass of the network.
        shard: (i, n) measures part i of n, from 0. The bounds of all parts can be added with +.
        progress: Called after each batch with the fraction that is done.
        keep_rows: Keep the nats of each row, for `paired_difference`.
        how: Estimator, see `choose_estimator`. The default is the method's own bound.

    Returns:
        The estimate with certificate and standard error.
    """
    run = _Measurement(method, rows, draws, seed, batch, how)
    conditions = run.conditions()
    total: Sums | None = None
    for piece in _by_block(run.pieces(shard_rows(len(rows), shard), progress)):
        sums = Sums.of_block(conditions, piece.start, piece.terms, piece.tokens, keep_rows)
        total = sums if total is None else total + sums
    if total is None or not total.tokens:
        raise UnmaskError(
            "there is no text to measure: every row is empty; give a text with tokens"
        )
    return Bound.from_sums(total)


def paired_difference(before: Bound, after: Bound) -> tuple[float, float, float]:
    """The nats per token by which a bound fell, for two models on the same rows and noise.

    The noise of both is the same, so most of its variance cancels in the difference.

    Args:
        before: The first bound, measured with `keep_rows`.
        after: The second bound, measured likewise.

    Returns:
        The difference, its standard error and the degrees of freedom of the error.
    """
    first, second = (_kept_rows(bound) for bound in (before, after))
    if first.shape != second.shape or not torch.equal(first[0], second[0]):
        raise UnmaskError("the bounds are of different rows or draws: measure both alike")
    about = Conditions(before.certificate, before.of, before.draws, 0, first.shape[1], 0, 0)
    total: Sums | None = None
    for start in range(0, first.shape[1], BLOCK):
        nats = (first - second)[1:, start : start + BLOCK]
        tokens = first[0, start : start + BLOCK].long()
        sums = Sums.of_block(about, start, {"difference": nats}, tokens)
        total = sums if total is None else total + sums
    assert total is not None
    found = Bound.from_sums(total)
    return found.nats, found.error, found.freedom


def _kept_rows(bound: Bound) -> Float64[Tensor, "values rows"]:
    """Tokens and nats of each row that a bound was measured on, from `keep_rows`."""
    if bound.sums is None or not bound.sums.by_row:
        raise UnmaskError("the bound has no nats of its rows: measure it with keep_rows")
    return torch.tensor(bound.sums.by_row, dtype=torch.float64).T


def nats_by_row(
    method: Method,
    rows: TokenRows,
    *,
    draws: int = 8,
    seed: int = 0,
    batch: int = 32,
    progress: Progress | None = None,
    **how: Unpack[How],
) -> dict[str, Float64[Tensor, "draws rows"]]:
    """Nats of every row under each draw of the noise, by term of the bound; an exact likelihood has one draw."""
    run = _Measurement(method, rows, draws, seed, batch, how)
    pieces = list(run.pieces(range(len(rows)), progress))
    names = dict.fromkeys(name for piece in pieces for name in piece.terms)
    return {name: torch.cat([piece.term(name) for piece in pieces], 1) for name in names}


def choose_estimator(method: Method, batch: int = 32, **how: Unpack[How]) -> Estimator:
    """The estimator that `how` selects: a time sampler, T steps, a block size, or token orders.

    The default is the method's own bound.
    """
    checked("batch", batch)
    named = [name for name in How.__annotations__ if how.get(name) is not None]
    estimator, steps, orders = how.get("estimator"), how.get("steps"), how.get("orders")
    if len(named) > 1 and (
        not ({*named} <= {"estimator", "steps", "block"} or {*named} == {"rule", "temperature"})
        or estimator == "pseudo"
    ):
        raise UnmaskError(f"{' and '.join(named)} measure different things: give one of them")
    if orders is not None:
        return order_estimator(method, batch, orders=checked("orders", orders))
    if how.get("order") is not None or estimator == "pseudo":
        return order_estimator(method, batch, order=how.get("order"))
    temperature = how.get("temperature")
    if (rule := how.get("rule")) is not None:
        return DecodingRule(method, rule, 1.0 if temperature is None else temperature)
    if temperature is not None:
        raise UnmaskError("a temperature changes the texts of a rule, not a bound: give rule too")
    block = how.get("block")
    if block is not None:
        method = with_block(method, checked("block", block, 0))
    steps = None if steps is None else checked("steps", steps, 0)
    return own_bound(method, estimator, steps, batch)


def shard_rows(rows: int, shard: tuple[int, int]) -> range:
    """The rows of shard i of n, from 0. A shard holds whole blocks."""
    number, count = shard
    blocks = -(-rows // BLOCK)
    if not 0 <= checked("shard", number, 0) < checked("shards", count):
        raise UnmaskError(f"shard {number} of {count} does not exist: shards count from 0")
    if count > max(blocks, 1):
        raise UnmaskError(
            f"{rows} rows make {blocks} blocks of {BLOCK} rows, which cannot be cut into {count} shards: "
            "give fewer shards"
        )
    first, last = (blocks * edge // count * BLOCK for edge in (number, number + 1))
    return range(first, min(last, rows))


def checked(name: str, value: Any, least: int = 1) -> int:
    """`value` as an int; raises an error unless it is a whole number of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UnmaskError(f"{name} must be a whole number, not {value!r}") from None
    if number < least:
        raise UnmaskError(f"{name} must be {least} or more, not {number}")
    return number


@dataclass(frozen=True)
class _Piece:
    """Nats of consecutive rows, by term, under each draw."""

    start: int
    tokens: Int64[Tensor, "rows"]
    terms: dict[str, Float64[Tensor, "draws rows"]]

    def term(self, name: str) -> Float64[Tensor, "draws rows"]:
        """The nats of one term; zeros if these rows lack it."""
        some = next(iter(self.terms.values()))
        return self.terms.get(name, torch.zeros_like(some))

    def __add__(self, other: "_Piece") -> "_Piece":
        names = dict.fromkeys([*self.terms, *other.terms])
        terms = {name: torch.cat([self.term(name), other.term(name)], 1) for name in names}
        return _Piece(self.start, torch.cat([self.tokens, other.tokens]), terms)

    def cut(self, rows: int) -> tuple["_Piece", "_Piece"]:
        """The first `rows` rows and the rest."""
        first = {name: values[:, :rows] for name, values in self.terms.items()}
        rest = {name: values[:, rows:] for name, values in self.terms.items()}
        return (
            _Piece(self.start, self.tokens[:rows], first),
            _Piece(self.start + rows, self.tokens[rows:], rest),
        )


class _Measurement:
    """One measurement of a corpus. It yields the results of batches as the device finishes them."""

    def __init__(
        self,
        method: Method,
        rows: TokenRows,
        draws: int,
        seed: int,
        batch: int,
        how: How,
    ) -> None:
        self.draws, self.batch = checked("draws", draws), checked("batch", batch)
        if not len(rows):
            raise UnmaskError("there is no text to measure: the corpus has no rows; give a text")
        self.estimator = choose_estimator(method, batch, **how)
        self.rows, self.seed = rows, operator.index(seed)
        if not self.estimator.noisy:
            self.draws = 1

    def conditions(self) -> Conditions:
        """Settings and corpus of this measurement, which its sums store."""
        rows = self.rows
        return Conditions(
            certificate=self.estimator.certificate,
            of=self.estimator.of,
            draws=self.draws,
            seed=self.seed,
            rows=len(rows),
            bytes=rows.bytes,
            characters=rows.characters,
            tokens=getattr(rows, "tokens", 0),
            text=getattr(rows, "digest", ""),
            text_estimated=getattr(rows, "text_estimated", False),
            left_out=getattr(rows, "left_out", 0),
            unknown=getattr(rows, "unknown", 0),
            unread=getattr(rows, "unread", ""),
        )

    def pieces(self, part: range, progress: Progress | None) -> Iterator[_Piece]:
        """Yields the results of a part's batches in order, while later batches are on the device."""
        method = self.estimator.method
        training = method.training
        method.eval()
        pending: deque[_PendingBatch] = deque()
        try:
            for start in range(part.start, part.stop, self.batch):
                batch = range(start, min(start + self.batch, part.stop))
                pending.append(self._start(batch))
                if len(pending) > _PENDING:
                    yield pending.popleft().result()
                if progress:
                    progress((batch.stop - part.start) / len(part))
            yield from (each.result() for each in pending)
        finally:
            method.train(training)

    @torch.no_grad()
    def _start(self, batch: range) -> "_PendingBatch":
        x, valid = self.rows[batch]
        given, tokens = given_in(self.rows, batch), counted_in(self.rows, batch, valid)
        if self.estimator.method.capabilities.per_row:
            tokens = torch.ones_like(tokens)
        counted = first_targets(valid, given, tokens)
        streams = [self._streams(number, batch) for number in range(self.draws)]
        found = self.estimator.draws(CountedBatch(x, valid, given, counted), streams)
        return _PendingBatch(batch.start, tokens, found)

    def _streams(self, draw: int, batch: range) -> list[RowStream]:
        """The random streams of a batch's rows under a draw, one for each block that the batch overlaps."""
        streams = []
        for start in range(batch.start // BLOCK * BLOCK, batch.stop, BLOCK):
            block = range(start, min(start + BLOCK, len(self.rows)))
            part = range(max(batch.start, start), min(batch.stop, block.stop))
            streams.append(draw_stream(self.seed, draw, self.draws, block, part))
        return streams


class _PendingBatch:
    """Results of a batch, copied to the host without a synchronization."""

    def __init__(self, start: int, tokens: Tensor, found: Sequence[dict[str, Tensor]]) -> None:
        names = dict.fromkeys(name for terms in found for name in terms)
        some = next(iter(found[0].values()))
        nothing = torch.zeros_like(some)
        by_draw = {name: [terms.get(name, nothing) for terms in found] for name in names}
        terms = {
            name: torch.stack(values).to("cpu", non_blocking=some.is_cuda)
            for name, values in by_draw.items()
        }
        self._piece = _Piece(start, tokens, terms)
        self._event = torch.cuda.Event() if some.is_cuda else None
        if self._event:
            self._event.record(torch.cuda.current_stream(some.device))

    def result(self) -> _Piece:
        """The results, after the copy has finished."""
        if self._event:
            self._event.synchronize()
        return self._piece


def _by_block(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """Pieces joined or cut to whole blocks."""
    rest: _Piece | None = None
    for piece in pieces:
        rest = piece if rest is None else rest + piece
        while len(rest.tokens) >= BLOCK:
            block, rest = rest.cut(BLOCK)
            yield block
    if rest is not None and len(rest.tokens):
        yield rest
