"""Responses of the server to OpenAI's client and to plain HTTP."""

import json
import logging
from copy import copy
from dataclasses import replace

import httpx
import openai
import pytest
from fastapi.testclient import TestClient
from live import Live, eventually, live

from unmask.model import Model, load
from unmask.serve import routes
from unmask.serve.app import create_app
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits


@pytest.fixture(scope="module")
def server(models):
    with Engine(models, workers=2, timeout=60) as engine, live(engine) as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(server: Live, path: str, body: dict, **more) -> httpx.Response:
    return httpx.post(server.url + path, json=body, timeout=30, **more)


def figures(server: Live) -> str:
    return httpx.get(f"{server.url}/metrics").text


def written(model, prompt: str, tokens: int, **options) -> list[str]:
    """The text that the Python API generates after a prompt."""
    stop = 1 + len(model.tokenizer.encode(prompt)) + tokens
    spare = not model.method.capabilities.causal  # a position for the EOS at the end of a row
    results = model.generate(prompt, length=stop + spare, **options)
    return [model.tokenizer.decode(r.ids[:stop]).removeprefix(prompt) for r in results]


# OpenAI's client


@pytest.mark.parametrize("name", ["words", "reader", "timed"])
def test_completions_equal_those_of_the_python_api(client, models, name):
    options = {"temperature": 0.8, "top_p": 0.9, "seed": 7, "n": 3}
    answer = client.completions.create(model=name, prompt="Once upon", max_tokens=20, **options)
    texts = written(models[name], "Once upon", 20, **options)
    assert [choice.text for choice in answer.choices] == texts
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.object == "text_completion" and answer.model == name
    assert answer.usage.prompt_tokens == len("Once upon")
    assert answer.usage.completion_tokens == sum(map(len, texts))
    for choice in answer.choices:
        ended = len(choice.text) < 20
        assert choice.finish_reason == ("stop" if ended else "length")
    alone = client.completions.create(
        model=name,
        prompt="Once upon",
        max_tokens=20,
        **{**options, "n": 1, "seed": answer.choices[2].seed},
    )
    assert alone.choices[0].text == texts[2]


@pytest.mark.parametrize(
    ("name", "sampler"),
    [
        *(("words", "ancestral"), ("words", "remask"), ("words", "predictor_corrector:steps=8")),
        *(("words", "gibbs:steps=12"), ("words", "left_to_right"), ("reader", None)),
    ],
)
def test_a_stream_is_the_whole_text_in_pieces(client, name, sampler):
    options = {"model": name, "prompt": "The", "max_tokens": 30, "seed": 3, "n": 2}
    extra = {"sampler": sampler} if sampler else {}
    whole = client.completions.create(**options, extra_body=extra)
    chunks = list(
        client.completions.create(
            **options, stream=True, stream_options={"include_usage": True}, extra_body=extra
        )
    )
    texts = ["", ""]
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert chunks[-1].usage == whole.usage
    finished = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
    assert finished == [choice.finish_reason for choice in whole.choices]
    assert sum(bool(c.text) for chunk in chunks for c in chunk.choices) > 4


def test_a_suffix_is_kept_and_the_gap_filled(client, models):
    answer = client.completions.create(
        model="words", prompt="Tom was ", suffix=" lost.", max_tokens=6, seed=2, n=2
    )
    results = models["words"].fill("Tom was [MASK:6] lost.", seed=2, n=2)
    for choice, result in zip(answer.choices, results, strict=True):
        assert f"Tom was {choice.text} lost." == str(result)
        assert len(choice.text) == 6 and choice.finish_reason == "length"
    with pytest.raises(openai.BadRequestError, match="cannot see what follows"):
        client.completions.create(model="reader", prompt="Tom", suffix=" lost.")


def test_texts_end_at_stop_strings(client):
    options = {"model": "words", "prompt": "The", "max_tokens": 40, "seed": 5}
    whole = client.completions.create(**options).choices[0].text
    stop = whole[10:12]
    cut = client.completions.create(**options, stop=[stop, "no such text"]).choices[0]
    assert cut.text == whole[: whole.index(stop)] and cut.finish_reason == "stop"
    chunks = client.completions.create(**options, stop=stop, stream=True)
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == cut.text
    echoed = client.completions.create(**options, stop=stop, echo=True).choices[0].text
    assert echoed == "The" + cut.text


