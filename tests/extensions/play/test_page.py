"""The playground in a real browser shows the results of the model."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import torch
from local_server import LocalServer

from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.data.tokenizers.characters import CharacterTokenizer
from unmask.data.tokenizers.token_spans import spans
from unmask.model import Model

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from browsing import ROW, Playground, shown, visit
from PIL import Image
from playwright.sync_api import Route, expect

OPTIONS = {"sampler": "ancestral", "steps": 12, "temperature": 0.7, "seed": 4}
SETTINGS = "steps=12&temperature=0.7&seed=4&speed=8&length=20&layout=tiles"


@pytest.fixture
def play(browser, server) -> Iterator[Playground]:
    play = visit(browser, accept_downloads=True)
    play.open(server.url, SETTINGS)
    yield play
    play.page.context.close()
    assert play.troubles == []


def labelled_model() -> Model:
    """An untrained model with two class labels."""
    choices = {"data.label_field": "kind", "data.packing": "pad", "data.length": "12"}
    choices |= {"backbone.width": "16", "backbone.depth": "1", "backbone.heads": "2"}
    config = resolve({}, list(choices.items()))
    tokenizer = CharacterTokenizer("abcdefgh").with_labels(["bad", "good"])
    return Model(build_method(config, tokenizer.vocabulary), tokenizer, config)


def tiles(model, ids: list[int]) -> list[str]:
    """The tiles of a row."""
    return [shown(text) for text in spans(model.tokenizer, ids)]


def frames_of(model, prompt: str = "") -> list[list[int]]:
    return [frame.tokens[0, 1:].tolist() for frame in model.stream(prompt, length=20, **OPTIONS)]


# Watching


def test_a_text_is_generated_and_its_cost_is_shown(play, model):
    play.type("The cat")
    play.write()
    (result,) = model.generate("The cat", length=20, **OPTIONS)
    frames = frames_of(model, "The cat")
    end = len(result.ids) - 2 if result.ids[-1] == model.tokenizer.vocabulary.eos_id else 19
    assert play.row()[:end] == tiles(model, result.ids[1 : end + 1])
    meter = play.meter()
    assert f"step {len(frames)} of {len(frames)}" in meter
    assert f"calls {result.calls}" in meter
    assert re.search(r"time \d+\.\d\d s", meter)


@pytest.mark.slow
def test_the_scrubber_shows_every_step(play, model):
    play.write()
    mask_id = model.tokenizer.vocabulary.mask_id
    frames = frames_of(model)
    for step in (0, 3, len(frames) - 1, 1):
        play.scrub(step)
        row = until_end(model, [mask_id] * 19 if step == 0 else frames[step - 1])
        assert play.masked() == [place for place, token in enumerate(row) if token == mask_id]
        new = [] if step == 0 else _changed(frames, step - 1, mask_id)
        marked = play.tokens().evaluate_all(
            "tokens => tokens.flatMap((token, place) => token.classList.contains('new') ? [place] : [])"
        )
        assert marked == [place for place in new if place < len(row)]


def until_end(model, row: list[int]) -> list[int]:
    """The visible part of a row, up to its end mark."""
    eos_id = model.tokenizer.vocabulary.eos_id
    return row[: row.index(eos_id) + 1] if eos_id in row else row


def _changed(frames: list[list[int]], index: int, mask_id: int) -> list[int]:
    before = frames[index - 1] if index else [mask_id] * len(frames[0])
    return [place for place, (a, b) in enumerate(zip(before, frames[index], strict=True)) if a != b]


@pytest.mark.slow
def test_play_pause_and_steps_by_hand(play):
    play.write()
    play.scrub(2)
    play.page.get_by_label("One step forward").click()
    assert "step 3 of" in play.meter()
    play.page.get_by_label("Speed").select_option("0.25")
    play.tool("Play")
    expect(play.page.locator("#stage .meter")).not_to_contain_text("step 3 of")
    play.tool("Pause")
    paused = play.meter()
    play.page.wait_for_timeout(500)
    assert play.meter() == paused
    play.page.get_by_label("Speed").select_option("8")
    play.tool("Play")
    total = paused.split(" of ")[1].split("\n")[0].split(" ")[0]
    expect(play.page.locator("#stage .meter")).to_contain_text(f"step {total} of {total}")


# The first press


def test_the_first_press_uses_the_defaults_of_the_model(browser, model):
    usual = {"length": 18, "sampler": "predictor_corrector", "steps": 4, "temperature": 0.6}
    own = replace(model, defaults=usual)
    play = visit(browser)
    with LocalServer({"own": own}) as server:
        play.open(server.url, "layout=tiles&speed=8")
        expect(play.page.locator("#text-go")).to_have_text("Write")
        texts = []
        for _ in range(3):
            play.write()
            seed = int(play.setting("Random number").input_value())
            (result,) = own.generate(seed=seed)
            assert play.row()[: len(result.ids) - 2] == tiles(own, result.ids[1:-1])
            texts.append((seed, result.text))
            expect(play.page.locator("#text-go")).to_have_text("Write another")
        assert len({seed for seed, _ in texts}) == 3
        play.setting("Random number").fill("5")  # a typed number stays
        play.write()
        play.write()
        expect(play.setting("Random number")).to_have_value("5")
        play.page.context.close()  # before the server stops, because the page requests the models
    assert play.troubles == []


@pytest.mark.slow
def test_another_model_brings_its_own_settings(browser, model):
    usual = {"sampler": "remask", "steps": 4, "temperature": 0.6}
    play = visit(browser)
    with LocalServer({"plain": model, "own": replace(model, defaults=usual)}) as server:
        play.open(server.url, "temperature=0.3")
        expect(play.setting("Boldness")).to_have_value("0.3")
        play.setting("Model").select_option("own")
        expect(play.setting("Boldness")).to_have_value("0.6")
        expect(play.setting("Order of the words")).to_have_value("remask")
        expect(play.setting("Steps")).to_have_value("4")
        play.setting("Order of the words").select_option("ancestral")
        expect(play.setting("Steps")).to_have_value(
            ""
        )  # these steps belong to the default sampler of the model
    play.page.context.close()


def test_running_text_is_the_generated_text(play, server, model):
    play.open(server.url, SETTINGS.replace("layout=tiles", "layout=text"))
    play.type("The cat")
    play.write()
    (result,) = model.generate("The cat", length=20, **OPTIONS)
    assert "".join(text or "" for text in text_of(play)) == result.text


# Editing


def test_the_field_and_the_tokens_are_one_text(play):
    text = "The queen sat on the hill by the sea."
    play.take(text)
    expect(play.page.locator("#text")).to_be_hidden()
    play.tokens().nth(3).click()
    play.tokens().nth(4).click()
    row = play.row()
    play.tokens().nth(0).focus()
    play.page.keyboard.press("t")
    expect(play.page.locator("#text")).to_have_value(re.compile(r"[^_]__[^_]"))
    expect(play.page.locator("#text-go")).to_have_text("Fill 2 gaps")
    play.page.click("#take")  # nothing was typed, so the tokens are unchanged
    assert play.row() == row
    play.tool("Undo")
    assert play.masked() == [3]


@pytest.mark.slow
def test_the_same_gaps_are_filled_again(play):
    play.take("The queen sat on the hill by the sea.")
    before = play.row()
    play.tokens().nth(3).click()
    play.fill()
    expect(play.page.locator("#text-go")).to_have_text("Fill again")
    play.setting("Random number").fill("11")
    play.write()
    after = play.row()
    assert [*after[:3], *after[4:]] == [*before[:3], *before[4:]]
    play.tool("Undo")
    play.tool("Undo")
    assert play.masked() == [3]


def test_a_masked_word_is_filled_again_and_the_rest_stays(play, model):
    play.take("The queen sat on the hill by the sea.")
    ids = model.tokenizer.encode("The queen sat on the hill by the sea.")
    assert play.row() == tiles(model, ids)
    for place in (1, 4):
        play.tokens().nth(place).click()
    assert play.masked() == [1, 4]
    play.tokens().nth(4).click()  # unmasks it
    assert play.masked() == [1]
    play.fill()
    hidden = [
        model.tokenizer.vocabulary.mask_id if place == 1 else i for place, i in enumerate(ids)
    ]
    (result,) = model.fill(hidden, **OPTIONS)
    assert play.row() == tiles(model, result.ids[1:-1])
    play.tool("Undo")
    assert play.masked() == [1]
    play.tool("Undo")
    assert play.masked() == [1, 4]
    play.tool("Undo")
    play.tool("Undo")
    assert play.row() == tiles(model, ids)


@pytest.mark.slow
def test_locked_words_survive_a_rewriting(play):
    play.take("The queen sat on the hill by the sea.")
    before = play.row()
    play.page.keyboard.press("Escape")
    play.tokens().nth(0).focus()
    play.page.keyboard.press("l")
    play.tokens().nth(3).focus()
    play.page.keyboard.press("Shift+ArrowRight")
    play.page.keyboard.press("l")
    play.tokens().nth(3).click()  # a locked word cannot be masked
    assert play.masked() == []
    play.tool("Erase unlocked")
    kept = [0, 3, 4]
    assert play.masked() == [place for place in range(len(before)) if place not in kept]
    play.fill()
    after = play.row()
    assert [after[place] for place in kept] == [before[place] for place in kept]
    assert play.masked() == []
    assert after != before


@pytest.mark.slow
def test_a_label_erases_words_and_guides_the_fill(browser, play):
    play.take("The queen sat on the hill by the sea.")
    expect(play.page.get_by_role("button", name="Erase by label")).to_be_hidden()
    with LocalServer({"labelled": labelled_model()}) as server:
        window = visit(browser)
        window.open(server.url, "steps=4&seed=4&speed=8&layout=tiles&more=label%3Dgood")
        window.take("abcdefgh")
        before = window.row()
        window.tool("Erase by label")
        expect(window.page.locator("#text-go")).to_have_text(re.compile("Fill 2 gaps"))
        assert len(window.masked()) == 2
        window.fill()
        assert window.masked() == []
        window.tool("Undo")
        window.tool("Undo")
        assert window.row() == before
        window.page.context.close()
        assert window.troubles == []


@pytest.mark.slow
def test_a_locked_word_is_not_replaced_and_undoing_leaves_locks_alone(play):
    play.take("The queen sat on the hill by the sea.")
    before = play.row()
    play.tokens().nth(3).click()
    play.tokens().nth(1).focus()
    play.page.keyboard.press("l")
    play.page.keyboard.press("a")
    expect(play.page.locator(".alternatives h3")).to_contain_text("Locked")
    play.page.locator(".alternatives button:not(.here)").first.click()
    expect(play.page.locator("#announcer")).to_have_text("Locked: unlock it first")
    assert play.row() == [*before[:3], None, *before[4:]]
    play.tool("Undo")
    assert play.row() == before
    assert locked(play) == [1]
    play.tool("Erase unlocked")
    play.fill()
    play.tokens().nth(2).focus()
    play.page.keyboard.press("l")
    play.tool("Undo")  # the last locked word is a mask again
    assert locked(play) == [1]


def locked(play: Playground) -> list[int]:
    return play.tokens().evaluate_all(
        "tokens => tokens.flatMap((token, place) => token.matches('.locked') ? [place] : [])"
    )


@pytest.mark.slow
def test_a_span_is_dragged_and_masked(play):
    play.take("The queen sat on the hill by the sea.")
    start, stop = (play.tokens().nth(place).bounding_box() for place in (2, 5))
    play.page.mouse.move(start["x"] + 8, start["y"] + 8)
    play.page.mouse.down()
    play.page.mouse.move(stop["x"] + 8, stop["y"] + 8, steps=6)
    play.page.mouse.up()
    expect(play.page.locator("#stage .token.selected")).to_have_count(4)
    play.tool("Erase")
    assert play.masked() == [2, 3, 4, 5]


def test_gaps_of_a_typed_text_are_filled(play, model):
    text = "The [MASK:2] sat on the [MASK]."
    play.type(text)
    expect(play.page.locator("#text-go")).to_have_text("Fill 3 gaps")
    play.write()
    (result,) = model.fill(text, **OPTIONS)
    assert play.row() == tiles(model, result.ids[1:-1])


@pytest.mark.slow
def test_alternatives_come_with_probabilities_and_can_be_chosen(play, model):
    play.take("The queen sat on the mat.")
    play.tokens().nth(1).hover()
    rows = play.page.locator(".alternatives button:visible")
    expect(rows).to_have_count(8)
    v, ids = model.tokenizer.vocabulary, model.tokenizer.encode("The queen sat on the mat.")
    z_t = torch.tensor([[v.bos_id, *ids, v.eos_id]])
    z_t[0, 2] = v.mask_id
    at = (torch.tensor([0]), torch.tensor([2]))
    t = torch.tensor([1 / z_t.shape[1]]).double()
    with torch.inference_mode():
        p = model.method.denoiser()(z_t, t, at)[0].exp()
        p[[v.mask_id, v.bos_id, v.eos_id, v.pad_id]] = 0
    best = p.topk(8)
    assert [
        float(text.rstrip("%")) / 100 for text in rows.locator(".number").all_inner_texts()
    ] == (pytest.approx(best.values.tolist(), abs=0.006))
    rows.nth(2).click()
    chosen = [*ids[:1], int(best.indices[2]), *ids[2:]]
    assert play.row() == tiles(model, chosen)


@pytest.mark.slow
def test_everything_works_by_keyboard(play):
    keys = play.page.keyboard
    play.page.focus("#text")
    keys.type("The dog sat on the mat.")
    keys.press("Shift+Tab")
    keys.press("Enter")  # only show as tokens
    expect(play.tokens().first).to_be_visible()
    while play.page.evaluate("document.activeElement.getAttribute('role')") != "option":
        keys.press("Tab")
    for key in ("ArrowRight", "Shift+ArrowRight", "Enter"):
        keys.press(key)
    assert play.masked() == [1, 2]
    keys.press("Escape")
    keys.press("Home")
    keys.press("a")
    expect(play.page.locator(".alternatives button:focus")).to_have_count(1)
    keys.press("ArrowDown")
    chosen = play.page.locator(".alternatives button:focus .word").inner_text()
    keys.press("Enter")
    assert play.row()[0] == chosen
    keys.press("Control+Enter")
    play.finished()
    assert play.masked() == []
    play.page.focus("#tab-write")
    keys.press("ArrowRight")
    expect(play.page.locator("#view-compare")).to_be_visible()


# Two samplers, and the forward process


def test_two_samplers_are_shown_side_by_side(play, model):
    play.page.click("#tab-compare")
    left, right = play.page.locator("#side-left"), play.page.locator("#side-right")
    left.get_by_label("Order of the words", exact=True).select_option("ancestral")
    right.get_by_label("Order of the words", exact=True).select_option("left_to_right")
    left.get_by_label("Steps", exact=True).fill("6")
    play.page.click("#compare-text-go")
    expect(play.page.locator("#announcer")).to_contain_text("Done")
    play.scrub(10_000, "#view-compare")
    shared = {"length": 20, "temperature": 0.7, "seed": 4}
    for side, options in (
        ("left", {"sampler": "ancestral", "steps": 6}),
        ("right", {"sampler": "left_to_right"}),
    ):
        (result,) = model.generate(**shared, **options)
        facts = play.page.locator(f"#side-{side} .value").all_inner_texts()
        assert facts[1] == str(result.calls)
        assert re.fullmatch(r"\d+\.\d\d", facts[2])
        ids = result.ids[1:]
        if ids[-1] == model.tokenizer.vocabulary.eos_id:
            ids = ids[:-1]
        assert play.row(f"#side-{side}")[: len(ids)] == tiles(model, ids)


@pytest.mark.slow
def test_time_masks_more_and_more_and_the_model_guesses(play, server, model):
    play.open(server.url, "clean=The mat")
    play.page.click("#tab-forward")
    text = "The queen sat on the warm stone of the wall."
    play.page.fill("#clean", text)
    ids = model.tokenizer.encode(text)
    stage = "#forward-stage"
    expect(play.tokens(stage)).to_have_count(len(ids))
    hidden: set[int] = set()
    for t in (0, 30, 60, 100):
        play.scrub(t, "#view-forward")
        values = play.page.locator("#view-forward .value")
        alpha_t = float(model.method.schedule.alpha(torch.tensor([t / 100]).double()))
        assert float(values.nth(1).inner_text()) == pytest.approx(alpha_t, abs=5e-4)
        if t:
            expect(values.nth(4)).not_to_have_text("–")
        guessed = play.tokens(stage).evaluate_all(
            "tokens => tokens.flatMap((token, place) => token.matches('.guess') ? [place] : [])"
        )
        assert hidden <= set(guessed)
        hidden = set(guessed)
        assert values.nth(2).inner_text() == f"{len(guessed)} of {len(ids)}"
        right = play.page.locator(f"{stage} .guess.right").count()
        if t:
            assert values.nth(3).inner_text().startswith(f"{right} of {len(guessed)} ")
    assert hidden == set(range(len(ids)))


# Sharing


def test_a_link_holds_the_whole_state(play, server):
    play.type("The cat")
    play.write()
    play.scrub(5)
    row, cost = play.row(), play.meter().split("time")[0]
    reopen(play, server)
    expect(play.page.locator("#stage .meter")).to_contain_text("step 5 of")
    expect(play.page.locator("#text-stop")).to_be_hidden()
    expect(play.page.locator("#text")).to_have_value("The cat")
    assert play.row() == row
    assert play.meter().split("time")[0] == cost
    play.tokens().nth(0).click()
    row = play.row()
    assert row[0] is None
    reopen(play, server)
    expect(play.page.locator("#stage .token.masked").first).to_be_visible()
    assert play.row() == row
    play.tokens().nth(1).focus()
    play.page.keyboard.press("l")
    reopen(play, server)
    expect(play.page.locator("#stage .token.locked")).to_have_count(1)
    assert play.row() == row


@pytest.mark.slow
def test_a_link_holds_the_locks_of_a_text_that_was_filled(play, server):
    play.take("The queen sat on the hill by the sea.")
    play.tokens().nth(3).click()
    play.tokens().nth(1).focus()
    play.page.keyboard.press("l")
    play.fill()
    play.scrub(0)
    row = play.row()
    reopen(play, server)
    expect(play.page.locator("#stage .meter")).to_contain_text("step 0 of")
    expect(play.page.locator("#text-stop")).to_be_hidden()
    assert play.row() == row
    assert locked(play) == [1]


@pytest.mark.slow
def test_a_link_holds_a_text_that_was_stopped(play, server):
    play.take("The queen sat on the hill by the sea.")
    play.tokens().nth(3).click()
    write_slowly(play)
    play.tool("Stop")
    expect(play.page.locator("#text-go")).to_be_visible()
    stopped, link = text_of(play), address(play)
    play.scrub(0)
    empty = text_of(play)
    assert empty != stopped
    reopen(play, server)
    expect(play.tokens().first).to_be_visible()
    assert text_of(play) == empty
    play.open(server.url, link)
    expect(play.tokens().first).to_be_visible()
    assert text_of(play) == stopped


def text_of(play: Playground) -> list[str | None]:
    """The texts of the positions before the end mark."""
    return play.page.locator("#stage .token:not(.end-mark)").evaluate_all(ROW)


@pytest.mark.slow
def test_a_link_holds_nothing_of_another_model(play, server):
    play.open(server.url, f"{SETTINGS}&leftSteps=2&rightSteps=2")
    play.write()
    play.page.click("#tab-compare")
    play.page.click("#compare-text-go")
    expect(play.page.locator("#announcer")).to_contain_text("Done: any order")
    assert {"ran", "raced"} <= parse_qs(address(play)).keys()
    reopen(play, server)
    expect(play.page.locator("#announcer")).to_contain_text("Done: any order")
    play.setting("Model").select_option("backwards")
    expect(play.tokens("#side-left")).to_have_count(0)
    assert not {"ran", "raced"} & parse_qs(address(play)).keys()


def reopen(play: Playground, server: LocalServer) -> None:
    """Follows the page's own link in a new visit."""
    play.open(server.url, address(play))


