"""A Jupyter notebook: pictures that follow one another in one place, and that stay in the file.

They need no widgets, so that every notebook, here or in a browser, shows the last of them.
"""

import time
from typing import Any

_PAUSE = 0.2  # seconds between two pictures


class Place:
    """A place below a cell. What is shown is a renderable of rich, which writes it as escaped HTML."""

    def __init__(self, pause: float = _PAUSE) -> None:
        self._pause = pause
        self._shown: Any = None
        self._at = float("-inf")

    def show(self, picture: object, at_once: bool = False) -> bool:
        """The next picture, unless it comes too soon after the last; whether it was shown."""
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