def test_several_prompts_are_answered_in_order_and_equal_ones_differently(client, models):
    options = {"model": "words", "max_tokens": 8, "seed": 1, "n": 2}
    prompts = ["A", "A", "T"]
    choices = client.completions.create(prompt=prompts, **options).choices
    texts = [choice.text for choice in choices]
    whole = models["words"].generate(prompts, length=1 + 1 + 8 + 1, seed=1, n=2)
    assert texts == [str(result)[1:9] for result in whole]
    assert [choice.seed for choice in choices] == [result.seed for result in whole]
    assert len(set(texts)) == 6


def test_a_model_uses_its_saved_defaults(models):
    words = models["words"]
    defaults = {"sampler": "remask", "steps": 6, "temperature": 0.5, "length": 30}
    usual = Model(words.method, words.tokenizer, words.config, defaults)
    asked = {"prompt": "The", "max_tokens": 20, "seed": 3}
    (result,) = usual.generate("The", length=25, seed=3)
    text = result.text[: len("The") + 20]
    assert text != words.generate("The", length=25, seed=3)[0].text[: len(text)]
    with Engine({"usual": usual}, workers=1) as engine:
        client = TestClient(create_app(engine, ServerLimits(steps=6)), base_url="http://localhost")
        answer = client.post("/v1/completions", json=asked).json()
        assert "The" + answer["choices"][0]["text"] == text
        streamed = client.post("/v1/completions", json={**asked, "stream": True}).text
        data = [line.removeprefix("data: ") for line in streamed.split("\n\n")[:-2]]
        pieces = [json.loads(line)["choices"][0]["text"] for line in data]
        assert "".join(pieces) == text.removeprefix("The")
        *_, (_, done) = events(client.post("/v1/stream", json={"prompt": "The", "seed": 3}))
        *_, last = usual.stream("The", seed=3)
        assert last.tokens.shape == (1, 30)
        assert done["texts"] == [usual.tokenizer.decode(last.tokens[0].tolist())]
        # filled with the model's defaults, in its own number of steps
        gap = {"text": "Tom [MASK:4].", "seed": 1}
        filled = client.post("/v1/fill", json=gap).json()["results"][0]["text"]
        assert filled == str(words.fill(**gap, temperature=0.5, sampler="remask")[0])
        gap = {"prompt": "Tom", "suffix": ".", "max_tokens": 14, "seed": 1}
        as_usual, cooler, plain = (
            client.post("/v1/completions", json=gap | more).json()["choices"][0]["text"]
            for more in ({}, {"temperature": 0.5}, {"temperature": 1})
        )
        assert as_usual == cooler != plain
        for limits, wrong in (
            (ServerLimits(steps=5), "steps must be"),
            (ServerLimits(length=29), "length"),
        ):
            client = TestClient(create_app(engine, limits), base_url="http://localhost")
            refused = client.post("/v1/stream", json={"prompt": "The"})
            assert refused.status_code == 400 and wrong in refused.text


def test_null_equals_an_absent_field(server):
    body = {"prompt": "The", "seed": 1, "max_tokens": 16, "n": 1, "stream": False}
    nulls = {"echo": None, "presence_penalty": None, "temperature": None, "logit_bias": None}
    whole = post(server, "/v1/completions", body).json()["choices"]
    nulls |= {"max_tokens": None, "n": None, "stream": None}
    assert post(server, "/v1/completions", {**body, **nulls}).json()["choices"] == whole


def test_as_many_texts_as_the_server_allows(models):
    with Engine(models, workers=1) as engine:
        app = create_app(engine, ServerLimits(texts=70))
        client = TestClient(app, base_url="http://localhost")
        body = {"prompt": "A", "max_tokens": 2, "n": 70}
        assert len(client.post("/v1/completions", json=body).json()["choices"]) == 70
        *_, (_, done) = events(client.post("/v1/stream", json={"fill": "A[MASK]", "n": 70}))
        assert len(done["texts"]) == 70


