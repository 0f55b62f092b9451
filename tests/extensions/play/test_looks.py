"""The page is readable in light and dark, on a phone and on a large screen, with no text cut off.

UNMASK_SCREENSHOTS=docs/images takes the pictures of docs/extensions/play.md with the model UNMASK_PLAY_MODEL.
Without it no picture is written.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_server import LocalServer

import unmask

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from browsing import CONTRAST, LEAST, Playground, visit
from PIL import Image
from playwright.sync_api import expect

SETTINGS = (
    "seed=1&text=The&length=20&steps=8&speed=8&clean=The+queen+sat+on+the+hill.&t=0.5&leftSteps=4"
)


@pytest.fixture
def play(request, browser, server) -> Iterator[Playground]:
    scheme = getattr(request, "param", "light")
    play = visit(browser, color_scheme=scheme, reduced_motion="reduce")
    play.open(server.url, SETTINGS)
    yield play
    play.page.context.close()
    assert play.troubles == []


def every_view(play: Playground) -> Iterator[str]:
    """Opens each view with some content."""
    yield "empty"
    play.write()
    play.scrub(5)
    play.tokens().nth(2).focus()
    play.page.keyboard.press("l")
    play.tokens().nth(1).hover()
    expect(play.page.locator(".alternatives button").first).to_be_visible()
    yield "write"
    play.page.click("#tab-compare")
    play.page.click("#compare-text-go")
    expect(play.page.locator("#announcer")).to_contain_text("Done")
    yield "compare"
    play.page.click("#tab-forward")
    expect(play.page.locator("#forward-stage .guess").first).to_be_visible()
    yield "forward"
    play.page.locator("#help-button").evaluate("button => button.click()")  # hidden on a phone
    yield "help"


@pytest.mark.parametrize(
    "play", ["light", pytest.param("dark", marks=pytest.mark.slow)], indirect=True
)
def test_all_text_has_enough_contrast(play):
    for view in every_view(play):
        measured = play.page.evaluate(CONTRAST)
        assert len(measured) > 10
        assert [each for each in measured if each[0] < LEAST] == [], view


def test_nothing_is_wider_than_a_phone(play):
    play.page.set_viewport_size({"width": 390, "height": 844})
    for view in every_view(play):
        width = play.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, view


def test_text_player_and_button_fit_a_phone(play):
    play.page.set_viewport_size({"width": 390, "height": 844})
    play.write()
    play.page.evaluate("scrollTo(0, 0)")
    for part in (".board", ".player", ".meter", "#text-go"):
        box = play.page.locator(f"#stage {part}").first.bounding_box()
        assert box["y"] >= 0, part
        assert box["y"] + min(box["height"], 300) <= 844, part
        assert box["x"] + box["width"] <= 390, part


@pytest.mark.slow
def test_nothing_moves_while_a_text_forms(play):
    play.write()
    boxes = "tokens => tokens.map(token => JSON.stringify(token.getBoundingClientRect()))"
    for layout in ("Tiles", "Text"):
        play.page.get_by_role("button", name=layout, exact=True).first.click()
        seen = []
        for step in (0, 4, 100):
            play.scrub(step)
            seen.append(play.tokens().evaluate_all(boxes))
        kept = min(map(len, seen)) - 1  # a text becomes shorter when its EOS is drawn
        assert seen[0][:kept] == seen[1][:kept] == seen[2][:kept], layout


def test_every_control_has_a_name(play):
    for view in every_view(play):
        nameless = play.page.locator("button, select, input, textarea, [role=option]").evaluate_all(
            """controls => controls.filter((control) => control.checkVisibility()
              && !(control.getAttribute("aria-label") || control.labels?.length || control.textContent.trim()))
              .map((control) => control.outerHTML)"""
        )
        assert nameless == [], view


# Pictures


@pytest.mark.skipif("UNMASK_SCREENSHOTS" not in os.environ, reason="UNMASK_SCREENSHOTS is not set")
def test_screenshots(browser):
    folder = Path(os.environ["UNMASK_SCREENSHOTS"])
    name = os.environ.get("UNMASK_PLAY_MODEL", "stories")
    expect.set_options(timeout=300_000)
    with LocalServer({Path(name).name: unmask.load(name, device="cpu")}) as server:

        def window(width: int, height: int, scheme: str, fragment: str) -> Playground:
            play = visit(browser, color_scheme=scheme, reduced_motion="reduce")
            play.page.set_viewport_size({"width": width, "height": height})
            play.open(server.url, fragment)
            return play

        def picture(play: Playground, file: str) -> None:
            play.page.wait_for_timeout(500)
            path = folder / f"play-{file}.png"
            play.page.screenshot(path=path)
            with Image.open(path) as taken:
                small = taken.convert("RGB").quantize(256)  # under 200 kB
            small.save(path, optimize=True)

        write = window(1280, 800, "light", "seed=1")
        write.write()
        write.scrub(18)
        picture(write, "write")
        write.scrub(1000)
        for place in (8, 9, 14):
            write.tokens().nth(place).click()
        write.tokens().nth(5).focus()
        write.page.keyboard.press("l")
        write.tokens().nth(20).hover()
        expect(write.page.locator(".alternatives button").first).to_be_visible()
        picture(write, "edit")
        dark = window(1280, 800, "dark", "seed=1")
        dark.write()
        picture(dark, "dark")
        phone = window(390, 844, "light", "seed=2&text=Once+upon+a+time")
        phone.write()
        phone.scrub(18)
        picture(phone, "phone")
        forward = window(1280, 720, "dark", "view=forward&t=0.6")
        expect(forward.page.locator("#forward-stage .guess").first).to_be_visible()
        picture(forward, "forward")
        compare = window(1280, 1440, "light", "view=compare&seed=2&text=Once+upon+a+time")
        compare.page.click("#compare-text-go")
        expect(compare.page.locator("#announcer")).to_contain_text("Done")
        picture(compare, "compare")
