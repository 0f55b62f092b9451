"""A trace of the calls within the package."""

import sys
from pathlib import Path
from types import FrameType

import unmask

ROOT = str(Path(unmask.__file__).parent)


def project(frame: FrameType) -> str | None:
    """The file of a frame within the package, or None."""
    file = frame.f_code.co_filename
    return file.removeprefix(ROOT)[1:] if file.startswith(ROOT) else None


class Walk:
    """The files and functions that run, and the stack when the network is first called.

    With `within`, a function's name, only the calls of that function count.
    """

    def __init__(self, within: str = "") -> None:
        self.within, self.files, self.stack = within, set[str](), list[str]()
        self.called: set[str] = set()
        self._inside = not within

    def __enter__(self) -> "Walk":
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        file = project(frame)
        if file is None:
            return
        if frame.f_code.co_qualname == self.within and event in ("call", "return"):
            self._inside = event == "call"
        if event == "call" and self._inside:
            self.files.add(file)
            self.called.add(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}")
            if frame.f_code.co_name == "features" and not self.stack:
                self.stack = list(frames(frame))


def frames(frame: FrameType | None) -> list[str]:
    """The frames of the package below a frame, the innermost first."""
    found = []
    while frame is not None:
        if file := project(frame):
            found.append(f"{file}:{frame.f_code.co_name}")
        frame = frame.f_back
    return found
