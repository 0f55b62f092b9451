"""Animated output of a Jupyter notebook cell, without widgets.

The last picture stays in the notebook file, so that every viewer shows it.
"""

import time
from typing import Any

_PAUSE = 0.2  # seconds between two pictures


class Place:
    """Output area below a cell. It shows renderables of rich, which escapes their HTML."""

    def __init__(self, pause: float = _PAUSE) -> None:
        self._pause = pause
        self._shown: Any = None
        self._at = float("-inf")

    def show(self, picture: object, at_once: bool = False) -> bool:
        """Shows the next picture, unless the last one is too recent. True if it was shown."""
        now = time.monotonic()
        if not at_once and now - self._at < self._pause:
            return False
        self._at = now
        if self._shown is None:
            from IPython.display import display

            self._shown = display(picture, display_id=True)
        else:
            self._shown.update(picture)
        return True