def test_a_text_is_no_longer_than_the_server_allows(models):
    with Engine(models, workers=1) as engine:
        app = create_app(engine, ServerLimits(length=20))
        client = TestClient(app, base_url="http://localhost")
        blanks = {"text": "[MASK:65536]" * 1000}
        for route, body in (
            ("/v1/completions", {"prompt": "a", "suffix": "b" * 15, "max_tokens": 5}),
            ("/v1/completions", {"prompt": "a" * 15, "max_tokens": 5}),
            ("/v1/stream", {"prompt": "a"}),  # the default is the length of the model
            ("/v1/stream", {"edit": "a" * 21, "remask": 0.5}),
            ("/v1/fill", blanks),
        ):
            answer = client.post(route, json=body)
            assert answer.status_code == 400 and "20" in answer.text
        assert "not 65536000" in client.post("/v1/fill", json=blanks).text


def test_internal_errors_are_logged_and_counted(server, monkeypatch):
    def wrong(*_):
        raise ValueError("a secret")

    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    log = logging.getLogger("uvicorn.error")
    log.addHandler(handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(routes, "frame_data", lambda model, number, frame: number < 2 or wrong())
            response = post(server, "/v1/stream", {"fill": "Tom [MASK:8] end"})
            patch.setattr(routes, "score_texts", wrong)
            failed = post(server, "/v1/score", {"texts": "A"})
        eventually(lambda: len(records) == 2)
    finally:
        log.removeHandler(handler)
    for answer in (response, failed):
        assert "internal error" in answer.text and "secret" not in answer.text
    assert failed.status_code == 500
    assert [str(record.exc_info[1]) for record in records] == ["a secret"] * 2
    counted = 'unmask_requests_total{path="/v1/score",status="500"} 1'
    assert eventually(lambda: counted in figures(server))


def test_a_random_seed_is_returned(client):
    first, second = (
        client.completions.create(model="words", prompt="A", max_tokens=30).choices[0]
        for _ in range(2)
    )
    assert first.seed != second.seed
    again = client.completions.create(model="words", prompt="A", max_tokens=30, seed=first.seed)
    assert again.choices[0].text == first.text


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["words", "timed", "reader"]
    assert client.models.retrieve("reader").fills is False
    with pytest.raises(openai.NotFoundError, match="unknown model 'wrods'; did you mean 'words'"):
        client.completions.create(model="wrods", prompt="A")


@pytest.mark.parametrize(
    ("wrong", "message", "param"),
    [
        ({"presence_penalty": 1.0}, "presence_penalty is not supported", "presence_penalty"),
        ({"max_tokens": 10**6}, "max_tokens must be 2048 or less here", "max_tokens"),
        ({"prompt": "a" * 2045}, "a text may have 2048 tokens here", "prompt"),
        ({"n": 17}, "more than 16 texts", "n"),
        ({"best_of": 17}, "best_of 17 are more than 16 texts", "best_of"),
        ({"n": 3, "best_of": 2}, "best_of must be n (3) or more", "best_of"),
        ({"best_of": 2, "stream": True}, "leave stream out", "best_of"),
        ({"logprobs": 1, "suffix": "b"}, "read no suffix", "suffix"),
        ({"logprobs": 21}, "logprobs: Input should be less", "logprobs"),
        ({"logprobs": 1, "model": "timed"}, "reads the time", None),
        ({"logprobs": 1, "max_tokens": 60}, "the model reads 48", "logprobs"),
        ({"prompt": ["a"] * 9, "n": 2}, "more than 16 texts", "n"),
        ({"extra_body": {"steps": 2000}}, "steps must be 1024 or less here", "steps"),
        ({"extra_body": {"sampler": "gibbs:steps=5000"}}, "steps must be 1024", "steps"),
        ({"extra_body": {"sampler": "no such"}}, "unknown sampler", "sampler"),
        (
            {"extra_body": {"temprature": 1}},
            "unknown field 'temprature'; did you mean 'temperature'",
            "temprature",
        ),
        ({"temperature": -1}, "temperature: Input should be greater", "temperature"),
        ({"prompt": "The [MASK]"}, "has a gap: use fill instead", "prompt"),
        ({"prompt": [1, 2, 99]}, "99 is no token", "prompt"),
        ({"prompt": []}, "there is no prompt", "prompt"),
        ({"stop": list("abcde")}, "stop: List should have at most 4 items", "stop"),
        ({"extra_body": {"label": "good"}}, "label", "label"),
        ({"stop": "}", "extra_body": {"response_format": {"type": "json_object"}}}, "cut", None),
        ({"extra_body": {"response_format": {"type": "json_schema"}}}, "need each other", None),
    ],
)
def test_unsupported_requests_are_refused_with_a_message(client, wrong, message, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{"model": "words", "prompt": "A", **wrong})
    assert message in caught.value.body["message"]
    assert caught.value.body["type"] == "invalid_request_error"
    assert param is None or caught.value.body["param"] == param


def test_a_wrong_body_is_named(server):
    url, headers = f"{server.url}/v1/fill", {"Content-Type": "application/json"}
    for content, kind, message, param in (
        ("{}", headers, "text: Field required", "text"),
        ('{"text":', headers, "the body is not JSON, at character 8", None),
        ("[]", headers, "the body is no JSON object", None),
        ("", headers, "the body is no JSON object", None),
        ('{"text": "A"}', {"Content-Type": "text/plain"}, "Content-Type is text/plain", None),
        ('{"text": "A"}', {}, "Content-Type is missing: send application/json", None),
    ):
        error = httpx.post(url, content=content, headers=kind).json()["error"]
        assert message in error["message"] and error["param"] == param
    home = httpx.get(server.url, follow_redirects=True)
    assert home.url.path == "/docs" and "/v1/completions" in home.text


# Scores


@pytest.mark.parametrize("name", ["words", "reader"])
def test_logprobs_are_the_likelihood_from_left_to_right(client, models, name):
    scoring = pytest.importorskip("unmask.extensions.lm_eval.scoring")
    model = models[name]
    text, bos = "The cat", model.tokenizer.vocabulary.bos_id
    ids = model.tokenizer.encode(text)
    scorer = scoring.Scorer(model.method, model.length, order="left_to_right")
    expected = scorer.log_p([scoring.ScoringRequest((bos, *ids), start) for start in (1, 4)])
    asked = {"model": name, "echo": True, "max_tokens": 0, "logprobs": 2}
    by_text = client.completions.create(prompt=text, **asked).choices[0]
    by_ids = client.completions.create(prompt=[[bos, *ids], ids], **asked).choices
    assert [choice.text for choice in by_ids] == [text, text] == [by_text.text] * 2
    found = by_text.logprobs
    assert by_text.finish_reason == "length" and found.tokens == list(text)
    assert found.text_offset == list(range(len(text)))
    assert sum(found.token_logprobs) == pytest.approx(expected[0], rel=1e-4)
    assert sum(found.token_logprobs[3:]) == pytest.approx(expected[1], rel=1e-4)
    with_bos, without = (choice.logprobs.token_logprobs for choice in by_ids)
    assert with_bos[0] is None and with_bos[1:] == without == found.token_logprobs
    for token, p, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert top[token] == p and 2 <= len(top) <= 3


def test_the_best_texts_are_returned(client):
    asked = {"model": "words", "prompt": "A", "max_tokens": 6, "seed": 2, "logprobs": 0}
    every = client.completions.create(**asked, n=5).choices
    mean = [sum(c.logprobs.token_logprobs) / len(c.logprobs.tokens) for c in every]
    best = client.completions.create(**asked, n=2, best_of=5).choices
    ranked = sorted(range(5), key=lambda number: -mean[number])
    assert [choice.seed for choice in best] == [every[number].seed for number in ranked[:2]]
    assert [choice.text for choice in best] == [every[number].text for number in ranked[:2]]
    assert [choice.index for choice in best] == [0, 1]


def test_the_likeliest_tokens_need_no_seed(client):
    for extra in ({"sampler": "ancestral"}, {"sampler": "gibbs:steps=9"}, {"sampler": "remask"}):
        asked = {"model": "words", "prompt": "A", "max_tokens": 20, "temperature": 0}
        texts = {client.completions.create(**asked, extra_body=extra).choices[0].text for _ in "ab"}
        assert len(texts) == 1


def test_a_text_cut_by_max_tokens_has_all_its_tokens():
    stories = load("stories")
    with Engine({"stories": stories}, workers=1) as engine:
        client = TestClient(create_app(engine), base_url="http://localhost")
        asked = {"prompt": "Once upon a time", "max_tokens": 8, "steps": 2, "n": 4, "seed": 1}
        answer = client.post("/v1/completions", json=asked).json()
        cut = [choice for choice in answer["choices"] if choice["finish_reason"] == "length"]
        # the model ends each row with EOS, so a shorter row has it as its last token
        assert len(cut) >= 3
        assert answer["usage"]["completion_tokens"] >= 8 * len(cut)
        form = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        format = {"type": "json_schema", "json_schema": {"name": "n", "schema": form}}
        asked |= {"response_format": format, "max_tokens": 12}
        for choice in client.post("/v1/completions", json=asked).json()["choices"]:
            assert type(json.loads(choice["text"])["n"]) is int
            assert choice["finish_reason"] == "stop"


# Chats


def test_a_chat_is_answered_where_the_model_has_a_template(client, models):
    tokenizer = copy(models["words"].tokenizer)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
        "{{ m.content }}. {% endfor %}{% if add_generation_prompt %}A{% endif %}"
    )
    talker = replace(models["words"], tokenizer=tokenizer)
    messages = [{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}]
    (own,) = talker.chat(messages, tokens=9, seed=4)
    text = own.text
    with Engine({"talker": talker}, workers=1) as engine, live(engine) as running:
        talk = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        asked = {"model": "talker", "messages": messages, "max_tokens": 9, "seed": 4}
        answer = talk.chat.completions.create(**asked)
        assert answer.choices[0].message.content == text
        assert answer.choices[0].finish_reason == "length" and answer.usage.prompt_tokens == 9
        chunks = list(talk.chat.completions.create(**asked, stream=True))
        assert "".join(c.choices[0].delta.content for c in chunks) == text
        response = talk.responses.create(
            model="talker",
            instructions="Be",
            input="Hi",
            max_output_tokens=9,
            extra_body={"seed": 4},
        )
        assert response.output_text == text and response.status == "incomplete"
        for wrong, message, param in (
            ({"messages": [{"role": "tool", "content": "x"}]}, "no tools", "messages"),
            ({"messages": []}, "messages: List should have", "messages"),
            ({"max_tokens": -1}, "max_tokens: Input", "max_tokens"),
            ({"response_format": {"type": "json_schema"}}, "need each other", "response_format"),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                talk.chat.completions.create(**{**asked, **wrong})
            assert message in caught.value.body["message"] and caught.value.body["param"] == param
        form = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "what"}}}
        with pytest.raises(openai.BadRequestError, match="type 'what'"):
            talk.responses.create(model="talker", input="Hi", text=form)
        talk.close()
    for ask in (
        lambda: client.chat.completions.create(model="words", messages=messages),
        lambda: client.responses.create(model="words", input="Hi"),
    ):
        with pytest.raises(openai.BadRequestError, match="send a prompt to /v1/completions"):
            ask()


