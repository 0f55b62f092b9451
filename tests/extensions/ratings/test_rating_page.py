"""unmask rate: the blind page in a browser, its requests, and the command.

UNMASK_SCREENSHOTS=docs/images takes the pictures of docs/extensions/ratings.md.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient

from unmask.cli import main
from unmask.extensions.ratings.comparisons import attention_checks, compare_texts
from unmask.extensions.ratings.rating_file import RatingFile
from unmask.extensions.ratings.rating_routes import rating_router
from unmask.serve import server as server_module
from unmask.serve.app import create_app
from unmask.serve.execution.engine import Engine

PROMPTS = ["Once upon a time", "Tom has a", "The dog"]
TEXTS = {
    "first": [f"{prompt} and <b>more</b> words of the first.\nA line." for prompt in PROMPTS],
    "second": [f"{prompt} and other words of the second." for prompt in PROMPTS],
}


@pytest.fixture
def file(tmp_path) -> RatingFile:
    comparisons = [*compare_texts(TEXTS, PROMPTS), *attention_checks(1)]
    return RatingFile.create(tmp_path / "votes.jsonl", {}, comparisons)


@contextmanager
def app_of(file: RatingFile) -> Iterator:
    with Engine({}) as engine:
        yield create_app(engine, routers=[rating_router(file)])


@contextmanager
def served(file: RatingFile) -> Iterator[str]:
    """The page's address, while it is served."""
    with socket.socket() as bound, app_of(file) as app:
        bound.bind(("127.0.0.1", 0))
        running = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        thread = threading.Thread(target=running.run, args=([bound],))
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
        finally:
            running.should_exit = running.force_exit = True
            thread.join()


# Requests


def test_a_vote_is_in_the_file_before_the_response_and_names_no_model_in_it(file):
    with app_of(file) as app:
        client = TestClient(app, base_url="http://127.0.0.1")
        shown = client.post("/rate/next", json={"rater": "anna"}).json()
        assert shown["total"] == 4
        for done in range(1, 5):
            vote = {"rater": "anna", "comparison": shown["next"]["id"], "choice": 1, "seconds": 2}
            response = client.post("/rate/vote", json=vote)
            assert len(RatingFile.read(file.path).votes) == done
            shown = response.json()
            assert not {"first", "second", "names", "check"} & set(map(str, shown["next"] or ()))
        assert shown == {"done": 4, "total": 4, "next": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"choice": 3}, "choice"),
        ({"rater": " "}, "the name of a rater"),
        ({"rater": "x" * 61}, "rater"),
        ({"comparison": "none"}, "no comparison 'none'"),
        ({"seconds": -1}, "seconds"),
        ({"winner": "first"}, "winner"),
    ],
)
def test_a_wrong_vote_is_refused_in_one_line(change, message, file):
    with app_of(file) as app:
        vote = {"rater": "anna", "comparison": next(iter(file.comparisons)), "choice": 1}
        response = TestClient(app, base_url="http://127.0.0.1").post(
            "/rate/vote", json={**vote, **change}
        )
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
    assert RatingFile.read(file.path).votes == {}


def test_other_hosts_and_forms_of_other_pages_are_refused(file):
    with app_of(file) as app:
        vote = {"rater": "anna", "comparison": next(iter(file.comparisons)), "choice": 1}
        foreign = TestClient(app, base_url="http://evil.example").post("/rate/vote", json=vote)
        form = TestClient(app, base_url="http://127.0.0.1").post(
            "/rate/vote", content=json.dumps(vote), headers={"Content-Type": "text/plain"}
        )
    assert (foreign.status_code, form.status_code) == (403, 400)
    assert RatingFile.read(file.path).votes == {}


# The command


@pytest.fixture
def no_server(monkeypatch) -> list:
    """Applications that would be served."""
    apps = []

    def serve(app, engine, settings, listening, started):
        apps.append(app)
        started()
        engine.close()

    monkeypatch.setattr(server_module, "serve", serve)
    return apps


