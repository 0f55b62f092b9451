"""Requests of the page: the responses agree with the Python API and the registries."""

import http.client
import json
import re
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from fastapi.testclient import TestClient
from local_server import LocalServer

from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.data.tokenizers.characters import CharacterTokenizer
from unmask.extensions.play.controls import menu
from unmask.extensions.play.page_requests import Forming, Styling
from unmask.extensions.play.page_routes import FILES
from unmask.extensions.play.predictions import against_label
from unmask.extensions.play.trace import stream_events
from unmask.model import Model
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.sampler import SAMPLERS


@pytest.fixture(scope="module")
def client(server) -> Iterator[TestClient]:
    with TestClient(server.app, base_url=server.url) as client:
        yield client


def events(client: TestClient, **question: object) -> list[dict]:
    answer = client.post("/play/stream", json={"model": "tiny", **question})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(part.removeprefix("data: ")) for part in answer.text.strip().split("\n\n")]


def rows(found: list[dict]) -> list[list[int | None]]:
    """The row after every event, with all changes applied."""
    row: list[int | None] = [None] * found[0]["length"]
    seen = []
    for event in found[:-1]:
        for place, token, _, _ in event["changes"]:
            row[place] = token
        seen.append(list(row))
    return seen


def without_frame(model, tokens: torch.Tensor) -> list[int | None]:
    mask_id = model.tokenizer.vocabulary.mask_id
    return [None if token == mask_id else token for token in tokens.tolist()]


# Forming


@pytest.mark.parametrize("sampler", ["ancestral", "confidence", "remask:eta=0.2"])
def test_every_frame_of_the_stream_reaches_the_page(client, model, sampler):
    options = {"sampler": sampler, "steps": 8, "temperature": 0.7, "seed": 3}
    found = events(client, text="The cat", length=20, **options)
    frames = list(model.stream("The cat", length=20, **options))
    assert [event["kind"] for event in found] == ["start", *["frame"] * len(frames), "end"]
    assert rows(found)[1:] == [without_frame(model, frame.tokens[0, 1:]) for frame in frames]
    for event, frame in zip(found[1:-1], frames, strict=True):
        assert event["calls"] == int(frame.calls[0])
        assert event["t"] == float(frame.t[0])
        for place, token, _, sure in event["changes"]:
            expected = 0 if token is None else float(frame.confidence[0, 1 + place])
            assert sure == pytest.approx(expected, abs=1e-4)


def test_the_texts_of_the_changes_form_the_text(client, model):
    found = events(client, text="The queen", length=24, steps=6)
    texts = [""] * found[0]["length"]
    for event in found[:-1]:
        for place, _, text, _ in event["changes"]:
            texts[place] = text
    (result,) = model.generate("The queen", length=24, steps=6)
    assert "".join(texts[: found[-2]["end"]]) == result.text


def test_gaps_of_a_text_and_of_tokens_are_filled_alike(client, model):
    text = "The [MASK:2] sat on the [MASK]."
    typed = events(client, text=text, steps=3, seed=5)
    tokens = rows(typed)[0]
    assert tokens.count(None) == 3
    clicked = events(client, tokens=tokens, steps=3, seed=5)
    (result,) = model.fill(text, steps=3, seed=5)
    assert rows(typed)[-1] == rows(clicked)[-1] == result.ids[1:-1]


def test_a_model_of_pairs_shows_the_target():
    choices = {"data.source_field": "a", "data.target_field": "b", "data.packing": "pad"}
    choices |= {"data.length": "14", "data.tokenizer.kind": "characters"}
    choices |= {"backbone.width": "16", "backbone.depth": "1", "backbone.heads": "2"}
    config, tokenizer = resolve({}, list(choices.items())), CharacterTokenizer("abcdefgh")
    model = Model(build_method(config, tokenizer.vocabulary), tokenizer, config)
    found = list(stream_events(model, Forming(model="pairs", text="abc", steps=4, seed=2)))
    (result,) = model.generate("abc", steps=4, seed=2)
    assert rows(found)[0] == [None] * (14 - len("abc") - 2)
    assert rows(found)[-1][: len(result.ids)] == result.ids


