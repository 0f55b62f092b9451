"""The page of a report in a browser without a network: it requests nothing,
and every word can be read.
"""

import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from browsing import visit

from unmask.cli import main

# Scripts cannot read the words of an image, so each picture is drawn again in the page at the same
# width.
PICTURES = """() => [...document.images].map(image => {
  const bytes = Uint8Array.from(atob(image.src.split(",")[1]), letter => letter.charCodeAt(0));
  const place = document.createElement("div");
  place.style.width = `${image.width}px`;
  place.innerHTML = new TextDecoder().decode(bytes);
  document.body.append(place);
  const svg = place.querySelector("svg");
  svg.setAttribute("width", "100%");
  svg.removeAttribute("height");
  const box = element => {
    const {left, top, right, bottom} = element.getBoundingClientRect();
    return {left, top, right, bottom, text: element.textContent};
  };
  const found = {
    shown: image.complete && image.naturalWidth > 0,
    frame: box(svg),
    words: [...svg.querySelectorAll("text")].map(box),
  };
  place.remove();
  return found;
})"""


@pytest.fixture(scope="module")
def page(run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    names = [
        f"a run whose name is longer than any picture of a report could be wide, with seed {seed}"
        for seed in "12"
    ]
    runs = [shutil.copytree(run, folder / name) for name in names]
    how = "--judge self --samplers ancestral left_to_right --steps 2,4 --samples 2 --length 8"
    out = str(runs[0] / "frontier.jsonl")
    assert main(["evaluate", "generation", str(runs[0]), *how.split(), "--out", out]) == 0
    shutil.copy(runs[0] / "frontier.jsonl", runs[1])
    measured = ["--rows", "2", "--draws", "2", "--device", "cpu"]
    assert main(["report", *map(str, runs), *measured, "--html", str(folder / "report.html")]) == 0
    return folder / "report.html"


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow)])
@pytest.mark.parametrize("colours", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_every_picture_can_be_read(browser, page, width, colours):
    window = visit(browser, offline=True, color_scheme=colours)
    window.page.set_viewport_size({"width": width, "height": 844})
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    window.page.goto(page.as_uri())
    found = window.page.evaluate(PICTURES)
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
    assert window.troubles == []
    assert window.page.evaluate("document.documentElement.scrollWidth") <= width
    assert len(found) == 4
    names = {word["text"] for word in found[-1]["words"]}
    assert {"…1: ancestral", "…2: ancestral", "real text"} <= names
    for picture in found:
        assert picture["shown"]
        check_words(picture["frame"], [word for word in picture["words"] if word["text"].strip()])


def check_words(frame: dict[str, Any], words: list[dict[str, Any]]) -> None:
    """Checks that words are large enough, inside their picture, and do not overlap."""
    assert len(words) > 5
    for word in words:
        assert min(word["bottom"] - word["top"], word["right"] - word["left"]) >= 5, word
        assert max(word["bottom"] - word["top"], word["right"] - word["left"]) >= 8, word
        assert frame["left"] - 1 <= word["left"] and word["right"] <= frame["right"] + 1, word
        assert frame["top"] - 1 <= word["top"] and word["bottom"] <= frame["bottom"] + 1, word
    for one, other in combinations(words, 2):
        across = min(one["right"], other["right"]) - max(one["left"], other["left"])
        down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
        assert across <= 1 or down <= 1, (one["text"], other["text"])
