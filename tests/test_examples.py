"""Every script and notebook of examples/ runs at a small size, is short, and states its subject."""

import ast
import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

import unmask
from unmask.registry import Registry

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
TEXT = str(EXAMPLES / "moon.txt")
ARGUMENTS = {  # arguments of scripts; the others have a model as argument
    "train": [TEXT, "2"],
    "fine_tune": ["tiny", "2"],
    "stream_dataset": ["2"],
    "onnx_sampler": ["model.onnx", "hub/tokenizer.json", "Zip", "--length", "12"],
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A folder with a tiny model, in the package's layout and as an ONNX file."""
    from unmask.cli import main

    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNMASK_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        settings = {
            "data.train": TEXT,
            "data.length": 64,
            "data.tokenizer.size": 320,
            "backbone.width": 32,
            "backbone.depth": 1,
            "backbone.heads": 2,
            "training.steps": 2,
            "training.batch": 4,
            "training.sample_every": 0,
        }
        unmask.train("demo", run="runs/tiny", overrides=settings, say=lambda line: None)
        assert main(["export", "runs/tiny", "tiny"]) == 0
        assert main(["export", "tiny", "hub", "--pretrained", "--onnx", "model.onnx"]) == 0
    return folder


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_runs(script, tiny, tmp_path, monkeypatch, capsys):
    for registry in Registry.registries:
        monkeypatch.setattr(registry, "_entries", {name: registry[name] for name in registry})
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", [str(script), *ARGUMENTS.get(script.stem, ["tiny"])])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_is_short_and_states_its_subject(script):
    text = script.read_text(encoding="utf-8")
    assert f"python examples/{script.name}" in (ast.get_docstring(ast.parse(text)) or "")
    assert len(text.splitlines()) < (70 if script.stem == "onnx_sampler" else 40)
    assert f"({script.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_with_few_steps(notebook, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    book, names = json.loads(notebook.read_text(encoding="utf-8")), {}
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells):
        code = re.sub(r'("training.steps": )\d+', r"\g<1>2", "".join(cell["source"]))
        exec(compile(code, f"{notebook.name}, cell {number}", "exec"), names)
        printed = "".join("".join(output["text"]) for output in cell["outputs"])
        # the number of lines that the reader of the notebook sees
        assert len(capsys.readouterr().out.splitlines()) == len(printed.splitlines())
    assert f"({notebook.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