# Our own routes


def test_gaps_are_filled_as_the_api_fills_them(server, models):
    body = {"text": "Tom was [MASK:3] and [MASK].", "n": 2, "seed": 4, "sampler": "confidence"}
    answer = post(server, "/v1/fill", body).json()
    results = models["words"].fill(body.pop("text"), **body)
    assert answer["model"] == "words"
    assert answer["results"] == [
        {"text": r.text, "ids": r.ids, "calls": r.calls, "seed": r.seed} for r in results
    ]


def test_a_score_is_the_bound_with_its_error(server, models):
    texts = ["The cat sat on the mat.", "A dog."]
    answer = post(server, "/v1/score", {"texts": texts, "draws": 4, "seed": 2}).json()
    bound = models["words"].perplexity(texts, draws=4, seed=2)
    assert (answer["nats"], answer["error"]) == (bound.nats, bound.error)
    assert answer["certificate"] == "upper" and answer["error"] > 0
    exact = post(server, "/v1/score", {"model": "reader", "texts": texts[0]}).json()
    assert exact["certificate"] == "exact" and exact["error"] == 0
    refused = post(server, "/v1/score", {"texts": "a" * 3000})
    assert refused.status_code == 400 and "2048 tokens" in refused.json()["error"]["message"]
    refused = post(server, "/v1/score", {"texts": [["a", "b"]]})
    assert refused.status_code == 400 and "not pairs" in refused.json()["error"]["message"]


