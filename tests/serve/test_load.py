"""A small part of benchmarks/speed/serving.py: many streams at once,
each with the text of the request alone.
"""

import asyncio

from live import live

from benchmarks.speed.serving import alone, load_with, requests
from unmask.serve.execution.engine import Engine


def test_simultaneous_streams_have_the_texts_of_streams_alone(models):
    bodies = [{**body, "prompt": "The", "max_tokens": 12} for body in requests(9)]
    with Engine(models, active=8, waiting=0, workers=2) as engine, live(engine) as server:
        single = asyncio.run(alone(server.url, bodies))
        many = asyncio.run(load_with(server.url, bodies, 8, seconds=0.5))
    assert single.failed == many.failed == 0
    assert single.requests == len(bodies)
    assert many.requests >= 8
    assert all(many.texts[number] == single.texts[number] for number in many.texts)
    assert len(set.union(*single.texts.values())) > 5
