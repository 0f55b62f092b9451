"""Live display of sampling in a terminal or a notebook: masks as blocks, new tokens in colour."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from unmask.data.tokenizers.token_spans import BROKEN, finished_text, shown, spans, start
from unmask.runtime.notebook import CellOutput

if TYPE_CHECKING:
    from torch import Tensor

    from unmask.data.tokenizers.tokenizer import Tokenizer
    from unmask.samplers.core.canvas import Frame

MASK = "░"
_MASKED = "dim"
_REMASKED = "bold magenta"  # tokens that are masked again
_FOOTER = "dim italic"
_CONFIDENT = ((0.7, "bold green"), (0.3, "bold yellow"), (0.0, "bold red"))
# control characters, which a terminal would execute
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), 127], BROKEN)
_PAUSE = 0.08  # seconds between two pictures
_LONGEST_WAIT = 5.0  # seconds of all pauses together


def watch(
    frames: "Iterable[Frame]",
    tokenizer: "Tokenizer",
    console: Console | None = None,
    pause: float = _PAUSE,
    conditional: bool = False,
    on_screen: Callable[[], None] = lambda: None,
    brief: bool = False,
) -> "Frame | None":
    """Shows each frame in place of the one before, then prints the finished texts.

    Without a terminal or notebook only the finished texts are printed.

    Args:
        frames: Frames of one batch.
        tokenizer: Decodes the tokens.
        console: Console to print to; by default standard output.
        pause: Seconds between two pictures.
        conditional: True for a model of pairs: only the target is shown.
        on_screen: Called after each picture and after the finished texts.
        brief: True for no pauses, and no status line below the finished texts.

    Returns:
        The last frame, or None if there is none.
    """
    console = Console(highlight=False) if console is None else console
    picture = Picture(tokenizer, console, conditional)
    last = None
    with _screen(console) as show:
        drawn, wait_left = -pause, 0.0 if brief else _LONGEST_WAIT
        for last in frames:
            picture.add(last)
            wait = drawn + pause - time.monotonic()
            if show and 0 < wait <= wait_left:  # slows a fast model down for the eye
                time.sleep(wait)
                wait_left, wait = wait_left - wait, 0.0
            if show and wait <= 0:
                show(picture.draw(last))
                on_screen()
                drawn = time.monotonic()
        if last is not None and console.is_jupyter and show:
            show(picture.finished(last))
            on_screen()
    if last is not None and not console.is_jupyter:
        end = picture.finished(last, brief) if show else picture.texts(last)
        console.print(end, markup=False, highlight=False, soft_wrap=True)
        on_screen()
    return last


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[RenderableType], object] | None]:
    """A function that replaces the picture on the screen; None without a screen."""
    if console.is_jupyter:
        output = CellOutput(pause=0)
        yield lambda picture: output.show(picture)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda picture: live.update(picture, refresh=True)
    else:
        yield None


class Picture:
    """Frames as coloured text. Tokens are new if they changed since the last
    frame that was drawn.
    """

    def __init__(self, tokenizer: "Tokenizer", console: Console, conditional: bool = False) -> None:
        self._tokenizer = tokenizer
        self._conditional = conditional
        self._console = console
        self._new: "Tensor | None" = None
        self.frames = 0

    def add(self, frame: "Frame") -> None:
        """Records the changes of a frame, drawn or not."""
        self._new = frame.changed if self._new is None else self._new | frame.changed
        self.frames += 1

    def texts(self, frame: "Frame") -> str:
        """The finished texts without colour."""
        rows = frame.tokens.tolist()
        return "\n\n".join(finished_text(ids, self._tokenizer, self._conditional) for ids in rows)

    def finished(self, frame: "Frame", brief: bool = False) -> Text:
        """The finished texts for a screen, with the status line below unless `brief`."""
        text = Text(self.texts(frame).translate(_CONTROLS))
        return text if brief else text.append(f"\n{footer(frame, self.frames)}", _FOOTER)

    def draw(self, frame: "Frame") -> Text:
        """The rows that fit on the screen, with the status line below."""
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
        foot = Text(below, style=_FOOTER)
        foot.truncate(self._console.width, overflow="ellipsis")
        return Text("\n").join([*lines[:room], foot])

    def row(self, ids: list[int], new: Sequence[bool], confidence: Sequence[float]) -> Text:
        """One row in colour. A character of several tokens is shown with its last token."""
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
            _style(token == mask_id, is_new, probability)
            for token, is_new, probability in zip(ids, new, confidence, strict=False)
        ]
        for piece, style in zip(pieces, styles, strict=True):
            text.append(piece.translate(_CONTROLS), style)
        return text


def footer(frame: "Frame", frames: int) -> str:
    """The status line: frame number, network calls and time t (maxima over the rows), seconds."""
    calls, t = int(frame.calls.max()), float(frame.t.max())
    return f"frame {frames} · calls {calls} · t {t:.2f} · {frame.seconds:.1f} s"


def _style(masked: bool, new: bool, confidence: float) -> str:
    if masked:
        return _REMASKED if new else _MASKED
    return next(style for least, style in _CONFIDENT if confidence >= least) if new else ""
