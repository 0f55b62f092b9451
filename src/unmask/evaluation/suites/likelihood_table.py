"""A likelihood in words and as the lines of its table."""

import math
from typing import TYPE_CHECKING

from unmask.likelihood.figure_text import digits, with_error

if TYPE_CHECKING:
    from unmask.likelihood.bound import Bound
    from unmask.likelihood.measured_rows import TextStatistics

_FEWEST_WORDS = 1 / 12  # words per token of a text with words


def summary(bound: "Bound", found: "TextStatistics | None", twin: tuple[str, float] | None) -> str:
    """The perplexity per word beside a unigram model and the twin; empty for parts of a text.

    A text almost without spaces, such as DNA, has no words: the figure is per token.
    """
    if found is None or not found.words or bound.certificate == "none":
        return ""
    from unmask.likelihood.bound import perplexity_of

    kind = {"upper": "perplexity at most", "exact": "perplexity"}

    words = found.words >= _FEWEST_WORDS

    def readable(nats: float) -> str:
        return _readable(perplexity_of(nats / found.words if words else nats))

    others = f"a unigram model of its tokens has {readable(found.unigram_nats)}"
    if twin is not None:
        name, nats = twin
        others += f", the shipped autoregressive model {name} {readable(nats)}"
    return (
        f"{kind.get(bound.certificate, 'pseudo-perplexity')} {readable(bound.nats)} "
        f"per {'word' if words else 'token'}; {others} (lower is better)"
    )


def cells(bound: "Bound", upper: "Bound | None") -> dict[str, str]:
    """The lines of a bound in the table, and of the bound beside a pseudo-likelihood."""
    from unmask.likelihood.bound import CERTIFICATES

    sign = "≤ " if bound.certificate == "upper" else ""
    # with estimated bytes of a part, or with unknown tokens, the figure per byte is no bound
    about = "≈ " if bound.text_estimated or bound.unknown else sign
    byte = with_error(bound.bits_per_byte, bound.bits_per_byte_error)
    character = with_error(bound.bits_per_character, bound.bits_per_character_error)
    pseudo = "pseudo-" if bound.certificate == "pseudo" else ""
    known = math.isfinite(bound.text_error)
    text_error = f"± {bound.text_error:.2g} nats per token"
    left_out = f"{bound.left_out:,} pairs longer than a row"
    unknown = f"{bound.unknown:,} unknown tokens"
    terms = ", ".join(f"{name} {value:.4f}" for name, value in bound.terms.items())
    return {
        f"{pseudo}perplexity": f"{sign}{with_error(bound.perplexity, bound.perplexity_error)} per token",
        "nats per token": sign + with_error(bound.nats, bound.error),
        "bits per byte": about + byte,
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


def _readable(value: float) -> str:
    """A perplexity with three digits, or as a power of ten if it is very large."""
    if value >= 1e6:
        return f"{value:.0e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _upper_text(bound: "Bound | None") -> str:
    if bound is None:
        return ""
    nats, perplexity = (
        with_error(bound.nats, bound.error),
        with_error(bound.perplexity, bound.perplexity_error),
    )
    return f"perplexity ≤ {perplexity}, ≤ {nats} nats per token"


def _interval(bound: "Bound") -> str:
    if not 0 < bound.error < math.inf:
        return ""
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