def events(response: httpx.Response) -> list[tuple[str, dict]]:
    found = []
    for block in response.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_every_frame_is_sent(server, models):
    body = {"fill": "Tom [MASK:8] end", "seed": 6, "n": 2}
    response = post(server, "/v1/stream", body)
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, (last, done) = events(response)
    expected = list(models["words"].stream(fill=body["fill"], seed=6, n=2))
    assert [name for name, _ in frames] == ["frame"] * len(expected) and last == "done"
    for (_, frame), theirs in zip(frames, expected, strict=True):
        assert [row["ids"] for row in frame["rows"]] == theirs.tokens.tolist()
        assert frame["calls"] == theirs.calls.tolist()
        for row, changed in zip(frame["rows"], theirs.changed, strict=True):
            assert row["changed"] == changed.nonzero()[:, 0].tolist()
    assert done["texts"] == [str(r) for r in models["words"].fill(body["fill"], seed=6, n=2)]
    for seed in range(4):  # a text ends at its first EOS
        [(_, done)] = events(post(server, "/v1/stream", {"prompt": "Tom", "seed": seed}))[-1:]
        assert done["texts"] == [models["words"].generate("Tom", seed=seed)[0].text]
    edited = events(post(server, "/v1/stream", {"edit": "The cat.", "remask": 0.5, "seed": 1}))
    assert edited[-1][0] == "done"
    assert post(server, "/v1/stream", {"prompt": "a", "fill": "[MASK]"}).status_code == 400