def address(play: Playground) -> str:
    """The fragment of the page's own link."""
    play.page.wait_for_timeout(300)  # the address changes a moment after an action
    return play.page.evaluate("location.hash").removeprefix("#")


def test_a_hostile_link_is_text(play, server):
    attack = "<img src=x onerror=\"document.title='taken'\">"
    play.open(
        server.url, f"text={attack}&row=<b>&ran={{&model={attack}&view=__proto__&sampler={attack}"
    )
    play.page.click("#take")
    expect(play.tokens().first).to_be_visible()
    assert play.page.title() == "unmask playground"
    assert play.page.locator("#view-write img").count() == 0


@pytest.mark.slow
def test_the_animation_is_saved_as_svg_and_gif(play, tmp_path):
    play.type("The cat & <dog>")
    play.write()
    steps = int(play.meter().split(" of ")[1].split("\n")[0].split(" ")[0])
    files = {}
    for name in ("svg", "gif"):
        with play.page.expect_download() as download:
            play.page.click(f"#save-{name}")
        files[name] = tmp_path / f"text.{name}"
        download.value.save_as(files[name])
    with Image.open(files["gif"]) as picture:
        assert picture.n_frames == steps + 1
        assert picture.size[0] == 760
    _check_svg(files["svg"], steps)


