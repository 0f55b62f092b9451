"""A likelihood estimate with certificate, standard error and interval."""

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from unmask.errors import UnmaskError
from unmask.likelihood.sums import Sums

CERTIFICATES = {
    "exact": "exact",
    "upper": "an upper bound",
    "pseudo": "no likelihood, no bound",
    "none": "a training loss, no bound",
}
_FIGURES = (
    "perplexity",
    "perplexity_error",
    "interval",
    "perplexity_interval",
    "draws_to_halve",
    "bits_per_byte",
    "bits_per_byte_error",
    "bits_per_character",
    "bits_per_character_error",
)


@dataclass(frozen=True)
class Bound:
    """Negative log-likelihood per token in nats, and what follows from it; `error` is one standard error.

    `certificate` says what it is of the true value: "exact", "upper" for a bound from above, "pseudo"
    and "none" for neither. The error is that of the estimate on this text; `text_error` also counts how much texts
    differ, for a claim about the language that they are a sample of.
    """

    nats: float
    error: float
    certificate: str
    tokens: int
    bytes: int
    characters: int
    draws: int
    terms: dict[str, float]  # nats per token of each part of the bound
    of: str = ""  # what it is a likelihood of
    freedom: float = math.inf  # degrees of freedom of the error
    text_error: float = math.inf
    text_estimated: bool = False  # bytes and characters are a part's share, by its tokens
    left_out: int = 0  # pairs that fit into no row and are in no figure
    unknown: int = 0  # tokens of the text, parts and all, that stand for what there is none for
    unread: str = ""  # what of the text could not be read and is in no figure
    sums: Sums | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_sums(cls, sums: Sums) -> "Bound":
        """What sums over rows say."""
        about, rows, tokens = sums.conditions, sums.rows, sums.tokens
        whole = rows == about.rows
        share = 1.0 if whole else tokens / about.tokens if about.tokens else 0.0
        text_error = math.sqrt(rows / (rows - 1) * sums.residual) if rows > 1 else math.inf
        error, freedom = math.sqrt(sums.variance / about.draws), math.inf
        if about.draws > 1:
            freedom = pooled_freedom(about.draws, sums.variance, sums.variance_squares)
        elif about.certificate in ("upper", "none"):
            # one draw does not show its spread; that between rows is larger
            error, freedom = text_error, max(rows - 1.0, 1.0)
        return cls(
            nats=sums.nats / tokens,
            error=error / tokens,
            certificate=about.certificate,
            tokens=tokens,
            bytes=round(about.bytes * share),
            characters=round(about.characters * share),
            draws=about.draws,
            terms={name: value / tokens for name, value in sums.terms.items()},
            of=about.of,
            freedom=freedom,
            text_error=text_error / tokens,
            text_estimated=about.text_estimated or not whole,
            left_out=about.left_out,
            unknown=about.unknown,
            unread=about.unread,
            sums=sums,
        )

    def __add__(self, other: "Bound") -> "Bound":
        """Two parts of one corpus together, as if they had been measured at once."""
        if self.sums is None or other.sums is None:
            raise UnmaskError("only what was measured can be added: these figures have no sums")
        return Bound.from_sums(self.sums + other.sums)

    @property
    def perplexity(self) -> float:
        """exp(nats): among how many equally likely tokens the model wavers."""
        return perplexity_of(self.nats)

    @property
    def perplexity_error(self) -> float:
        """One standard error of the perplexity."""
        return self.perplexity * self.error if self.error else 0.0

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Nats per token that hold the bound on this text with 99% confidence; no text costs less than 0."""
        reach = student_quantile(self.freedom) * self.error if self.error else 0.0
        return max(self.nats - reach, 0.0), self.nats + reach

    @property
    def perplexity_interval(self) -> tuple[float, float]:
        """The same as a perplexity."""
        low, high = self.interval
        return perplexity_of(low), perplexity_of(high)

    @property
    def draws_to_halve(self) -> int | None:
        """Draws that bring the error down to half: it falls as 1/sqrt(draws), which one draw does not show."""
        return 4 * self.draws if self.error and self.draws > 1 else None

    @property
    def bits_per_byte(self) -> float:
        """Bits for each byte of the text, which no tokenizer changes."""
        return self._bits_per(self.bytes, self.nats)

    @property
    def bits_per_byte_error(self) -> float:
        """One standard error of the bits per byte."""
        return self._bits_per(self.bytes, self.error)

    @property
    def bits_per_character(self) -> float:
        """Bits for each character of the text."""
        return self._bits_per(self.characters, self.nats)

    @property
    def bits_per_character_error(self) -> float:
        """One standard error of the bits per character."""
        return self._bits_per(self.characters, self.error)

    def to_dict(self) -> dict[str, Any]:
        """All figures, for a log; what is not known is null."""
        told = {**asdict(self), **{name: getattr(self, name) for name in _FIGURES}}
        del told["sums"]
        return {name: _known(value) for name, value in told.items()}

    def __str__(self) -> str:
        kind = "perplexity" if self.certificate in ("exact", "upper") else "pseudo-perplexity"
        sign = "≤ " if self.certificate == "upper" else ""
        error = ""
        if self.error:
            low, high = self.perplexity_interval
            error = f" ± {self.perplexity_error:.2f} (99%: {low:.2f} to {high:.2f})"
        what = f"{CERTIFICATES.get(self.certificate, self.certificate)}, {self.of}".rstrip(", ")
        return f"{kind} {sign}{self.perplexity:.2f}{error} per token; {what}"

    def _bits_per(self, units: int, nats: float) -> float:
        return nats / math.log(2) * self.tokens / units if units else math.nan


def perplexity_of(nats: float) -> float:
    """e to the nats; infinite where numbers end, as of a network that has not learned."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def _known(value: Any) -> Any:
    """JSON has no word for infinity."""
    if isinstance(value, tuple):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


CONFIDENCE = 0.99
FEWEST = 3  # degrees of freedom that an error needs to be told without its interval
_NORMAL = 1e6  # degrees of freedom from which Student's t is the normal distribution
_NODES = 1 << 16


def pooled_freedom(draws: int, variance: float, squares: float) -> float:
    """Degrees of freedom of a sum of blocks' variances, each of `draws` draws (Satterthwaite).

    `variance` is their sum and `squares` that of their squares: one block has draws - 1, n equal blocks
    have n (draws - 1).
    """
    if not squares > 0:
        return math.inf
    return (draws - 1) * max(1.0, variance**2 / squares)  # less than 1 is rounding


def student_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """How many standard errors to each side hold the true value with this confidence."""
    if freedom > _NORMAL:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    # T = sqrt(freedom) tan(angle), and the angle's density is cos(angle) ** (freedom - 1)
    widest = min(math.pi / 2, 40 / math.sqrt(freedom))
    angle = np.linspace(0, widest, _NODES)
    density = np.maximum(np.cos(angle), 0) ** (freedom - 1)
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    found = np.interp(confidence * mass[-1], mass, angle)
    return math.sqrt(freedom) * math.tan(found)
