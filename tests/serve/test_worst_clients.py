"""A small part of benchmarks/reliability/worst_clients.py: attackers beside an ordinary client."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from random_models import random_model

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reliability" / "worst_clients.py"


@pytest.mark.slow
def test_the_load_has_a_row_for_each_part(tmp_path):
    random_model().save(tmp_path / "words")
    out = tmp_path / "rows.jsonl"
    options = ["--seconds", "2", "--clients", "2", "--ordinary", "1", "--timeout", "4"]
    options += ["--model", str(tmp_path / "words"), "--out", str(out)]
    subprocess.run([sys.executable, str(SCRIPT), *options], check=True, timeout=300)
    rows = {row["row"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert list(rows) == [
        *("patterns", "ordinary alone", "ordinary beside attackers", "attackers", "recovery"),
        "SIGTERM",
    ]
    assert "200" in [status for status, _ in rows["patterns"]["alone"].values()]
    assert rows["ordinary alone"]["answered"] > 0 and rows["ordinary alone"]["peak_mib"] > 50
    assert "no response" not in rows["recovery"]["statuses"]
    assert rows["recovery"]["statuses"]["200"] == 1
    assert rows["SIGTERM"]["exit_code"] in (0, 1)