def test_texts_are_made_before_the_page_and_a_restart_resumes(run, no_server, tmp_path, capsys):
    prompts, out = tmp_path / "prompts.txt", tmp_path / "votes.jsonl"
    prompts.write_text("The\n\nA\n")
    command = ["rate", f"a={run}", f"b={run}", "--prompts", str(prompts), "--length", "12"]
    command += ["--steps", "2", "--out", str(out), "--port", "0", "--no-browser", "--n", "3"]
    assert main(command) == 0
    file = RatingFile.read(out)
    assert [one.prompt for one in file.comparisons.values()] == ["The", "A", "The", "", ""]
    assert all(text.startswith("The") for text in next(iter(file.comparisons.values())).texts)
    file.vote("anna", file.next("anna").id, 1)
    assert main(command) == 0
    client = TestClient(no_server[1], base_url="http://127.0.0.1")
    assert client.post("/rate/next", json={"rater": "anna"}).json()["done"] == 1
    capsys.readouterr()
    assert main([*command, "--seed", "1"]) == 2
    assert "holds ratings of other arguments" in capsys.readouterr().err
    assert RatingFile.read(out).votes == file.votes


def test_files_of_texts_are_compared_without_a_model(no_server, tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"text": f"one {i}"}) + "\n" for i in range(9))
    )
    (tmp_path / "b.txt").write_text("".join(f"two {i}\n" for i in range(9)))
    out = tmp_path / "votes.jsonl"
    files = [str(tmp_path / "a.jsonl"), f"b={tmp_path / 'b.txt'}"]
    assert main(["rate", *files, "--n", "9", "--out", str(out), "--port", "0", "--no-browser"]) == 0
    texts = [one.texts for one in RatingFile.read(out).comparisons.values() if not one.check]
    assert texts == [(f"one {i}", f"two {i}") for i in range(9)]


def mistakes(folder: Path) -> dict[str, list[str]]:
    (folder / "few.txt").write_text("one\n")
    (folder / "empty.txt").write_text("\n")
    (folder / "other.txt").write_text("some text\n")
    few, out = str(folder / "few.txt"), ["--out", str(folder / "new.jsonl")]
    return {
        "name two, or give --report FILE": ["stories"],
        "leave the models out": ["a", "b", "--report", few],
        "holds 1 texts, and 20 are needed": [f"a={few}", f"b={few}", *out],
        "no model 'nowhere'": ["nowhere", f"b={few}", "--n", "1", *out],
        "has no name before =": [f"={few}", f"b={few}", "--n", "1", *out],
        "no model 'nobody'": ["stories", "nobody", "--n", "1", *out],
        "holds no text": [f"a={few}", f"b={few}", "--prompts", str(folder / "empty.txt"), *out],
        "no file": ["--report", str(folder / "none.jsonl")],
        "holds no ratings": ["--report", str(folder / "other.txt")],
        "there is no folder": ["a", "b", "--out", str(folder / "none" / "x.jsonl")],
        "--n must be 1 or more": [f"a={few}", f"b={few}", "--n", "0", *out],
        "13 attention checks": [f"a={few}", f"b={few}", "--n", "1", "--checks", "13", *out],
    }


MESSAGES = [
    "name two, or give --report FILE",
    "leave the models out",
    "holds 1 texts, and 20 are needed",
    "no model 'nowhere'",
    "has no name before =",
    "no model 'nobody'",
    "holds no text",
    "no file",
    "holds no ratings",
    "there is no folder",
    "--n must be 1 or more",
    "13 attention checks",
]


