"""A tiny model and its folder in the hub's layout, for tests of formats and integrations."""

from pathlib import Path

import pytest
from hub_models import tiny

import unmask


@pytest.fixture(scope="module")
def model() -> unmask.Model:
    return tiny()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "model"
    model.save_pretrained(folder, licence="apache-2.0")
    return folder
