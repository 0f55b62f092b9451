"""Where the stand-ins of this folder are found, and a model as it goes out."""

import sys
from pathlib import Path

import pytest

import unmask

sys.path.insert(0, str(Path(__file__).parent))  # for hub_models


@pytest.fixture(scope="module")
def model() -> unmask.Model:
    from hub_models import tiny

    return tiny()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "model"
    model.save_pretrained(folder, licence="apache-2.0")
    return folder