def _check_svg(file: Path, steps: int) -> None:
    texts = [
        node.text or "" for node in ElementTree.parse(file).iter() if node.tag.endswith("text")
    ]
    captions = [text for text in texts if text.startswith("step ")]
    assert len(captions) == steps + 1
    assert "&" in "".join(texts)
    assert "<" in "".join(texts)


# Errors


def test_a_mistake_shows_the_message_of_the_server(play):
    play.setting("Boldness").fill("-1")
    play.page.click("#text-go")
    notice = play.page.locator("#notice")
    expect(notice).to_contain_text("temperature must be 0 or more")
    expect(notice.get_by_role("button")).to_have_count(1)  # no button to retry
    play.troubles.clear()  # a browser logs every response of 400
    play.setting("Boldness").fill("0.7")
    play.write()
    expect(notice).to_be_hidden()


def write_slowly(play: Playground) -> None:
    """Starts a long text and waits for some of its steps."""
    play.setting("Order of the words").select_option("gibbs")
    play.setting("Steps").fill("4000")
    play.page.click("#text-go")
    expect(play.page.locator("#stage .meter")).to_contain_text(re.compile(r"step \d\d+"))


@pytest.mark.slow
def test_a_text_that_takes_too_long_is_stopped(play, server):
    write_slowly(play)
    play.tool("Stop")
    expect(play.page.locator("#text-go")).to_be_visible()
    assert server.idle(within=5)
    assert "step" in play.meter()


