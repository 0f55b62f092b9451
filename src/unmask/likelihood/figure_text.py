"""Text of figures: a value to the digits of its error, with a sign where it is a bound."""

import math


def with_error(value: float, error: float, freedom: float = math.inf) -> str:
    """A value to the digits that its standard error leaves, with the error's first two."""
    from unmask.likelihood.bound import FEWEST

    if error == 0:
        return f"{value:.4f}"
    # one draw of one row says nothing about its error, and few say little
    if not math.isfinite(error) or freedom < FEWEST:
        return f"{value:.4f} ± ?"
    digits = _digits(error)
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def with_interval(value: float, low: float, high: float) -> str:
    """A value to the digits that its interval leaves."""
    width = high - low
    digits = 4 if width <= 0 else min(max(0, 1 - math.floor(math.log10(width / 4))), 4)
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _digits(error: float) -> int:
    """Behind the point, for the first two of an error."""
    return max(0, 1 - math.floor(math.log10(error)))


def signed(certificate: str, figure: str) -> str:
    """An upper bound is marked as one."""
    return f"≤ {figure}" if certificate == "upper" else figure
