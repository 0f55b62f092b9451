"""The tutorials run from the first cell to the last, and what they were seen to print is kept with them.

A run prints a handful of samples, which prove nothing: shares are counted over many more. Their margins
come from ten seeds of the tutorial's model (mean, lowest): bound after 500 steps 1.07 (highest 1.11),
sentences within the rules 0.65 (0.46), gaps filled by the right name 0.94 (0.78), edits 0.97 (0.82),
bits that a breach adds to a sentence 10.3 (8.8).
"""

import ast
import re
import runpy
from itertools import product
from pathlib import Path

import nbformat
import pytest

import unmask

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


def lines(notebook: nbformat.NotebookNode, pattern: str) -> list[tuple[str, ...]]:
    """The parts of each printed line that is of a form."""
    found = (re.fullmatch(pattern, line) for line in printed(notebook).splitlines())
    return [match.groups() for match in found if match]


VERBS, WHEN = ("found", "lost", "painted", "sold"), ("on Monday", "on Friday", "in May", "in June")
WOMEN, MEN = {"Anna", "Lily", "Mary"}, {"Ben", "Sam", "Tom"}
KINDS = ("blue", "green", "old", "red", "small")
THINGS = ("ball", "boat", "coat", "drum", "house", "kite")
LANGUAGE = {
    f"{name} {verb} {whose} {kind} {thing} {when}."
    for whose, names in (("her", WOMEN), ("his", MEN))
    for name, verb, kind, thing, when in product(names, VERBS, KINDS, THINGS, WHEN)
}
SENTENCE = r"\w+ (?:found|lost|painted|sold) (?:her|his) \w+ \w+ (?:on|in) \w+\."


def check_train(notebook: nbformat.NotebookNode) -> None:
    """The bound falls to where ten seeds ended, and five sentences have their place in the language."""
    assert any("500/500" in html for html in shown(notebook, "text/html"))  # the bar
    bounds = {
        int(step): float(bound) for step, bound in lines(notebook, r"step (\d+): ([\d.]+) ± .*")
    }
    assert list(bounds) == [100, 200, 300, 400, 500] and bounds[500] < bounds[100] - 0.1
    assert bounds[500] < 1.2
    written = lines(notebook, rf"({SENTENCE}) +(in the corpus|new|against the rules)")
    assert len(written) == 5
    assert all((text in LANGUAGE) == (kind != "against the rules") for text, kind in written)
    assert lines(notebook, r"t = 1\.0 ( +░░░){8}")


def check_sample(notebook: nbformat.NotebookNode) -> None:
    """Text formed to the end, gaps filled with names, and constraints held."""
    assert lines(notebook, "runs/sentences is already trained: all 500 steps are done")
    (frame,) = shown(notebook, "text/html")
    assert len(re.findall(SENTENCE, frame)) == 4 and "frame 8" in frame
    hers, his = [ast.literal_eval(found) for (found,) in lines(notebook, r"(\[.*\])")]
    assert len(hers) == len(his) == 6 and {*hers, *his} <= WOMEN | MEN
    assert len(lines(notebook, r"(.*) lost (her|his) red ball on Monday\.")) == 3
    constrained = lines(notebook, r"((?:Anna|Tom) .* kite in \w+\.)")
    assert len(constrained) == 3 and not any("green" in text for (text,) in constrained)


def check_evaluate(notebook: nbformat.NotebookNode) -> None:
    """Bounds lie above the truth, within reach of it and of one another; nonsense costs more."""
    number = r"([\d.]+)"
    ((truth,),) = lines(notebook, rf"{number} bits a sentence")
    assert float(truth) == 11.49
    bounds = lines(
        notebook, rf" *\d+ draws +{number} ± {number} bits a sentence .*an upper bound.*"
    )
    exact = lines(
        notebook, rf"(?:left_to_right|right_to_left) +{number} ± 0\.00 bits a sentence, exact"
    )
    assert len(bounds) == len(exact) == 2
    assert float(bounds[1][1]) < float(bounds[0][1])  # more draws, a smaller error
    for bound, error in bounds:
        assert 11.49 - 4 * float(error) < float(bound) < 20
    for (likelihood,) in exact:
        assert 11 < float(likelihood) < 20
    right, *wrong = (float(bits) for (bits,) in lines(notebook, rf" *{number} bits  Tom lost .*"))
    assert len(wrong) == 3 and right + 4 < sum(wrong) / 3


CHECKS = {"train": check_train, "sample": check_sample, "evaluate": check_evaluate}


def test_the_tutorials_are_those_that_are_run():
    assert sorted(TUTORIALS.glob("*.ipynb")) == sorted(script["NOTEBOOKS"])


@pytest.mark.parametrize("path", script["NOTEBOOKS"], ids=lambda path: path.stem)
def test_a_tutorial_is_kept_with_what_it_showed(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert len(shown(notebook, "image/png")) == 1
    CHECKS[path.stem](notebook)
    assert path.stat().st_size < 100_000
    content = path.read_text(encoding="utf-8")
    assert not re.search(r"/(?:home|root|tmp|work|Users)/", content), "a path of some machine"
    for link in re.findall(r"\]\(([^)\s#]+)", content):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_every_tutorial_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    for path in script["NOTEBOOKS"]:
        notebook = script["executed"](path, tmp_path)
        CHECKS[path.stem](notebook)
        assert len(shown(notebook, "image/png")) == 1
    check_learned(unmask.load(tmp_path / "runs" / "sentences"))


def check_learned(model: unmask.Model) -> None:
    """Shares over many samples, each well below the lowest of ten seeds."""

    def share(results: list[unmask.Result], right: set[str]) -> float:
        return sum(str(result) in right for result in results) / len(results)

    def lost(whose: str, names: set[str]) -> set[str]:
        return {f"{name} lost {whose} red ball on Monday." for name in names}

    hers, his = lost("her", WOMEN), lost("his", MEN)
    assert share(model.generate(n=120, seed=1), LANGUAGE) > 0.3
    filled = [
        share(model.fill(f"[MASK] lost {whose} red ball on Monday.", n=60), right)
        for whose, right in (("her", hers), ("his", his))
    ]
    assert sum(filled) / 2 > 0.65  # a model that does not look has 0.5
    mistake = "Tom lost her red ball on Monday."
    assert share(model.edit(mistake, remask_uncertain=1, n=40), hers | his) > 0.6