def test_a_label_chooses_the_words_to_erase(client):
    choices = {"data.label_field": "kind", "data.packing": "pad", "data.length": "12"}
    choices |= {"backbone.width": "16", "backbone.depth": "1", "backbone.heads": "2"}
    config = resolve({}, list(choices.items()))
    tokenizer = CharacterTokenizer("abcdefgh").with_labels(["bad", "good"])
    model = Model(build_method(config, tokenizer.vocabulary), tokenizer, config)
    assert menu({"labelled": model})["models"][0]["labels"] == ["bad", "good"]
    row = [*tokenizer.encode("abcdefg"), None]
    (found,) = against_label(model, Styling(model="labelled", tokens=row, label="good"))
    assert len(found["places"]) <= 2 and 7 not in found["places"]
    asked = {"model": "tiny", "tokens": [1, 2, 3], "label": "good"}
    answer = client.post("/play/style", json=asked)
    assert answer.status_code == 400 and "trained without labels" in answer.text


# Guesses


def test_guesses_are_the_networks_probabilities_at_masked_positions(client, model):
    v = model.tokenizer.vocabulary
    tokens = model.tokenizer.encode("The dog sat on the mat.")
    question = {"model": "tiny", "tokens": [*tokens[:-1], None], "places": [1, 3], "t": 0.3, "k": 5}
    answer = client.post("/play/guesses", json=question).json()["guesses"]
    z_t = torch.tensor([[v.bos_id, *tokens, v.eos_id]])
    z_t[0, [2, 4, len(tokens)]] = v.mask_id
    at = (torch.zeros(2, dtype=torch.long), torch.tensor([2, 4]))
    with torch.inference_mode():
        expected = model.method.denoiser()(z_t, torch.tensor([0.3]).double(), at).exp()
    for guess, place, p in zip(answer, [1, 3], expected, strict=True):
        assert guess["place"] == place
        assert guess["p"] == pytest.approx(float(p[tokens[place]]), rel=1e-4)
        shown = [p[token["id"]].item() for token in guess["likely"]]
        assert [token["p"] for token in guess["likely"]] == pytest.approx(shown, rel=1e-4)
        assert shown == sorted(shown, reverse=True)
        assert len(shown) == 5


def test_an_autoregressive_model_guesses_from_the_left_context(client, left_to_right):
    tokens = left_to_right.tokenizer.encode("The cat")
    ask = {"model": "backwards", "places": [2, 4]}
    first = client.post("/play/guesses", json={**ask, "tokens": tokens}).json()
    other = client.post("/play/guesses", json={**ask, "tokens": [*tokens[:5], tokens[0], None]})
    assert first["guesses"][0]["likely"][0]["text"] == "e"
    assert first == other.json()  # what follows changes nothing


# The forward process


def test_tokens_have_texts_and_uniforms_that_depend_only_on_the_seed(client):
    ask = {"model": "tiny", "text": "The queen sat on the hill."}
    one, again, other = (
        client.post("/play/tokens", json={**ask, "seed": seed}).json() for seed in (0, 0, 1)
    )
    assert "".join(token["text"] for token in one["tokens"]) == ask["text"]
    assert one == again
    assert one["uniforms"] != other["uniforms"]
    assert all(0 <= u < 1 for u in one["uniforms"])


def test_the_menu_has_the_models_defaults(model):
    own = replace(model, defaults={"steps": 8, "temperature": 0.5, "length": 12})
    found = menu({"own": own})["models"][0]["defaults"]
    assert found == {"steps": 8, "temperature": 0.5, "length": 12}
    events_of_it = list(stream_events(own, Forming(model="own", seed=3)))
    (result,) = own.generate(seed=3)
    assert rows(events_of_it)[-1][: len(result.ids) - 1] == result.ids[1:]


def test_alpha_is_the_schedules(client, model):
    known = client.get("/play/menu").json()["models"][0]
    times = torch.linspace(0, 1, 101, dtype=torch.float64)
    assert known["alpha"] == pytest.approx(model.method.schedule.alpha(times).tolist())
    assert known["length"] == model.length


# The menu


