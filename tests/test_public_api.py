"""The public surface is exactly this, and looking at it costs nothing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import unmask

PUBLIC = [
    "Bound",
    "Frame",
    "Model",
    "Result",
    "RunConfig",
    "Sampling",
    "UnmaskError",
    "Vocabulary",
    "__version__",
    "compare",
    "load",
    "train",
]


def test_the_public_names_are_exactly_these():
    assert unmask.__all__ == PUBLIC
    assert dir(unmask) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves_and_is_documented(name):
    value = getattr(unmask, name)
    assert isinstance(value, str) or value.__doc__


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = unmask.nothing


def test_the_version_is_the_packages():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert unmask.__version__ == project["version"]


def test_importing_is_quick_and_does_not_import_torch():
    code = (
        "import sys, time; start = time.process_time(); import unmask; "
        "print(time.process_time() - start, 'torch' in sys.modules, 'numpy' in sys.modules)"
    )
    seconds, *heavy = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert float(seconds) < 0.3
    assert heavy == ["False", "False"]
