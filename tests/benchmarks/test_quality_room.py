"""Benchmarks of the room `quality` at small sizes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmark_rows import BENCHMARKS, parsed


def test_style_transfer(here, tmp_path):
    """Reviews become sentences of three disjoint parts; the table names the control."""
    for part, mood in {"train_pos": "good", "train_neg": "bad", "test_pos": "fine"}.items():
        review = f"Film {{}} was a {mood} film for me. It is {mood}.\n"  # one sentence is too short
        (tmp_path / f"{part}.txt").write_text("".join(map(review.format, range(40))))
    here("quality", "style_transfer", "--prepare", tmp_path / "data", "--text", tmp_path)
    parts = {
        file.stem: parsed(file.read_text()) for file in sorted((tmp_path / "data").glob("*.jsonl"))
    }
    assert {name: len(records) for name, records in parts.items()} == {
        "judge": 40,
        "test": 40,
        "writer": 40,
    }
    texts = [{record["text"] for record in records} for records in parts.values()]
    assert not set.intersection(*texts) and not texts[0] & texts[2]
    assert {record["label"] for record in parts["writer"]} == {"positive", "negative"}
    edit = {"row": "edit", "choice": "random", "share": 0.3}
    edit |= {"accuracy": 0.5, "accuracy_low": 0.3, "accuracy_high": 0.7}
    edit |= {"cosine": 0.9, "cosine_low": 0.8, "cosine_high": 1.0}
    file, picture = tmp_path / "rows.jsonl", tmp_path / "style.png"
    file.write_text("".join(json.dumps({**edit, "weight": w}) + "\n" for w in (0.0, 1.0, 2.0)))
    lines = here("quality", "style_transfer", "--table", file, "--plot", picture).splitlines()
    assert len(lines) == 2 + 3 and "none: control" in lines[2] and "50 [30, 70]" in lines[3]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_toy_samplers(here):
    names = ["ancestral", "first_hitting", "remask"]
    options = ["--rows", 400, "--steps", 1, 8, "--samplers", *names]
    measured = parsed(here("quality", "toy_samplers", *options))
    distances: dict[str, list[float]] = {}
    for row in measured:
        distances.setdefault(row["sampler"], []).append(row["distance"])
    perfect, exact = distances.pop("perfect draws"), distances.pop("first_hitting")
    assert abs(exact[0] - perfect[0]) < 0.06
    assert len(distances) == 6  # ancestral, and remask with its settings
    assert all(one > eight + 0.1 and eight > perfect[0] for one, eight in distances.values())


def test_quality_runs_the_remaining_jobs(beside, tmp_path, capsys):
    """A job waits for the jobs that it needs. Finished jobs are not repeated, failed jobs are."""
    from benchmarks.quality.jobs import Job, work

    def job(name: str, script: str, *after: str) -> Job:
        return Job(name, ["sh", "-c", f"echo {name} >> {tmp_path / 'order'}; {script}"], after)

    jobs = [
        job("second", "echo 2", "first"),
        job("first", "echo 1"),
        job("broken", "echo no >&2; exit 3"),
        job("never", "echo 4", "broken"),
    ]
    for attempts in (["first", "second", "broken"], ["broken"]):
        (tmp_path / "order").unlink(missing_ok=True)
        assert work(jobs, 1, tmp_path) == 2  # the broken one, and the one that waits for it
        assert (tmp_path / "order").read_text().split() == attempts
        assert [row["job"] for row in parsed(capsys.readouterr().out)] == attempts
    assert (tmp_path / "second.json").read_text() == "2\n"
    assert not (tmp_path / "broken.json").exists()
    assert (tmp_path / "broken.log").read_text().count("no\n") == 2
    third = job("third", "echo 3", "second")  # another call has finished `second`
    assert work([third], 1, tmp_path) == 0


def test_the_jobs_on_the_pages_of_quality_exist(beside, capsys, monkeypatch):
    """Every `--only` on the pages names existing jobs, jobs need existing jobs,
    and a wrong name is an error.
    """
    from benchmarks.quality import jobs as quality

    jobs = {job.name: job for job in quality.Plan(Path("data"), Path("runs")).jobs()}
    assert all(jobs.keys() >= set(job.after) for job in jobs.values())
    pages = [page.read_text("utf-8") for page in sorted((BENCHMARKS / "quality").glob("*.md"))]
    asked = re.findall(r"jobs DATA --only ([^`]+)", "".join(pages).replace("\\\n", " "))
    assert len(asked) > 3
    for names in asked:  # expanded by a shell
        command = ["bash", "-c", f"echo {' '.join(names.split())}"]
        assert jobs.keys() >= set(subprocess.check_output(command, text=True).split())
    monkeypatch.setattr(sys, "argv", ["jobs.py", "data", "--only", "ar", "typo"])
    with pytest.raises(SystemExit):
        quality.main()
    assert "no job typo: --list prints all" in capsys.readouterr().err


def test_failure_modes(here, run, tmp_path):
    """Names are known within one story and unknown in the next.
    A token that is written alone has gain 0.
    """
    names = [f"{first}{second}m" for first in "ABCDEFGH" for second in "aeiou"]
    story = "and {0} " * 5  # 40 tokens of one byte
    stories, file = tmp_path / "stories.txt", tmp_path / "rows.jsonl"
    stories.write_text("\n<|endoftext|>\n".join(map(story.format, names)))
    options = ["--tiny", "--models", run, run, "--real", stories, "--out", file]
    found = {row["row"]: row for row in parsed(here("quality", "failure_modes", *options))}
    assert {row["mode"] for row in found.values()} == {
        *("repetition", "context", "early", "dependence")
    }
    assert found["repetition/real stories"]["repetition"] > 0
    one, several = (found[f"context/{name}"] for name in ("one real story", "several real stories"))
    assert one["known"][-1][0] == 1 and several["known"][-1][0] < 1
    alone, together = (
        found[f"dependence/{name}, temperature 1"]
        for name in ("entropy_bound:gamma=0", "entropy_bound:gamma=1000")
    )
    assert alone["together"] == 1 and alone["gain"] == 0
    assert together["calls"] == 1 and together["together"] > 8
    assert parsed(here("quality", "failure_modes", *options)) == []
    picture = tmp_path / "failure.png"
    shown = here("quality", "failure_modes", "--table", file, "--plot", picture)
    assert sum(line.startswith("|") for line in shown.splitlines()) == 4 * 2 + len(found)
    assert picture.read_bytes().startswith(b"\x89PNG")