@pytest.mark.slow
def test_a_text_can_be_shown_as_tokens_while_another_is_written(play, server, model):
    write_slowly(play)
    text = "The queen sat on the hill."
    play.type(text)
    play.page.click("#take")
    ids = model.tokenizer.encode(text)
    expect(play.tokens()).to_have_count(len(ids))
    assert server.idle(within=5)
    assert play.row() == tiles(model, ids)
    expect(play.page.locator("#text-go")).to_be_visible()
    play.tokens().nth(1).click()
    assert play.masked() == [1]


@pytest.mark.slow
def test_a_mistake_leaves_the_board_as_it_was(play):
    play.take("The queen sat on the hill.")
    play.tokens().nth(3).click()
    play.tokens().nth(1).focus()
    play.page.keyboard.press("l")
    play.setting("Boldness").fill("-1")
    play.page.click("#text-go")
    expect(play.page.locator("#notice")).to_contain_text("temperature must be 0 or more")
    expect(play.page.locator("#text-go")).to_be_visible()
    assert play.masked() == [3]
    assert locked(play) == [1]
    play.tokens().nth(3).click()  # the word under the mask is kept
    assert play.masked() == []
    play.troubles.clear()  # a browser logs every response of 400


@pytest.mark.slow
def test_an_outdated_response_is_not_shown(play):
    waiting: list[Route] = []

    def hold(route: Route) -> None:
        if waiting:
            route.continue_()
        else:
            waiting.append(route)

    play.page.route("**/play/tokens", hold)
    play.page.click("#tab-forward")  # its first request waits
    play.page.fill("#clean", "The mat")
    expect(play.tokens("#forward-stage").first).to_be_visible()
    row = play.row("#forward-stage")
    waiting[0].continue_()
    play.page.wait_for_timeout(300)
    assert len(play.row("#forward-stage")) == len(row)