@pytest.mark.parametrize("message", MESSAGES)
def test_mistakes_are_one_line_and_leave_no_file(message, no_server, tmp_path, capsys):
    assert main(["rate", *mistakes(tmp_path)[message], "--no-browser"]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") <= 2  # a line about the texts may precede it
    assert not (tmp_path / "new.jsonl").exists()
    assert no_server == []


# The page


def test_a_rater_votes_by_keys_and_clicks_and_resumes(browser, file):
    from browsing import visit
    from playwright.sync_api import expect

    window = visit(browser, reduced_motion="reduce")
    page = window.page
    with served(file) as url:
        window.open(url)
        page.fill("#rater", "anna 12")  # digits in the name do not vote
        page.keyboard.press("Enter")
        expect(page.locator("#count")).to_have_text("0 of 4")
        shown = file.next("anna 12")
        assert page.locator("#left").inner_text() == shown.left  # markup in a text is shown as text
        assert page.locator("#right").inner_text() == shown.right
        page.keyboard.press("2")
        expect(page.locator("#count")).to_have_text("1 of 4")
        page.locator("[data-choice='1']").click()
        expect(page.locator("#count")).to_have_text("2 of 4")
    page.keyboard.press("0")  # the server is gone
    expect(page.locator("#notice")).to_contain_text("The server is not reachable")
    window.troubles.clear()
    again = RatingFile.read(file.path)
    votes = list(again.votes.values())
    first = again.comparisons[shown.id]
    assert [vote.winner == vote.left for vote in votes] == [False, True]
    assert votes[0].winner == first.names[first.texts.index(shown.right)]
    with served(again) as url:
        window.open(url)
        page.fill("#rater", " anna 12 ")  # another port is another site, without the stored name
        page.keyboard.press("Enter")
        expect(page.locator("#count")).to_have_text("2 of 4")
        page.keyboard.press("0")
        expect(page.locator("#count")).to_have_text("3 of 4")
        page.keyboard.press("0")
        expect(page.locator("#end")).to_be_visible()
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert [vote.winner for vote in again.votes.values()][2:] == [None, None]
    page.context.close()
    assert window.troubles == []


def test_all_text_has_enough_contrast(browser, file):
    from browsing import CONTRAST, LEAST, visit
    from playwright.sync_api import expect

    with served(file) as url:
        for scheme in ("light", "dark"):
            window = visit(browser, color_scheme=scheme, reduced_motion="reduce")
            window.open(url)
            measured = window.page.evaluate(CONTRAST)
            window.page.fill("#rater", scheme)
            window.page.keyboard.press("Enter")
            expect(window.page.locator("#comparison")).to_be_visible()
            measured += window.page.evaluate(CONTRAST)
            assert len(measured) > 10
            assert [each for each in measured if each[0] < LEAST] == []
            window.page.context.close()


@pytest.mark.skipif("UNMASK_SCREENSHOTS" not in os.environ, reason="UNMASK_SCREENSHOTS is not set")
def test_screenshots(browser, tmp_path):
    from browsing import visit
    from PIL import Image
    from playwright.sync_api import expect

    import unmask

    folder, prompts = Path(os.environ["UNMASK_SCREENSHOTS"]), ["Once upon a time", "Tom has a"]
    texts = {
        name: [
            result.text
            for result in unmask.load(name, device="cpu").generate(
                prompts, length=90, ending="sentence", temperature=0.8
            )
        ]
        for name in ("stories", "stories-ar")
    }
    comparisons = [*compare_texts(texts, prompts), *attention_checks(1)]
    file = RatingFile.create(tmp_path / "votes.jsonl", {}, comparisons)
    with served(file) as url:
        for name, width, height in (("desktop", 1280, 800), ("phone", 390, 844)):
            window = visit(browser, color_scheme="light", reduced_motion="reduce")
            window.page.set_viewport_size({"width": width, "height": height})
            window.open(url)
            window.page.fill("#rater", "Anna")
            window.page.keyboard.press("Enter")
            expect(window.page.locator("#comparison")).to_be_visible()
            path = folder / f"rate-{name}.png"
            window.page.screenshot(path=path)
            with Image.open(path) as taken:
                small = taken.convert("RGB").quantize(256)
            small.save(path, optimize=True)
            window.page.context.close()
