"""A suite outside of the package: help, own options, table, JSON, mistakes, and from Python."""

import json
import re
from collections.abc import Iterator

import pytest
from plugins import plugged, plugin_file

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import SUITES
from unmask.registry import PLUGINS


@pytest.fixture
def suite() -> Iterator[str]:
    with plugged("word_overlap"):
        yield "word-overlap"


def helped(capsys, *argv: str) -> str:
    with pytest.raises(SystemExit):
        main(["evaluate", *argv, "--help"])
    return capsys.readouterr().out


def test_the_help_lists_the_suite_and_its_options(suite, capsys):
    assert re.search(r"^    word-overlap +Share of distinct runs", helped(capsys), re.MULTILINE)
    page = helped(capsys, suite)
    assert re.search(r"^measurement:\n  --texts N +texts to write \(16\)", page, re.MULTILINE)
    assert re.search(r"--words N,N +words of a run \(1,2\)", page)
    assert "unmask evaluate word-overlap stories --texts 64" in page
    assert "--draws" not in page and "--device" in page and "--json" in page


def test_the_table_has_its_columns_and_json_all_fields(suite, run, model, tmp_path, capsys):
    how = ["evaluate", suite, str(run), "--texts", "3", "--words", "1,2", "--seed", "1"]
    file = tmp_path / "rows.jsonl"
    assert main([*how, "--save", str(file)]) == 0
    out, err = capsys.readouterr()
    head, _, first, second = [line for line in out.splitlines() if line.strip()][:4]
    assert re.split(r"  +", head.strip()) == ["words of a run", "distinct"]
    assert err.splitlines()[0].startswith("runs of 1: ")
    assert main([*how, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert file.read_text().splitlines() == [json.dumps(row) for row in rows]
    assert [row["words"] for row in rows] == [1, 2]
    for row, line in zip(rows, (first, second), strict=True):
        assert list(row) == ["model", "words", "distinct", "runs"]
        assert f"{row['distinct']:.1%}" in line
    assert f"{rows[0]['runs']} words in all" in out
    words = [word for r in model.generate(n=3, seed=1) for word in r.text.split()]
    assert rows[0]["distinct"] == len(set(words)) / len(words)


def test_a_wrong_value_is_one_line(suite, run, model, capsys):
    for argv, message in [
        ("--texts 0", "texts must be 1 or more, not 0"),
        ("--words 1,0", "words must be 1 or more, not 0"),
        ("--draws 2", "unrecognized arguments: --draws 2"),
    ]:
        assert main(["evaluate", suite, str(run), *argv.split()]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    with pytest.raises(UnmaskError, match="texts must be 1 or more, not 0"):
        SUITES.build(suite).measure(model, texts=0)


def test_it_is_measured_from_python(suite, model):
    (row,) = SUITES.build(suite).measure(model, texts=2, words=[2])
    assert 0 < row.distinct <= 1 and row.words == 2


def test_the_command_imports_it(run, monkeypatch, capsys):
    monkeypatch.setenv(PLUGINS, "")
    with plugged():
        plugin = ["--plugin", str(plugin_file("word_overlap"))]
        assert main([*plugin, "evaluate", "word-overlap", str(run), "--texts", "1"]) == 0
    assert "distinct" in capsys.readouterr().out
    assert main(["evaluate", "word-overlap", str(run)]) == 2  # taken back
