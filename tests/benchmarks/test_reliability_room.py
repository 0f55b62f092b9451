"""Benchmarks of the room `reliability` at small sizes."""

import re

import pytest
from benchmark_rows import finished, parsed


@pytest.mark.slow
def test_kills():
    done = finished("reliability", "kills", "--kills", 2, "--steps", 14)
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"2 kills, [12] inside a save: 0 of 1\d files differ", lines[-1])
    names = {line.split()[-1].rpartition("/")[2] for line in lines if line.startswith("equal")}
    weights = {"model.safetensors", "ema.safetensors", "optimizer.safetensors"}
    assert weights | {"log.jsonl"} <= names


@pytest.mark.slow
def test_corruptions(beside, capsys):
    from benchmarks.reliability import corruptions

    assert corruptions.main(["--count", str(len(corruptions.KINDS))]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^all +refused with the reason +1$", printed, re.MULTILINE)
    assert "7 corruptions, 0 not handled" in printed


def test_saving(beside, capsys, tmp_path):
    from benchmarks.reliability import saving

    recipe = tmp_path / "small.yaml"
    recipe.write_text(
        "base: demo\nbackbone: {width: 32, depth: 1}\ndata: {tokenizer: {kind: bytes}}\n"
        "training: {steps: 4, batch: 4, save_every: 2, validation_rows: 4, device: cpu}\n"
    )
    assert saving.main(["--recipe", str(recipe)]) == 0
    without, with_them = parsed(capsys.readouterr().out)
    assert (without["checkpoints"], with_them["checkpoints"]) == (0, 2)
    assert with_them["megabytes_each"] > 0 == without["megabytes_each"]
    assert with_them["loop_stood_still"] >= without["loop_stood_still"] == 0
