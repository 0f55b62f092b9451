"""The command of a room, its rows and their tables."""

import subprocess
import sys

from benchmark_rows import BENCHMARKS, finished

from benchmarks import room
from benchmarks.limited import side_by_side
from benchmarks.rows import Report, markdown, read_rows

ROOMS = sorted(path.parent.name for path in BENCHMARKS.glob("*/__main__.py"))


def test_every_room_lists_its_scripts():
    for name in ROOMS:
        shown = finished(name, "--help").stdout
        for script in room.scripts(BENCHMARKS / name):
            assert f"  {script.stem} " in shown
    refused = finished("learning", "plain", code=2).stdout  # its functions belong to `curve`
    assert "NAME is one of" in refused and "  plain " not in refused


def test_stored_rows_are_printed_as_tables(capsys, monkeypatch):
    """`length_speed` has three files of rows; a table prints a row of its own for each way."""
    monkeypatch.setattr(sys, "argv", ["speed"])
    lines = ["length_speed --table length_speed_aarch64.jsonl"]
    assert room.main(str(BENCHMARKS / "speed" / "__main__.py"), lines) == 0
    out = capsys.readouterr().out
    assert out.startswith("\n# python benchmarks/speed length_speed --table length_speed_aarch64")
    assert "| autoregressive, KV cache | 1.48 | 3 | 5.7 |" in out


def test_a_script_whose_reader_stops_ends_without_a_traceback():
    command = [sys.executable, str(BENCHMARKS / "quality"), "--help"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    program.stdout.close()  # as head does
    assert (program.stderr.read(), program.wait()) == (b"", room.CUT_OFF)
    program.stderr.close()


def test_a_missing_file_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["learning", "per_step", "--table", "nothing.jsonl"])
    assert room.main(str(BENCHMARKS / "learning" / "__main__.py")) == 2
    error = capsys.readouterr().err
    assert error.startswith("learning per_step: error: ") and "nothing.jsonl" in error
    assert error.count("\n") == 1


def test_rows_are_shortened_appended_and_read_back(tmp_path, capsys):
    file = tmp_path / "new" / "rows.jsonl"
    Report(file).write({"row": "a", "value": 1.23456789})
    Report(file).write({"row": "b", "value": 2})
    with file.open("a") as cut:
        cut.write('{"row": "c", "va')
    assert read_rows(file) == [{"row": "a", "value": 1.2346}, {"row": "b", "value": 2}]


def test_a_table_of_rows():
    assert list(markdown(["a", "b"], [[1, "x"]])) == ["| a | b |", "|---|---:|", "| 1 | x |"]


def test_commands_run_some_at_a_time_until_the_time_is_up(tmp_path):
    """Two end by themselves, one is interrupted and the last one does not start."""
    sleep = "import sys, time; print('here', flush=True); time.sleep(float(sys.argv[1]))"
    waits = {"short": 0, "fails": "x", "long": 60, "never": 60}
    commands = {name: [sys.executable, "-c", sleep, str(each)] for name, each in waits.items()}
    log = lambda name: tmp_path / f"{name}.txt"  # noqa: E731
    found = list(side_by_side(commands, log, slots=1, seconds=10))
    ended = {name: code == 0 for name, code, _ in found}
    assert ended == {"short": True, "fails": False, "long": False}
    assert "here" in log("short").read_text() and not log("never").exists()
