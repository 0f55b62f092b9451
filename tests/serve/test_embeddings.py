"""Vectors of texts over HTTP."""

import numpy as np
import openai
import pytest
from fastapi.testclient import TestClient
from live import live

from unmask.serve.app import create_app
from unmask.serve.limits import ServerLimits

TEXTS = ["Tom was glad.", "The old red box was lost in the wood."]


@pytest.mark.parametrize("name", ["words", "timed", "reader"])
def test_vectors_are_those_of_the_model(engine, models, name):
    client = TestClient(create_app(engine), base_url="http://localhost")
    answer = client.post("/v1/embeddings", json={"model": name, "input": TEXTS}).json()
    assert [each["index"] for each in answer["data"]] == [0, 1] and answer["model"] == name
    found = np.array([each["embedding"] for each in answer["data"]], np.float32)
    np.testing.assert_array_equal(found, models[name].embed(TEXTS, normalize=True))
    tokens = sum(len(models[name].tokenizer.encode(text)) + 2 for text in TEXTS)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    # the other texts of a batch have no effect
    alone = models[name].embed(TEXTS[0], normalize=True)
    np.testing.assert_allclose(alone, found[:1], rtol=0, atol=1e-6)


def test_the_client_of_openai_reads_base64(engine, models):
    with live(engine) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        with client:
            # the client requests base64
            answer = client.embeddings.create(model="words", input=TEXTS)
    found = np.array([each.embedding for each in answer.data], np.float32)
    np.testing.assert_array_equal(found, models["words"].embed(TEXTS, normalize=True))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": ["a", " "]}, "sentence 2 is empty"),
        ({"input": []}, "input"),
        ({"input": "a", "dimensions": 7}, "leave dimensions out"),
        ({"input": "a", "pooling": "max"}, "pooling"),
        ({"input": "word " * 400}, "embed fewer texts"),
    ],
)
def test_mistakes_are_one_line(engine, body, message):
    app = create_app(engine, ServerLimits(length=16))
    answer = TestClient(app, base_url="http://localhost").post("/v1/embeddings", json=body)
    assert answer.status_code == 400
    said = answer.json()["error"]["message"]
    assert message in said and "\n" not in said
