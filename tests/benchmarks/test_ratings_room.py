"""Benchmarks of the room `ratings` at small sizes."""

import re

import pytest
from benchmark_rows import finished


@pytest.mark.slow
def test_vote_kills():
    done = finished("ratings", "vote_kills", "--kills", 6, "--seed", 0)
    assert re.match(r"6 kills, \d+ votes with a response: 0 lost, 0 twice", done.stdout)
