"""unmask harness passes all arguments to lm_eval, and is a one-line error without it."""

import sys
from types import SimpleNamespace

import pytest

from unmask.cli import main
from unmask.extensions.lm_eval.harness import with_model
from unmask.imports import install_command


def test_without_lm_eval_it_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert main(["harness", "--tasks", "x"]) == 2
    error = capsys.readouterr().err
    assert error == f"unmask: error: unmask harness needs lm_eval: {install_command('harness')}\n"


def test_all_arguments_are_passed_to_lm_eval(monkeypatch):
    seen = []
    command = SimpleNamespace(cli_evaluate=lambda: seen.append(list(sys.argv)))
    monkeypatch.setitem(sys.modules, "lm_eval.__main__", command)
    monkeypatch.setitem(sys.modules, "unmask.extensions.lm_eval.adapter", SimpleNamespace())
    monkeypatch.setattr(sys, "argv", ["unmask"])
    given = ["--model_args", "path=x,draws=3", "--tasks", "a", "b", "-b", "4", "--limit=3"]
    assert main(["harness", *given]) == 0
    assert seen == [["lm_eval", *given, "--model", "unmask"]]
    assert sys.argv == ["unmask"]


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (["run", "--tasks", "a"], True),
        (["--tasks", "a"], True),
        (["--model", "hf", "--tasks", "a"], False),
        (["-M", "hf", "--tasks", "a"], False),
        (["--model=unmask", "--tasks", "a"], False),
        (["--config", "c.yaml"], False),
        (["ls", "tasks"], False),
    ],
)
def test_the_default_model_is_that_of_the_package(arguments, added):
    assert with_model(arguments) == arguments + (["--model", "unmask"] if added else [])


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_needs_no_lm_eval(arguments, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(SystemExit) as stop:
        main(["harness", *arguments])
    assert not stop.value.code
    assert "--model_args path=runs/demo" in capsys.readouterr().out
