"""Benchmarks of the room `speed` at small sizes."""

import json
import sys

import pytest
from benchmark_rows import parsed, rows


@pytest.mark.slow
def test_gpu(here, bf16, tmp_path):
    """Every row at a small size, then the table of the rows."""
    file = tmp_path / "rows.jsonl"
    measured = {row["row"]: row for row in parsed(here("speed", "gpu", "--tiny", "--out", file))}
    assert measured.pop("machine")["matrix_tflops"] > 0
    for row in measured.values():
        fast = row.get("tokens_per_second") or 1 / row["seconds_per_sequence"]
        most = row.get("most_tokens_per_second") or 1 / row["least_seconds_per_sequence"]
        assert 0 < fast < most
    assert 1 <= measured["sample-1024-16"]["calls"] <= 8
    assert measured["likelihood"]["times_training"] > 0
    lines = here("speed", "gpu", "--table", file).splitlines()
    assert sum(line.startswith("|") for line in lines) == 2 + len(measured)


def test_operations(here):
    """The count by hand for the paper's network: 12 layers of 768, 1024 tokens,
    logits at half of them.
    """
    from benchmarks import operations

    layer = 2 * (3 + 1 + 4 + 4) * 768 * 768 + 2 * 2 * 1024 * 768
    head = 2 * 768 * 50_257
    setting = operations.Setting(1024, 50_257, 64)
    behind = 2 * (1 + 4 + 4) * 768 * 768  # the last attention: its output and the MLP
    assert operations.training(setting) == 3 * (12 * layer - behind / 2 + head / 2)
    call = 12 * layer - behind * 0.9
    assert operations.filling(setting, 10) == pytest.approx(1024 * (10 * call + head))


@pytest.mark.slow
def test_scaling(here, tmp_path):
    """A point of each kind, an exhausted budget, the tables and the picture."""
    file, picture = tmp_path / "points.jsonl", tmp_path / "scaling.png"
    chosen = ["train-length-1024", "train-size-medium", "sample-steps-8", "sample-batch-1"]
    measured = parsed(
        here("speed", "scaling", "--tiny", "--crew", 2, "--out", file, "--only", *chosen)
    )
    assert {row["row"] for row in measured} == {"machine", *chosen}
    assert all("error" not in row for row in measured)
    assert len(parsed(here("speed", "scaling", "--tiny", "--budget", 0))) == 1
    assert "| B = 1 |" in here("speed", "scaling", "--table", file)
    here("speed", "plot_scaling", file, "--picture", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_dense_logits(beside, monkeypatch, capsys):
    """The time of a small network, and the memory of one variant in its own process."""
    from benchmarks.speed import dense_logits

    peak = dense_logits.peak_mib("ours", 300, 0.1, 1)
    monkeypatch.setattr(dense_logits, "peak_mib", lambda *_: peak)
    monkeypatch.setattr(dense_logits.Run.__init__, "__defaults__", (2,))  # rows
    for name, value in {"LENGTH": 32, "WIDTH": 32, "DEPTH": 2}.items():
        monkeypatch.setattr(dense_logits, name, value)
    options = ["--steps", "1", "--vocabulary", "300", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["dense_logits.py", *options])
    dense_logits.main()
    measured = parsed(capsys.readouterr().out)
    assert {row["dense"] for row in measured} == {"authors", "fused"}
    assert all(row["speedup"] > 0 and row["ours_peak_mib"] > 0 for row in measured)


def test_naive_sampler(here):
    options = ["--timed", "2", "--length", "16", "--vocabulary", "100", "--batch", "1", "2"]
    measured = parsed(here("speed", "naive_sampler", *options))
    assert [(row["batch"], row["naive"]) for row in measured] == [
        (batch, naive) for batch in (1, 2) for naive in ("ddpm", "ddpm_cache")
    ]
    assert all(row["speedup"] > 0 for row in measured)


def test_precisions(beside, bf16, monkeypatch, capsys):
    from benchmarks.speed import precisions

    monkeypatch.setattr(precisions, "NETWORKS", [(16, 1, 2, 50, 16, 2)])
    monkeypatch.setattr(precisions, "native_precisions", lambda device: ("bf16", "fp32"))
    monkeypatch.setattr(sys, "argv", ["precisions.py", "--threads", "1", "--steps", "1"])
    precisions.main()
    (row,) = parsed(capsys.readouterr().out)
    assert row["width"] == 16 and min(row["fp32_ms"], row["bf16_ms"], row["ratio"]) > 0


def test_tokenizing(here, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat, and the dog lay on the rug.\n" * 2000)
    measured = parsed(here("speed", "tokenizing", text, "--separator", "line", "--repeats", 1))
    assert [row.pop("tokenizer") for row in measured] == ["bpe", "bytes", "characters"]
    ways = {"cold", "warm", "packed"}
    for row in measured:
        assert {way.partition("_")[0] for way in row} - {"library"} == ways
        assert all(rate > 0 for rate in row.values())
    assert "library_mb_a_second" in measured[0]


def test_imports():
    measured = rows("speed", "imports", "--repeats", "1")
    assert [row["way"] for row in measured] == ["import unmask", "unmask --help"]
    assert all("torch" not in row["slow"] for row in measured)


@pytest.mark.parametrize("measured, lost", [(1.0, ""), (0.76, ""), (0.7, "first: 0.70")])
def test_the_smoke_test_fails_a_quarter_below_a_floor(measured, lost, beside, monkeypatch, capsys):
    from benchmarks.speed import smoke

    ratios = [smoke.Ratio("first", 1.0, lambda: measured), smoke.Ratio("last", 2.0, lambda: 2.5)]
    monkeypatch.setattr(smoke, "RATIOS", ratios)
    assert smoke.main() == bool(lost)
    said = capsys.readouterr()
    assert [json.loads(line)["ratio"] for line in said.out.splitlines()] == ["first", "last"]
    assert lost in said.err and bool(said.err) == bool(lost)


def test_steps_and_texts_in_blocks(beside, monkeypatch, capsys):
    from benchmarks.speed import blocks

    shape = ["--width", "16", "--depth", "1", "--heads", "2", "--vocabulary", "20"]
    few = ["--length", "16", "--batch", "2", "--steps", "1"]
    monkeypatch.setattr(sys, "argv", ["blocks.py", *shape, *few])
    blocks.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["work"], row["block"]) for row in rows] == [
        *(("train", block) for block in (0, 4, 16)),
        *(("write", block) for block in (4, 16)),
    ]
    assert rows[0]["ratio"] == 1 and all(row.get("ms", 1) > 0 for row in rows)


def test_decoders_beside_transformers(beside, monkeypatch, capsys):
    from benchmarks.speed import decoders

    few = ["--batches", "1", "--length", "16", "--prompt", "8", "--new", "4"]
    monkeypatch.setattr(sys, "argv", ["decoders.py", *few])
    decoders.main()
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["work"] for row in rows] == ["forward", "prefill", "decode", "full forward"]
    assert all(row["unmask"] > 0 and row["reference"] > 0 for row in rows)
    assert all(row.get("equal", 1) == 1 and row.get("error", 0) <= 1e-4 for row in rows)
