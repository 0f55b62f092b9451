"""Animated output of a Jupyter notebook cell, without widgets.

The last picture stays in the notebook file, so that every viewer shows it.
"""

import time
from typing import Any

_PAUSE = 0.2  # seconds between two pictures


class CellOutput:
    """Output below a cell. It shows renderables of rich, which escapes HTML in them."""

    def __init__(self, pause: float = _PAUSE) -> None:
        self._pause = pause
        self._handle: Any = None
        self._shown_at = float("-inf")

    def show(self, picture: object, at_once: bool = False) -> bool:
        """Shows a picture and returns True;
        returns False within `pause` seconds of the last picture.

        With `at_once`, it ignores the pause.
        """
        now = time.monotonic()
        if not at_once and now - self._shown_at < self._pause:
            return False
        self._shown_at = now
        if self._handle is None:
            from IPython.display import display

            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)
        return True
