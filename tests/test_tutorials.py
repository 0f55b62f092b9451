"""The tutorials run from the first cell to the last, and what they were seen to print is kept with them."""

import re
import runpy
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
script = runpy.run_path(str(TUTORIALS / "execute.py"))


def shown(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
    """Whatever cells showed of one kind."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output["data"][kind] for output in outputs if kind in output.get("data", {})]


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs)


def test_the_tutorials_are_those_that_are_run():
    assert sorted(TUTORIALS.glob("*.ipynb")) == sorted(script["NOTEBOOKS"])


@pytest.mark.parametrize("path", script["NOTEBOOKS"], ids=lambda path: path.stem)
def test_a_tutorial_is_kept_with_what_it_showed(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert len(shown(notebook, "image/png")) == 1
    assert path.stat().st_size < 100_000
    content = path.read_text(encoding="utf-8")
    assert not re.search(r"/(?:home|root|tmp|work|Users)/", content), "a path of some machine"
    for link in re.findall(r"\]\(([^)\s#]+)", content):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def shortened(path: Path, folder: Path) -> Path:
    """A copy that trains for a fifth of the steps."""
    content = path.read_text(encoding="utf-8")
    steps = r"\"training.steps\": \"500\""
    assert steps in content
    copy = folder / path.name
    copy.write_text(content.replace(steps, steps.replace("500", "100")), encoding="utf-8")
    return copy


def test_every_tutorial_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    train, sample, evaluate = (
        script["executed"](shortened(notebook, tmp_path), tmp_path)
        for notebook in script["NOTEBOOKS"]
    )
    assert any("100/100" in html for html in shown(train, "text/html"))  # the bar
    assert "against the rules" in printed(train) or "in the corpus" in printed(train)
    assert any(html.count("on ") + html.count("in ") >= 4 for html in shown(sample, "text/html"))
    assert "already trained" in printed(sample)
    assert "an upper bound" in printed(evaluate)
    assert "left_to_right" in printed(evaluate)
    assert all(len(shown(notebook, "image/png")) == 1 for notebook in (train, sample, evaluate))
