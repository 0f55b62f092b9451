"""A likelihood in words and as the lines of its table."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unmask.likelihood.figure_text import digits, with_error

if TYPE_CHECKING:
    from unmask.likelihood.bound import Bound
    from unmask.likelihood.measured_rows import TextStatistics


@dataclass(frozen=True)
class Baseline:
    """Another model on the same rows.

    `kind` is "start", the model that the training started from, or "twin", the autoregressive model
    that was trained like this shipped model.
    """

    kind: str
    name: str
    nats: float  # per token

    def to_dict(self) -> dict[str, Any]:
        """The fields in a row of figures."""
        return {self.kind: self.name, f"{self.kind}_nats": self.nats}

    def __str__(self) -> str:
        if self.kind == "start":
            return f"{self.name}, from which the training started,"
        return f"the shipped autoregressive model {self.name}"


def summary(
    bound: "Bound", found: "TextStatistics | None", baseline: Baseline | None, source: str
) -> str:
    """Bits per byte of a text beside a unigram model and a baseline; empty for parts of a text."""
    if found is None or not bound.bytes or not bound.nats or bound.certificate == "none":
        return ""
    kind = {
        "upper": "bits per byte at most",
        "exact": "bits per byte",
        "decoding": "bits per byte under this decoding rule",
    }
    scale = bound.bits_per_byte / bound.nats
    others = f"a unigram model of its tokens has {found.unigram_nats * scale:.2f}"
    if baseline is not None:
        others += f", {baseline} {baseline.nats * scale:.2f}"
    return (
        f"{bound.bits_per_byte:.2f} {kind.get(bound.certificate, 'bits per byte (pseudo-likelihood)')}"
        f" on {source}; {others} (lower is better)"
    )


def cells(bound: "Bound", upper: "Bound | None") -> dict[str, str]:
    """The lines of a bound in the table, and of the bound beside a pseudo-likelihood."""
    from unmask.likelihood.bound import CERTIFICATES

    def figure(value: float, error: float) -> str:
        return with_error(value, error, bound.freedom)

    sign = "≤ " if bound.certificate == "upper" else ""
    # with estimated bytes of a part, or with unknown tokens, the figure per byte is no bound
    about = "≈ " if bound.text_estimated or bound.unknown else sign
    byte = figure(bound.bits_per_byte, bound.bits_per_byte_error)
    character = figure(bound.bits_per_character, bound.bits_per_character_error)
    pseudo = "pseudo-" if bound.certificate == "pseudo" else ""
    known = math.isfinite(bound.text_error)
    text_error = f"± {bound.text_error:.2g} nats per token"
    left_out = f"{bound.left_out:,} pairs longer than a row"
    unknown = f"{bound.unknown:,} unknown tokens"
    terms = ", ".join(f"{name} {value:.4f}" for name, value in bound.terms.items())
    return {
        "bits per byte": about + byte,
        f"{pseudo}perplexity": f"{sign}{figure(bound.perplexity, bound.perplexity_error)} per token",
        "nats per token": sign + figure(bound.nats, bound.error),
        "bits per character": about + character,
        "kind of figure": CERTIFICATES.get(bound.certificate, bound.certificate),
        "computed by": bound.of,
        "order-agnostic bound": _upper_text(upper),
        "99% interval": _interval(bound),
        "to halve the error": f"{bound.draws_to_halve} draws" if bound.draws_to_halve else "",
        "error over texts": text_error if known else "unknown: the text is one row",
        "tokens": f"{bound.tokens:,}",
        "left out": left_out if bound.left_out else "",
        "unknown": unknown if bound.unknown else "",
        "not read": bound.unread,
        "draws": str(bound.draws),
        "rows": _rows(bound),
        "terms": terms if len(bound.terms) > 1 else "",
    }


def _upper_text(bound: "Bound | None") -> str:
    if bound is None:
        return ""
    nats, perplexity = (
        with_error(bound.nats, bound.error, bound.freedom),
        with_error(bound.perplexity, bound.perplexity_error, bound.freedom),
    )
    return f"perplexity ≤ {perplexity}, ≤ {nats} nats per token"


def _interval(bound: "Bound") -> str:
    from unmask.likelihood.bound import FEWEST

    if not 0 < bound.error < math.inf:
        return ""
    if bound.freedom < FEWEST:
        return "too few draws: give more with --draws"
    places = digits(bound.error)
    low, high = bound.interval
    return f"{low:.{places}f} to {high:.{places}f} nats per token"


def _rows(bound: "Bound") -> str:
    """The measured rows as text."""
    if bound.sums is None:
        return ""
    if bound.sums.rows == bound.sums.conditions.rows:
        return f"{bound.sums.rows:,}, all of the text"
    rows = ", ".join(f"{start} to {stop - 1}" for start, stop in bound.sums.parts)
    return f"{rows} of {bound.sums.conditions.rows}"
