"""Two small models, trained once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for tiny_models

from tiny_models import train_tiny

import unmask


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    return train_tiny(tmp_path_factory.mktemp("mdlm"), "bpe", "mdlm", "dit")


@pytest.fixture(scope="session")
def model(run) -> unmask.Model:
    return unmask.load(run)


@pytest.fixture(scope="session")
def left_to_right(tmp_path_factory) -> unmask.Model:
    folder = tmp_path_factory.mktemp("autoregressive")
    return unmask.load(train_tiny(folder, "characters", "autoregressive", "causal"))


@pytest.fixture(params=["mdlm", "autoregressive"])
def either(request, model, left_to_right) -> unmask.Model:
    return model if request.param == "mdlm" else left_to_right
