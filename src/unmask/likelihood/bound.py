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
    "decoding": "exact for this decoding rule, not for the model's bound",
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
    """Negative log-likelihood per token in nats, with perplexity,
    bits per byte and standard errors.

    `certificate` is the relation to the true value: "exact", "upper" for an upper bound, "decoding"
    for the exact value of a decoding rule, which has a distribution of its own, "pseudo" and "none"
    for none of these. `error` is one standard error of the estimate on this text. `text_error`
    also covers the spread between texts, as a claim about the language needs it.
    """

    nats: float
    error: float
    certificate: str
    tokens: int
    bytes: int
    characters: int
    draws: int
    terms: dict[str, float]  # nats per token of each part of the bound
    of: str = ""  # the process or order that the likelihood belongs to
    freedom: float = math.inf  # degrees of freedom of the error
    text_error: float = math.inf
    text_estimated: bool = False  # bytes and characters are a part's share, by its tokens
    left_out: int = 0  # pairs that are longer than a row and were not measured
    # tokens of the corpus, in all of its parts, that are the tokenizer's unknown token
    unknown: int = 0
    unread: str = ""  # summary of read errors; unread text was not measured
    sums: Sums | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_sums(cls, sums: Sums) -> "Bound":
        """The estimate from sums over rows."""
        about, rows, tokens = sums.conditions, sums.rows, sums.tokens
        whole = rows == about.rows
        share = 1.0 if whole else tokens / about.tokens if about.tokens else 0.0
        text_error = math.sqrt(rows / (rows - 1) * sums.residual) if rows > 1 else math.inf
        error, freedom = math.sqrt(sums.variance / about.draws), math.inf
        if about.draws > 1:
            freedom = pooled_freedom(about.draws, sums.variance, sums.variance_squares)
        elif about.certificate in ("upper", "none"):
            # one draw has no variance over draws; the larger spread between rows replaces it
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
        """The bound of two parts of one corpus, equal to that of one measurement of both."""
        if self.sums is None or other.sums is None:
            raise UnmaskError("a bound without sums cannot be added: measure it with `likelihood`")
        return Bound.from_sums(self.sums + other.sums)

    @property
    def perplexity(self) -> float:
        """exp(nats): the number of equally likely tokens with the same uncertainty."""
        return perplexity_of(self.nats)

    @property
    def perplexity_error(self) -> float:
        """One standard error of the perplexity."""
        return self.perplexity * self.error if self.error else 0.0

    @cached_property
    def interval(self) -> tuple[float, float]:
        """99% confidence interval of the nats per token on this text;
        its lower end is at least 0.
        """
        width = student_quantile(self.freedom) * self.error if self.error else 0.0
        return max(self.nats - width, 0.0), self.nats + width

    @property
    def perplexity_interval(self) -> tuple[float, float]:
        """99% confidence interval of the perplexity."""
        low, high = self.interval
        return perplexity_of(low), perplexity_of(high)

    @property
    def draws_to_halve(self) -> int | None:
        """Draws that halve the error, which falls at least as 1/sqrt(draws);
        None if there is one draw or no error.
        """
        return 4 * self.draws if self.error and self.draws > 1 else None

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of the text; comparable between tokenizers."""
        return self._bits_per(self.bytes, self.nats)

    @property
    def bits_per_byte_error(self) -> float:
        """One standard error of the bits per byte."""
        return self._bits_per(self.bytes, self.error)

    @property
    def bits_per_character(self) -> float:
        """Bits per character of the text."""
        return self._bits_per(self.characters, self.nats)

    @property
    def bits_per_character_error(self) -> float:
        """One standard error of the bits per character."""
        return self._bits_per(self.characters, self.error)

    def to_dict(self) -> dict[str, Any]:
        """All figures for a log.

        Returns:
            Figures by name; infinity and NaN are None.
        """
        figures = {**asdict(self), **{name: getattr(self, name) for name in _FIGURES}}
        del figures["sums"]
        return {name: _known(value) for name, value in figures.items()}

    def __str__(self) -> str:
        kind = "perplexity" if self.certificate in ("exact", "upper") else "pseudo-perplexity"
        sign = "≤ " if self.certificate == "upper" else ""
        error = ""
        if self.error:
            low, high = self.perplexity_interval
            error = f" ± {self.perplexity_error:.2f} (99%: {low:.2f} to {high:.2f})"
            if self.freedom < FEWEST:
                error = " ± ? (too few draws for an interval)"
        what = f"{CERTIFICATES.get(self.certificate, self.certificate)}, {self.of}".rstrip(", ")
        return f"{kind} {sign}{self.perplexity:.2f}{error} per token; {what}"

    def _bits_per(self, units: int, nats: float) -> float:
        return nats / math.log(2) * self.tokens / units if units else math.nan


def perplexity_of(nats: float) -> float:
    """exp(nats), or infinity where it overflows, as for an untrained network."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def _known(value: Any) -> Any:
    """The value, with None for infinity and NaN, which JSON lacks."""
    if isinstance(value, tuple):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


CONFIDENCE = 0.99
FEWEST = 3  # a standard error with fewer degrees of freedom is printed as ?
_NORMAL = 1e6  # degrees of freedom above which Student's t is taken as normal
_NODES = 1 << 16  # of the numerical integral


def pooled_freedom(draws: int, variance: float, squares: float) -> float:
    """Degrees of freedom of a sum of blocks' variances, each from `draws` draws (Satterthwaite).

    One block has draws - 1 degrees of freedom, n equal blocks have n (draws - 1). A block whose
    draws share strata has fewer: its square is larger (`Sums.of_block`).

    Args:
        draws: Draws of each block.
        variance: Sum of the blocks' variances.
        squares: Sum of their squares.
    """
    if not squares > 0:
        return math.inf
    return max(1.0, (draws - 1) * variance**2 / squares)  # less than 1 is rounding


def student_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Half-width of the confidence interval, in standard errors (Student's t)."""
    if freedom > _NORMAL:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    # T = sqrt(freedom) tan(angle), and the angle's density is cos(angle) ** (freedom - 1)
    widest = min(math.pi / 2, 40 / math.sqrt(freedom))
    angle = np.linspace(0, widest, _NODES)
    density = np.maximum(np.cos(angle), 0) ** (freedom - 1)
    mass = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    found = np.interp(confidence * mass[-1], mass, angle)
    return math.sqrt(freedom) * math.tan(found)
