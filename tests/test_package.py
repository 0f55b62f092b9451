"""The distribution: a wheel with all files that the package reads,
and extras for all pip commands.
"""

import re
import shutil
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import unmask
from unmask import shipped

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "unmask"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module", params=["empty", pytest.param("real", marks=pytest.mark.slow)])
def wheel(request, tmp_path_factory) -> zipfile.ZipFile:
    """The wheel, with empty files instead of the weights, because packing them takes long."""
    folder = tmp_path_factory.mktemp("wheel")
    if request.param == "real":
        root = ROOT
    else:
        root = folder / "tree"
        skipped = shutil.ignore_patterns("__pycache__", "*.safetensors")
        shutil.copytree(SOURCE, root / "src" / "unmask", ignore=skipped)
        for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
            shutil.copy(ROOT / name, root)
        for weights in SOURCE.rglob("*.safetensors"):
            (root / weights.relative_to(ROOT)).touch()
    (path,) = WheelBuilder(str(root)).build(directory=str(folder))
    assert Path(path).stat().st_size < 90e6
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    files = {
        f"unmask/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == files
    kinds = ("recipes/demo.yaml", "serve/static/", "py.typed", "shipped/__init__.py")
    assert all(any(kind in name for name in inside) for kind in kinds)


def test_the_wheel_declares_its_dependencies(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Version"] == unmask.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {"hub", "serve", "eval", "dev"} <= set(metadata.get_all("Provides-Extra"))
    core = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    names = {re.match(r"[\w-]+", line)[0] for line in core}
    assert names == {
        *("torch", "numpy", "safetensors", "tokenizers"),
        *("pyyaml", "rich", "jaxtyping"),
    }


def test_the_source_distribution_holds_all_files_to_build_and_test_it():
    # listed, not built: the weights take long to pack
    inside = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "Makefile", "mkdocs.yml"}
    assert needed <= inside
    assert {"src/unmask/recipes/demo.yaml", "tests/test_package.py", "docs/pages.py"} <= inside
    assert not any(re.match(r"\.venv|runs/|site/|dist/", name) for name in inside)


def test_the_second_wheel_holds_the_models_that_are_there():
    models = WheelBuilder(str(ROOT / "models"))
    inside = {file.distribution_path: file for file in models.recurse_included_files()}
    folders = {name.split("/")[1] for name in inside if name.count("/") > 1}
    assert "unmask_models/__init__.py" in inside
    assert folders <= set(shipped.OTHERS)
    assert all(f"unmask_models/{name}/model.safetensors" in inside for name in folders)
    assert sum(Path(file.path).stat().st_size for file in inside.values()) < 110e6
    assert models.metadata.version == unmask.__version__


def test_every_pip_line_names_an_extra_that_exists():
    places = [*SOURCE.rglob("*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in places)
    assert text.count("pip install 'unmask[") == 1, "the package is on no index: see imports.py"
    named = {name for group in re.findall(r"'\.\[([\w,]+)\]'", text) for name in group.split(",")}
    named |= set(re.findall(r"install_command\([\"'](\w+)[\"']\)", text))
    # optional libraries are imported by extra(module, purpose, group); the default group is "data"
    named |= set(re.findall(r"\bextra\([^()]*(?:\([^()]*\)[^()]*)*, \"(\w+)\"\)", text))
    assert {"eval", "harness", "log", "serve", "wandb"} <= named
    assert named - set(PROJECT["optional-dependencies"]) == set()


def test_every_direct_dependency_is_pinned():
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    wanted = [*PROJECT["dependencies"]]
    for extra, lines in PROJECT["optional-dependencies"].items():
        # lm-eval has many dependencies and is optional
        wanted += lines if extra != "harness" else []
    names = {re.match(r"[\w-]+", line)[0].lower().replace("_", "-") for line in wanted}
    assert names - pinned - {"unmask"} == set()


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == unmask.__version__
