"""Some random patterns and schemas; `benchmarks/reliability/constraint_budget.py` compiles 5,000."""

import random

from benchmarks.reliability.constraint_budget import case, compiled, wrong_texts


def test_a_wrong_text_is_found():
    machine = compiled({"regex": "ab*"})[0].machines[0][1]
    draw = random.Random(0)
    assert wrong_texts("regex", "ab*", machine, draw) == []
    assert wrong_texts("regex", "a", machine, draw) != []


def test_random_constraints_are_right_or_refused_in_one_line():
    rows = [case(number) for number in range(27)]
    assert [row for row in rows if row["outcome"].startswith("failed") or row["wrong"]] == []
    outcomes = [row["outcome"] for row in rows if row["kind"] == "ordinary"]
    assert outcomes.count("accepted") > 0.8 * len(outcomes) > 10
    assert {"refused", "over budget"} <= {row["outcome"] for row in rows}
