"""The benchmarks run, in small; what they measure in full stands in benchmarks/README.md."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def rows(script: str, *options: str) -> list[dict]:
    command = [sys.executable, str(BENCHMARKS / script), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_dense_logits():
    measured = rows("dense_logits.py", "--steps", "1", "--vocabulary", "300")
    assert {row["dense"] for row in measured} == {"authors", "fused"}
    assert all(row["speedup"] > 0 and row["ours_peak_mib"] > 0 for row in measured)


def test_methods(tmp_path):
    picture = tmp_path / "methods.png"
    measured = rows(
        "methods.py",
        "--steps",
        "2",
        "--draws",
        "1",
        "--runs",
        str(tmp_path),
        "--picture",
        str(picture),
    )
    assert [row["method"] for row in measured] == ["MDLM", "SEDD", "D3PM", "autoregressive"]
    assert all(0 < row["bound"] < 20 for row in measured)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_toy_samplers():
    options = [
        "--rows",
        "400",
        "--steps",
        "1",
        "8",
        "--samplers",
        "ancestral",
        "first_hitting",
        "remask",
    ]
    measured = rows("toy_samplers.py", *options)
    distances: dict[str, list[float]] = {}
    for row in measured:
        distances.setdefault(row["sampler"], []).append(row["distance"])
    perfect, exact = distances.pop("perfect draws"), distances.pop("first_hitting")
    assert abs(exact[0] - perfect[0]) < 0.06
    assert len(distances) == 6  # ancestral, and remask in its manners
    assert all(one > eight + 0.1 and eight > perfect[0] for one, eight in distances.values())
