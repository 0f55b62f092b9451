"""Judges that several files read."""

from pathlib import Path

import pytest
from tiny_judge import save_judge
from tiny_models import train_tiny


@pytest.fixture(scope="session")
def judge_folder(tmp_path_factory) -> Path:
    """A causal model of transformers with its own tokenizer."""
    return save_judge(tmp_path_factory.mktemp("judges") / "tiny")


@pytest.fixture(scope="session")
def reader(tmp_path_factory) -> Path:
    """An autoregressive run with the tokenizer of the tiny MDLM."""
    return train_tiny(tmp_path_factory.mktemp("reader"), "bpe", "autoregressive", "causal")
