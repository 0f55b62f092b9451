"""Text forming in the terminal: masked tokens as blocks, what is new in colour."""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from unmask.data.spans import BROKEN, shown, spans, start

if TYPE_CHECKING:
    from torch import Tensor

    from unmask.data import Tokenizer
    from unmask.samplers import Frame

MASK = "░"
_MASKED = "dim"
_TAKEN_BACK = "bold magenta"  # was written, and is masked again
_FOOTER = "dim italic"
_CONFIDENT = ((0.7, "bold green"), (0.3, "bold yellow"), (0.0, "bold red"))
# what a terminal would obey instead of showing it
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), 127], BROKEN)
_PAUSE = 0.08  # seconds from one picture to the next
_PATIENCE = 5.0  # seconds in all to wait for them


def watch(
    frames: "Iterable[Frame]",
    tokenizer: "Tokenizer",
    console: Console | None = None,
    pause: float = _PAUSE,
    conditional: bool = False,
    on_screen: Callable[[], None] = lambda: None,
) -> "Frame | None":
    """Shows frames as they come and prints the finished texts; elsewhere than in a terminal only these.

    `on_screen` is called whenever text has been shown.
    """
    console = Console(highlight=False) if console is None else console
    last = None
    if console.is_terminal:
        picture = Picture(tokenizer, console, conditional)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            drawn, patience = -pause, _PATIENCE
            for last in frames:
                picture.add(last)
                wait = drawn + pause - time.monotonic()
                if 0 < wait <= patience:  # a fast model is slowed down for the eye, for a while
                    time.sleep(wait)
                    patience, wait = patience - wait, 0.0
                if wait <= 0:
                    live.update(picture.draw(last), refresh=True)
                    on_screen()
                    drawn = time.monotonic()
    else:
        for last in frames:  # noqa: B007
            pass
    if last is not None:
        rows = last.tokens.tolist()
        starts = [start(ids, tokenizer) if conditional else 0 for ids in rows]
        texts = [
            tokenizer.decode(shown(ids[first:], tokenizer))
            for ids, first in zip(rows, starts, strict=True)
        ]
        if console.is_terminal:
            texts = [text.translate(_CONTROLS) for text in texts]
        console.print(*texts, sep="\n\n", markup=False, highlight=False, soft_wrap=True)
        on_screen()
        if console.is_terminal:
            console.print(Text(footer(last, picture.frames), style=_FOOTER))
    return last


class Picture:
    """A frame as text in colour; what changed in frames that were not drawn counts as new."""

    def __init__(self, tokenizer: "Tokenizer", console: Console, conditional: bool = False) -> None:
        self._tokenizer = tokenizer
        self._conditional = conditional
        self._console = console
        self._new: "Tensor | None" = None
        self.frames = 0

    def add(self, frame: "Frame") -> None:
        """A frame that may or may not be drawn."""
        self._new = frame.changed if self._new is None else self._new | frame.changed
        self.frames += 1

    def draw(self, frame: "Frame") -> RenderableType:
        """As many rows as fit, and a line below."""
        new = frame.changed if self._new is None else self._new
        self._new = None
        room = max(self._console.height - 3, 1)
        lines: list[Text] = []
        rows = 0
        for part in zip(frame.tokens, new, frame.confidence, strict=True):
            if rows and len(lines) + 2 > room:  # a blank line and one of text
                break
            lines += [Text()] * (rows > 0)
            text = self.row(*(values.tolist() for values in part))
            lines += text.wrap(self._console, self._console.width, overflow="fold")
            rows += 1
        hidden = ["the end of a text"] * (len(lines) > room)
        hidden += [f"{len(new) - rows} more"] * (len(new) > rows)
        below = footer(frame, self.frames) + "".join(f" · not shown: {part}" for part in hidden)
        return Group(*lines[:room], Text(below, style=_FOOTER, no_wrap=True, overflow="ellipsis"))

    def row(self, ids: list[int], new: Sequence[bool], confidence: Sequence[float]) -> Text:
        """One text; tokens that have not become a whole character yet are shown with its last piece."""
        first = start(ids, self._tokenizer) if self._conditional else 0
        new, confidence = new[first:], confidence[first:]
        ids = shown(ids[first:], self._tokenizer)
        mask_id = self._tokenizer.vocabulary.mask_id
        text = Text()
        pieces: list[str] = []
        for masked, run in groupby(ids, key=lambda token: token == mask_id):
            part = list(run)
            pieces += [MASK] * len(part) if masked else spans(self._tokenizer, part)
        styles = [
            _style(token == mask_id, is_new, sure)
            for token, is_new, sure in zip(ids, new, confidence, strict=False)
        ]
        for piece, style in zip(pieces, styles, strict=True):
            text.append(piece.translate(_CONTROLS), style)
        return text


def footer(frame: "Frame", frames: int) -> str:
    """Where the text stands: of several, the busiest and the noisiest."""
    calls, t = int(frame.calls.max()), float(frame.t.max())
    return f"frame {frames} · calls {calls} · t {t:.2f} · {frame.seconds:.1f} s"


def _style(masked: bool, new: bool, confidence: float) -> str:
    if masked:
        return _TAKEN_BACK if new else _MASKED
    return next(style for least, style in _CONFIDENT if confidence >= least) if new else ""
