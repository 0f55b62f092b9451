"""Some random patterns and schemas; `benchmarks/reliability/constraint_budget.py` compiles 5,000."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "reliability"


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield runpy.run_path(str(FOLDER / "constraint_budget.py"))


def test_a_wrong_text_is_found(script):
    machine = script["compiled"]({"regex": "ab*"})[0].machines[0][1]
    draw = script["random"].Random(0)
    assert script["wrong_texts"]("regex", "ab*", machine, draw) == []
    assert script["wrong_texts"]("regex", "a", machine, draw) != []


def test_random_constraints_are_right_or_refused_in_one_line(script):
    rows = [script["case"](number) for number in range(40)]
    assert [row for row in rows if row["outcome"].startswith("failed") or row["wrong"]] == []
    outcomes = [row["outcome"] for row in rows if row["kind"] == "ordinary"]
    assert outcomes.count("accepted") > 0.8 * len(outcomes) > 10
    assert {"refused", "over budget"} <= {row["outcome"] for row in rows}
