"""The command `unmask evaluate infilling`: its table, its text and its one-line errors."""

import json

import pytest

from unmask.cli import main


def evaluate(suite: str, *argv: str) -> None:
    assert main(["evaluate", suite, *argv]) == 0


def test_the_suite_prints_a_table(run, judge_folder, reader, capsys):
    options = [
        "--judge",
        str(judge_folder),
        "--baseline",
        str(reader),
        "--samples",
        "2",
        "--gap",
        "2",
    ]
    evaluate("infilling", str(run), *options, "--steps", "1")
    table = capsys.readouterr().out
    for told in ("both sides", "left side", "judge's PPL, gap", "2 gaps;"):
        assert told in table
    assert "not GPT-2-large: perplexity cannot be compared" in table
    real = next(line for line in table.splitlines() if "real text" in line)
    assert "1.0000 ± ?" in real  # tokens right, of two gaps: all of them
    few = ["--samples", "2", "--gap", "2", "--samplers", "left_to_right"]
    evaluate("infilling", str(run), *few)
    assert "--steps" not in capsys.readouterr().err
    evaluate("infilling", str(run), *few, "--steps", "1")
    assert "--steps has no effect: none of the samplers has steps\n" in capsys.readouterr().err
    evaluate("infilling", str(run), "--samples", "2", "--gap", "2", "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["sampler"] for line in lines] == ["data", "ancestral", "left_to_right"]
    assert lines[0]["exact"] == 1 and lines[0]["judge"] is None
    assert lines[0]["exact_error"] is None and lines[0]["exact_low"] < 1
    assert [line["steps"] for line in lines] == [None, 2, None]  # as many as the gap has tokens


def test_the_suite_takes_a_text(run, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("The king sat on the log.\nThe king sat on the mat.\n")
    evaluate("infilling", str(run), "--data", str(text), "--samples", "2", "--json", "--gap", "2")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["sampler"] for line in lines] == ["data", "ancestral", "left_to_right"]
    assert {line["n"] for line in lines} == {2}
    assert main(["evaluate", "infilling", str(run), "--data", "gone.txt"]) == 2
    assert "--data" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--judge", "/no/judge"], "there is no such folder or file"),
        (["--judge", "RUN"], "is a run: give a causal model"),
        (["--judge-prefix", "a"], "needs a --judge"),
        (["--top-k", "3"], "unrecognized arguments: --top-k 3"),
    ],
)
def test_a_mistake_is_one_line(run, capsys, argv, message):
    argv = [str(run) if word == "RUN" else word for word in argv]
    assert main(["evaluate", "infilling", str(run), *argv]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_model_of_pairs_is_refused_before_a_judge_is_fetched(pair_runs, monkeypatch, capsys):
    monkeypatch.setattr(
        "unmask.evaluation.judges.load_judge.load_judge", lambda *args, **options: pytest.fail()
    )
    assert main(["evaluate", "infilling", str(pair_runs["mdlm"]), "--judge", "no/judge"]) == 2
    assert "a model of pairs writes targets for sources" in capsys.readouterr().err
