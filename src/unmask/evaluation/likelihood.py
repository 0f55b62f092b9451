"""How well a model predicts text: a bound on its negative log-likelihood, with a Monte-Carlo error."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from unmask.diffusion.time_sampling import FixedCount, Stratified, TimeSampler
from unmask.errors import UnmaskError
from unmask.evaluation.targets import counted_in, given_in
from unmask.methods.base import Method, targets
from unmask.methods.diffusion import Diffusion
from unmask.randomness import RowStream, child_seed
from unmask.transfer import to_device


class TokenRows(Protocol):
    """Rows of tokens, and how much text they cover."""

    bytes: int
    characters: int

    def __len__(self) -> int: ...

    def __getitem__(
        self, rows: range
    ) -> tuple[Int[Tensor, "rows length"], Bool[Tensor, "rows length"]]: ...


@dataclass(frozen=True)
class Bound:
    """Negative log-likelihood per token in nats, and what follows from it; `error` is one standard error.

    `certificate` says what it is of the true value: "exact", or "upper" for a bound from above.
    """

    nats: float
    error: float
    certificate: str
    tokens: int
    bytes: int
    characters: int
    draws: int
    terms: dict[str, float]  # nats per token of each part of the bound

    @property
    def perplexity(self) -> float:
        return math.exp(self.nats)

    @property
    def perplexity_error(self) -> float:
        return self.perplexity * self.error

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) * self.tokens / self.bytes

    @property
    def bits_per_character(self) -> float:
        return self.nats / math.log(2) * self.tokens / self.characters

    def to_dict(self) -> dict[str, Any]:
        """All figures, for a log."""
        names = ("perplexity", "perplexity_error", "bits_per_byte", "bits_per_character")
        return {**asdict(self), **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        sign = "≤ " if self.certificate == "upper" else ""
        error = f" ± {self.perplexity_error:.2f}" if self.error else ""
        return f"perplexity {sign}{self.perplexity:.2f}{error}"


def likelihood(
    method: Method,
    rows: TokenRows,
    *,
    draws: int = 8,
    seed: int = 0,
    batch: int = 32,
    progress: Callable[[float], None] | None = None,
) -> Bound:
    """The bound on `rows`, every row under `draws` independent draws of the noise."""
    by_row = nats_by_row(method, rows, draws=draws, seed=seed, batch=batch, progress=progress)
    whole = torch.stack(list(by_row.values())).sum(0)
    tokens = sum(
        int(counted_in(rows, part, valid).sum()) for part, _, valid in _batches(rows, batch)
    )
    return Bound(
        nats=float(whole.mean(0).sum()) / tokens,
        error=0.0 if method.certificate == "exact" else _standard_error(whole, batch) / tokens,
        certificate=method.certificate,
        tokens=tokens,
        bytes=rows.bytes,
        characters=rows.characters,
        draws=len(whole),
        terms={name: float(values.mean(0).sum()) / tokens for name, values in by_row.items()},
    )


def nats_by_row(
    method: Method,
    rows: TokenRows,
    *,
    draws: int = 8,
    seed: int = 0,
    batch: int = 32,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Float64[Tensor, "draws rows"]]:
    """Each term of the bound on every row, under each draw of the noise; an exact value needs one."""
    if draws < 1:
        raise UnmaskError(f"draws must be 1 or more, not {draws}")
    if not len(rows):
        raise UnmaskError("there is no text to measure")
    if method.certificate == "exact":
        draws = 1
    found: list[tuple[str, int, range, Tensor]] = []
    training = method.training
    method.eval()
    try:
        for part, x, valid in _batches(rows, batch):
            given = given_in(rows, part)
            for number in range(draws):
                losses = _one_draw(method, x, valid, given, seed, number, part)
                found += [(name, number, part, values) for name, values in losses.items()]
            if progress:
                progress(part.stop / len(rows))
    finally:
        method.train(training)
    terms: dict[str, Tensor] = {}
    for name, number, part, values in found:  # only now does anybody wait for the device
        if name not in terms:
            terms[name] = torch.zeros(draws, len(rows), dtype=torch.float64)
        terms[name][number, part.start : part.stop] = values.cpu()
    return terms


def evaluation_times(method: Method) -> TimeSampler | None:
    """The time sampler with the least variance that leaves no end of time out."""
    if not isinstance(method, Diffusion):
        return None
    return Stratified(t_min=0.0) if method.steps else FixedCount()


@torch.no_grad()
def _one_draw(
    method: Method,
    x: Tensor,
    valid: Tensor,
    given: Tensor | None,
    seed: int,
    number: int,
    part: range,
) -> dict[str, Float64[Tensor, "rows"]]:
    """Each term's nats by row, under one draw of the noise."""
    # every batch is its own stratified block; its first row tells it from the others
    stream = RowStream(child_seed(seed, number), part.start, range(len(part)), len(part))
    noise = method.noise(stream, targets(valid, given), evaluation_times(method))
    device = next(method.parameters()).device
    losses = method.nll(to_device(x, device), valid, noise, whole=True, given=given)
    return {name: values.double().sum(1) for name, values in losses.terms.items()}


def _batches(rows: TokenRows, size: int) -> Iterator[tuple[range, Tensor, Tensor]]:
    for start in range(0, len(rows), size):
        part = range(start, min(start + size, len(rows)))
        x, valid = rows[part]
        yield part, x, valid


def _standard_error(by_row: Float64[Tensor, "draws rows"], batch: int) -> float:
    """Standard error of the summed bound: from the spread of each batch's draws.

    The rows of a batch share their strata, so they vary less together than apart. With a single draw
    only the spread between rows is there to see, which is larger: it counts the difference between
    texts as well.
    """
    draws, rows = by_row.shape
    if draws > 1:
        by_batch = torch.stack([part.sum(1) for part in by_row.split(batch, 1)])
        return math.sqrt(float(by_batch.var(1).sum()) / draws)
    return math.sqrt(rows * float(by_row[0].var())) if rows > 1 else math.inf