def test_figures_for_prometheus_count_requests(server):
    post(server, "/v1/fill", {"text": "A [MASK]"})
    post(server, "/v1/fill", {"text": "A"})
    for status in (200, 400):
        counted = f'unmask_requests_total{{path="/v1/fill",status="{status}"}}'
        assert eventually(lambda: counted in figures(server))  # noqa: B023
    lines = figures(server).splitlines()
    told = dict(line.rsplit(" ", 1) for line in lines if line[0] != "#")
    calls, passes = (float(told[f"unmask_network_{name}_total"]) for name in ("calls", "passes"))
    assert calls >= passes > 0


def test_the_documentation_loads_nothing_from_other_hosts(server):
    page = httpx.get(f"{server.url}/docs").text
    for path in ("/v1/completions", "/v1/fill", "/v1/score", "/v1/stream", "/healthz"):
        assert path in page
    assert "max_tokens" in page
    assert "http" not in page.replace("HTTP", "") and "<script" not in page
    assert httpx.get(f"{server.url}/openapi.json").json()["openapi"].startswith("3.")


def test_constraints_can_be_switched_off(models, server):
    body = {"text": "A [MASK:4] b", "ban": ["x"], "seed": 1}
    assert post(server, "/v1/fill", body).status_code == 200
    with Engine(models, workers=1) as engine, live(engine, constraints=False) as strict:
        assert (
            "disabled on this server" in post(strict, "/v1/fill", body).json()["error"]["message"]
        )
        del body["ban"]
        assert post(strict, "/v1/fill", body).status_code == 200