def test_a_registered_sampler_is_in_the_menu(client, monkeypatch):
    monkeypatch.setattr(SAMPLERS, "_entries", {name: SAMPLERS[name] for name in SAMPLERS})

    @SAMPLERS.register("sleepy")
    @dataclass(frozen=True)
    class Sleepy(Ancestral):
        """Waits."""

        naps: int = 3
        deep: bool = False

    found = {sampler["name"]: sampler for sampler in client.get("/play/menu").json()["samplers"]}
    assert list(found) == list(SAMPLERS)
    assert found["sleepy"]["summary"] == "Waits."
    kinds = {
        field["name"]: (field["kind"], field["default"]) for field in found["sleepy"]["fields"]
    }
    assert kinds == {"grid": ("grid", "uniform"), "naps": ("int", 3), "deep": ("bool", False)}
    assert not found["left_to_right"]["steps"]


# Mistakes

MISTAKES = [
    ("stream", {"model": "huge"}, "unknown model 'huge'"),
    ("stream", {"length": 10_000}, "length must be 2 to 24"),
    ("stream", {"temperature": -1}, "temperature must be 0 or more"),
    ("stream", {"sampler": "ancestrl"}, "did you mean 'ancestral'"),
    ("stream", {"steps": 1_000_000}, "steps must be 4096 or less"),
    ("stream", {"sampler": "confidence:steps=1000000"}, "steps must be 4096 or less"),
    ("stream", {"sampler": "semi_autoregressive:inner=gibbs", "steps": 5000}, "4096 or less"),
    ("stream", {"text": "[MASK:0]"}, "is no gap"),
    ("stream", {"tokens": [5, 6]}, "has no gap"),
    ("stream", {"model": "backwards", "text": "a [MASK]"}, "cannot see what follows"),
    ("stream", {"tokens": [10**6, None]}, "is no text token of this model"),
    ("tokens", {"text": "[MASK:20] [MASK:5]"}, "the gaps have 25 tokens, but the model reads 24"),
    ("guesses", {"tokens": [5], "places": [1]}, "places must lie in a text of 1"),
    ("guesses", {"tokens": [5] * 99, "places": [1]}, "the model reads 24"),
    ("guesses", {"tokens": [5], "places": [0], "t": 7}, "t must lie in"),
]


@pytest.mark.parametrize(("route", "question", "says"), MISTAKES, ids=lambda value: str(value)[:40])
def test_mistakes_are_one_line_before_any_stream(client, route, question, says):
    answer = client.post(f"/play/{route}", json={"model": "tiny", **question})
    assert 400 <= answer.status_code < 500
    message = answer.json()["error"]["message"]
    assert says in message
    assert "\n" not in message


@pytest.mark.parametrize("route", ["stream", "tokens"])
def test_a_short_text_with_many_masks_takes_little_memory(client, route):
    tracemalloc.start()
    try:
        question = {"model": "tiny", "text": "[MASK:65536]" * 100}
        answer = client.post(f"/play/{route}", json=question)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "the gaps have 6553600 tokens" in answer.json()["error"]["message"]
    assert peak < 10_000_000


@pytest.mark.parametrize("special", ["mask_id", "bos_id", "eos_id", "pad_id"])
def test_special_tokens_in_a_text_are_refused(client, model, special):
    token = getattr(model.tokenizer.vocabulary, special)
    answer = client.post("/play/stream", json={"model": "tiny", "tokens": [token, None]})
    assert answer.status_code == 400


# Files


def test_the_content_policy_excludes_other_hosts(client):
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in answer.text.replace("http-equiv", "")
    assert client.get("/play/files/app.js").headers["content-type"].startswith("text/javascript")


def test_no_script_inserts_text_as_html():
    scripts = {name: text.decode() for name, text in FILES.items() if name.endswith(".js")}
    assert len(scripts) > 10
    unsafe = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    )
    assert [name for name, text in scripts.items() if unsafe.search(text)] == []


@pytest.mark.parametrize(
    "name", ["../routes.py", "..%2froutes.py", "vendor/../../routes.py", "", "none.js"]
)
def test_only_files_of_the_page_are_served(client, name):
    assert client.get(f"/play/files/{name}").status_code in (404, 307)


def test_a_client_that_disconnects_stops_the_job(server: LocalServer):
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    question = {"model": "tiny", "length": 24, "sampler": "gibbs", "steps": 4096}
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/play/stream", json.dumps(question), headers)
    assert connection.getresponse().readline().startswith(b"data:")
    assert server.engine.jobs == 1
    connection.close()
    assert server.idle(within=20)
