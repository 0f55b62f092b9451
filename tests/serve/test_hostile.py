"""A small part of benchmarks/reliability/hostile.py: no request breaks the server."""

import random

import httpx
from live import live

from benchmarks.reliability.hostile import Outcome, attack, fixed, generated, hand_made
from unmask.serve.execution.engine import Engine

# always sent, with a sample of the others
ALWAYS = ("deep", "large", "many gaps", "unknown fields", "path")
FEW = 15


def test_no_request_breaks_the_server(models):
    every = list(hand_made(limit=1 << 20))
    chosen = random.Random(0).sample(every, FEW)
    chosen += [one for one in every if one.name in ALWAYS or not one.method]
    with Engine(models, workers=1) as engine, live(engine, body=1 << 18) as server:
        document = httpx.get(f"{server.url}/openapi.json").json()
        chosen += generated(document, 12)
        before = fixed(server.url)
        outcome = attack(server.url, chosen, Outcome())
        assert outcome.wrong == []
        assert {"200", "400", "404", "405", "413"} <= set(outcome.statuses)
        assert fixed(server.url) == before
        assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok", "jobs": 0}