@pytest.mark.slow
def test_unsupported_actions_of_an_autoregressive_model_are_disabled(play):
    play.setting("Model").select_option("backwards")
    expect(play.setting("Order of the words")).to_have_value("left_to_right")
    play.write()
    expect(play.page.locator("#text-go")).to_have_text("Write another")
    expect(play.page.get_by_role("button", name="Erase", exact=True)).to_be_disabled()


@pytest.mark.slow
def test_a_stopped_server_is_reported(browser, model):
    play = visit(browser)
    with LocalServer({"tiny": model}) as server:
        play.open(server.url, SETTINGS)
        play.write()
        before = play.row()
    play.page.click("#text-go")
    expect(play.page.locator("#notice")).to_contain_text("check that its command is still running")
    assert play.row() == before
    with LocalServer({"tiny": model}, server.port):
        play.tool("Try again")
        play.finished()
        expect(play.page.locator("#notice")).to_be_hidden()
    play.page.context.close()


# Options that the server declares


def test_further_options_have_controls_and_are_stored_in_the_link(play, model, server):
    play.page.get_by_text("More options").click()
    play.page.get_by_label("top k").fill("1")
    play.page.get_by_label("strategy").select_option("stochastic")
    play.type("The cat")
    play.write()
    (result,) = model.generate("The cat", length=20, **OPTIONS, top_k=1)
    ids = result.ids[1 : len(result.ids) - 1]
    assert play.row()[: len(ids)] == tiles(model, ids)
    expect(play.page).to_have_url(re.compile("more=top_k%3D1"))
    play.open(server.url, "more=top_k%3D1")
    expect(play.page.get_by_label("top k")).to_have_value("1")
