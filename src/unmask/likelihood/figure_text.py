"""Figures as text: rounded to the digits of their error, with ≤ before a bound."""

import math


def with_error(value: float, error: float, freedom: float = math.inf) -> str:
    """A value and its standard error, rounded to the first two digits of the error."""
    from unmask.likelihood.bound import FEWEST

    if error == 0:
        return f"{value:.4f}"
    # a standard error with few degrees of freedom is itself too uncertain to print
    if not math.isfinite(error) or freedom < FEWEST:
        return f"{value:.4f} ± ?"
    places = digits(error)
    return f"{value:.{places}f} ± {error:.{places}f}"


def with_interval(value: float, low: float, high: float) -> str:
    """A value and its interval, rounded to the digits that the interval's width supports."""
    width = high - low
    digits = 4 if width <= 0 else min(max(0, 1 - math.floor(math.log10(width / 4))), 4)
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def digits(error: float) -> int:
    """Decimal places that show the first two digits of an error."""
    return max(0, 1 - math.floor(math.log10(error)))


def signed(certificate: str, figure: str) -> str:
    """The figure, with ≤ before an upper bound."""
    return f"≤ {figure}" if certificate == "upper" else figure
