"""In a notebook the progress bar and the animated text are escaped HTML that is
updated in place.
"""

import re
from functools import partial
from typing import Any

import IPython.display
import pytest
import torch
from rich.console import Console

from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.generation.display import MASK, watch
from unmask.runtime.notebook import CellOutput
from unmask.samplers.core.canvas import Frame
from unmask.training.logs import progress

BYTES = ByteTokenizer()
Notebook = partial(Console, force_jupyter=True, width=80)


class Cell:
    """The output of a notebook cell: places, each with all its contents so far."""

    def __init__(self) -> None:
        self.places: list[list[str]] = []

    def display(self, picture: Any, display_id: bool) -> "Cell":
        assert display_id
        self.places.append([])
        self.update(picture)
        return self

    def update(self, picture: Any) -> None:
        self.places[-1].append(picture._repr_mimebundle_([], [])["text/html"])


@pytest.fixture
def cell(monkeypatch) -> Cell:
    below = Cell()
    monkeypatch.setattr(IPython.display, "display", below.display)
    return below


def forming(text: str) -> list[Frame]:
    """Frames of a text that appears from its start, byte by byte."""
    ids = torch.tensor([BYTES.encode(text)])
    frames = []
    for count in range(ids.shape[1] + 1):
        places = torch.arange(ids.shape[1])[None]
        tokens = ids.masked_fill(places >= count, BYTES.vocabulary.mask_id)
        new = places == count - 1
        times = torch.ones(1, dtype=torch.float64)
        frames.append(Frame(tokens, new, new.float(), torch.tensor([count]), times, 0.0))
    return frames


def test_text_is_updated_in_one_place_and_its_markup_is_escaped(cell):
    frames = forming("<b>&[red]")
    assert watch(frames, BYTES, Notebook(), pause=0) is frames[-1]
    (shown,) = cell.places
    assert len(shown) == len(frames) + 1  # and the finished text
    assert shown[0].count(MASK) == 9
    assert all("<b>" not in html for html in shown)
    assert "&lt;b&gt;&amp;[red]\n" in shown[-1]
    assert f"calls {len(frames) - 1}" in shown[-1]


def test_the_bar_is_updated_in_one_place_and_no_lines_are_printed(cell, monkeypatch):
    monkeypatch.setattr(progress, "Console", Notebook)
    said: list[str] = []
    with progress.ProgressDisplay(0, 40, said.append) as bar:
        for step in range(1, 41):
            bar.advance(step)
        bar.show(40, 1.25, "", 100.0)
    (shown,) = cell.places
    assert "1/40" in shown[0]
    assert "40/40" in shown[-1]
    assert "loss 1.2500" in shown[-1]
    assert len(shown) < 40  # not each step
    assert said == []


def test_a_pipe_gets_a_rate_and_an_end_after_two_steps():
    said: list[str] = []
    with progress.ProgressDisplay(10, 40, said.append) as bar:
        for step in range(11, 16):
            bar.advance(step, lambda: 1.5)
    assert said[0] == "step 11/40 · loss 1.5000"
    rate = r"step 12/40 · loss 1.5000 · .* s/step · 0:00 left, until \d\d:\d\d"
    assert re.fullmatch(rate, said[1])
    assert len(said) == 2


def test_a_hidden_bar_shows_nothing(cell, monkeypatch):
    monkeypatch.setattr(progress, "Console", Notebook)
    with progress.ProgressDisplay(0, 2, print, hidden=True) as bar:
        bar.advance(1)
    assert cell.places == []


def test_pictures_that_come_too_soon_are_left_out(cell):
    place = CellOutput(pause=60)
    bar = Notebook().render_str("x")
    assert [place.show(bar), place.show(bar), place.show(bar, at_once=True)] == [True, False, True]
