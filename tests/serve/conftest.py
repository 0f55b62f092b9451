"""Models that are served, and an engine for them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for random_models

from random_models import random_model

from unmask.model import Model
from unmask.serve.execution.engine import Engine


@pytest.fixture(scope="session")
def models() -> dict[str, Model]:
    return {
        "words": random_model(),
        "timed": random_model("sedd", time_conditioning="true"),
        "reader": random_model("autoregressive", "causal"),
    }


@pytest.fixture
def engine(models) -> Iterator[Engine]:
    with Engine(models, workers=2) as engine:
        yield engine
