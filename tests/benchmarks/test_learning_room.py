"""Benchmarks of the room `learning` at small sizes."""

import json
import sys
from collections import Counter

import pytest
import torch
from benchmark_rows import finished, parsed

import unmask


@pytest.mark.slow
def test_curve(here, bf16, tmp_path):
    """Both forms of the model have the same steps up to rounding."""
    data, picture = tmp_path / "data", tmp_path / "curves.png"
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(150)), "utf-8")
    corpus = ["--train", text, "--valid", text, "--vocabulary", 300, "--length", 16]
    here("learning", "curve", "--prepare", data, *corpus)
    small = ["--data", data, "--shape", 16, 2, 2, "--batch", 4, "--draws", 1, "--steps", 51]
    small += ["--spread", 0.1]  # so that every part of the network has an effect from the start
    start = tmp_path / "start.safetensors"
    here("learning", "curve", *small, "--only", "on", "--steps", 5, "--save", start)
    for name, options in runs_of_the_curve(2).items():
        out = ["--start", start, "--out", tmp_path / f"{name}.jsonl"]
        assert len(parsed(here("learning", "curve", *small, *options, *out))) >= 50
    (verdict,) = parsed(here("learning", "curve", "--compare", tmp_path))
    assert verdict["largest_relative_difference_fp32"] < 1e-5
    assert verdict["within_rounding"] and verdict["seeds"] == 2
    assert abs(verdict["difference"]) < 0.01
    here("learning", "plot_curve", tmp_path, "--picture", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_own_text(here, tmp_path):
    text, file = tmp_path / "text.txt", tmp_path / "rows.jsonl"
    text.write_text("\n".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(400)), "utf-8")
    small = ["--characters", 4000, "--starts", "", "--held-out", 2000, "--steps", 2, "--draws", 2]
    options = ["--text", text, "--name", "sums", *small, "--runs", tmp_path / "runs", "--out", file]
    (row,) = parsed(here("learning", "own_text", *options))
    assert row["row"] == "sums 4000 auto" and row["steps"] == 2 and row["after"] > 0
    here("learning", "own_text", *options)  # a stored row is not measured again
    assert len(file.read_text("utf-8").splitlines()) == 1


def test_learning(here, tmp_path):
    """Folded and unfolded blocks learn the same in fp32, and the table pairs runs of one seed."""
    data, file, text = tmp_path / "data", tmp_path / "runs.jsonl", tmp_path / "text.txt"
    text.write_text(
        "\n<|endoftext|>\n".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(300)), "utf-8"
    )
    corpus = ["--text", text, "--vocabulary", 300, "--length", 16]
    here("learning", "per_step", "--prepare", data, *corpus)
    small = ["--data", data, "--shapes", "tiny", "--batch", 4, "--rows", 4, "--draws", 1]
    small += ["--steps", 6, "--at", 4, 6, "--seeds", 2, "--out", file]
    best = "muon-linear-uniform:training.precision=fp32,training.warmup=2"
    own = "self-conditioned:training.precision=fp32,training.warmup=2"
    settings = ["--settings", "fp32", "unfolded-fp32", best, own]
    measured = parsed(here("learning", "per_step", *small, *settings))
    bounds = {(row["setting"], row["seed"]): row["bounds"] for row in measured}
    assert len(bounds) == 8 and all(bound.keys() == {"4", "6"} for bound in bounds.values())
    for seed in (0, 1):
        assert bounds["fp32", seed]["6"] == pytest.approx(
            bounds["unfolded-fp32", seed]["6"], abs=1e-4
        )
        assert bounds[best, seed]["6"] < bounds["fp32", seed]["6"]
    assert all(0 < row["seconds_at"]["4"] < row["seconds"] for row in measured)
    lines = here("learning", "per_step", "--table", file, "--against", "fp32").splitlines()
    assert len(lines) == 2 + 4 and "| 0.0000 ± 0.0000 |" in lines[3]
    (late, *_) = parsed(here("learning", "per_step", *small, *settings, "--seconds", 0))
    assert late["error"] == "no time was left"


def runs_of_the_curve(seeds: int) -> dict[str, list[str]]:
    from benchmarks.learning.curve import runs

    return runs(seeds)


@pytest.mark.filterwarnings(
    "ignore:constrained_layout"
)  # the values of two steps are far above the picture
def test_methods(beside, monkeypatch, capsys, tmp_path):
    """The recipes on a page of text, with networks of one layer."""
    from benchmarks.learning import methods

    text, picture, resolve = tmp_path / "text.txt", tmp_path / "methods.png", methods.resolve
    text.write_text("\n".join(f"{n} and {n + 1} make {2 * n + 1}." for n in range(400)), "utf-8")
    small = {"data.train": text, "data.separator": "line", "data.cache": tmp_path / "cache"}
    small |= {"data.length": 16}
    small |= {"backbone.width": 16, "backbone.depth": 1, "backbone.heads": 2, "training.batch": 4}
    own = [(name, str(value)) for name, value in small.items()]
    monkeypatch.setattr(methods, "resolve", lambda tree, given: resolve(tree, [*given, *own]))
    options = ["--steps", "2", "--draws", "1", "--runs", tmp_path, "--picture", picture]
    monkeypatch.setattr(sys, "argv", ["methods.py", *map(str, options)])
    methods.main()
    measured = parsed(capsys.readouterr().out)
    assert [row["method"] for row in measured] == ["MDLM", "SEDD", "D3PM", "autoregressive"]
    assert all(0 < row["bound"] < 20 for row in measured)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "rows", [["mdlm", "ssd-lm", "bert-mouth"], pytest.param([], marks=pytest.mark.slow)]
)
def test_baselines_table(here, tmp_path, rows):
    """Rows are tuned, trained, measured, timed and sampled once;
    a judge scores their texts later.
    """
    from tiny_judge import save_judge

    from benchmarks.learning import baselines as baselines_table

    pytest.importorskip("unmask.extensions.vectors")
    rows = rows or list(baselines_table.ROWS)
    options = ["--tiny", "--out", tmp_path, "--only", *rows]
    found = parsed(here("learning", "baselines", *options))
    for name in rows:
        own = [row for row in found if row["row"] == name]
        count = Counter(row["table"] for row in own if row["table"] != "texts")
        figures = 4 if name == "bert-mouth" else 2
        assert count == {"tuning": 2, "finalist": 2, 1: figures, "speed": 3}
    certificates = {row["row"]: row["certificate"] for row in found if row["table"] == 1}
    assert certificates["mdlm"] == "upper" and certificates["ssd-lm"] == "none"
    assert parsed(here("learning", "baselines", *options)) == []
    # as after an interruption between training and measurement, in the middle of a line
    file, lost = tmp_path / "results.jsonl", {"table": 1, "row": "mdlm", "seed": 1}
    lines = file.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not lost.items() <= json.loads(line).items()]
    file.write_text("".join(kept) + '{"table": 1, "row": "mdlm", "se\n', "utf-8")
    (again,) = parsed(here("learning", "baselines", *options))
    assert again in found
    picture = tmp_path / "frontier.png"
    judge = ["--judge", save_judge(tmp_path / "judge"), "--table", "--plot", picture]
    shown = here("learning", "baselines", "--out", tmp_path, *judge, "--samples", 1)
    texts = [row for row in found if row["table"] == "texts"]
    assert len(parsed(shown)) == len(texts) + 1  # and real text
    for line in (
        "| MDLM | upper | ≤ ",
        "| BERT-Mouth | pseudo | ",
        "Table 5 in small",
        "## SSD-LM",
    ):
        assert line in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_sizes(here, tmp_path):
    """Two sizes of both methods and two schedules, further seeds at the ends,
    then tables and picture.
    """
    from tiny_judge import save_judge

    rows = [f"{method}-{size}" for size in ("40M", "1M") for method in ("mdlm", "ar")]
    schedules = ["schedule-loglinear", "schedule-cosine"]
    options = ["--tiny", "--out", tmp_path, "--only", *rows, *schedules]
    found = parsed(here("learning", "sizes", *options))
    seeds = [(row["row"], row["seed"]) for row in found if row["table"] == 1]
    assert sorted(seeds) == sorted(
        [*((r, s) for r in rows for s in (1, 2)), *((s, 1) for s in schedules)]
    )
    certificates = {row["row"]: row["certificate"] for row in found if row["table"] == 1}
    assert certificates["ar-1M"] == "exact" and certificates["mdlm-1M"] == "upper"
    assert len({row["tokens"] for row in found if row["table"] == 1}) == 1
    parameters = {row["row"]: row["non_embedding"] for row in found if row["table"] == 1}
    assert parameters["mdlm-40M"] > 2 * parameters["mdlm-1M"]
    texts = [(row["row"], row["sampler"]) for row in found if row["table"] == "texts"]
    assert texts.count(("mdlm-40M", "predictor_corrector")) == 1 and len(texts) == 2 * (5 + 1) + 2
    assert parsed(here("learning", "sizes", *options)) == []
    picture, judge = tmp_path / "sizes.png", save_judge(tmp_path / "judge")
    shown = here(
        "learning", "sizes", "--out", tmp_path, "--judge", judge, "--table", "--plot", picture
    )
    lines = [line for line in shown.splitlines() if line.startswith("| ")]
    first = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    assert first[:3] == ["size", "1M", "40M"]
    assert {"loglinear", "geometric", "confidence", "left_to_right"} <= set(first)
    assert "MDLM − AR at 40M minus that at 1M: " in shown and "Real text: " in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_rounding(here, model, tmp_path):
    """A row for each form of the weights, on the same noise, and the table of the rows."""
    text, rows = tmp_path / "text.txt", tmp_path / "rounding.jsonl"
    text.write_text("Once upon a time there was a small cat. " * 60)
    options = ["--data", text, "--calibration", text, "--rows", 2, "--length", 16, "--draws", 2]
    model.save(tmp_path / "model")
    printed = here("learning", "rounding", tmp_path / "model", *options, "--out", rows)
    found = {row["row"]: row for row in parsed(printed)}
    assert list(found) == ["fp32", "int8", "int4", "int4, calibrated"]
    assert found["int4"]["bytes"] < found["int8"]["bytes"]
    assert abs(found["int8"]["loss"]) < 0.01 * found["fp32"]["bits_per_byte"]
    shown = here("learning", "rounding", "--table", rows)
    assert shown.count("| model | int") == 3


def test_story_writer(beside):
    """Each next token is the likeliest one,
    also after rows whose story has ended have left the batch.
    """
    import unmask
    from benchmarks.learning.shipped_models import StoryWriter

    model = unmask.load("stories-ar", device="cpu")
    method, tokenizer = model.method, model.tokenizer
    first = iter(
        [torch.tensor([tokenizer.encode(word)[0] for word in ("Once", "One", "Tom", "A")])]
    )
    writer = StoryWriter(model, 4, 256, greedy=True)
    writer._chosen = lambda log_next, uniforms: next(first, log_next.argmax(-1))
    stories = writer.batch()
    assert len({len(story) for story in stories}) > 1
    for story in stories:
        x = torch.tensor([[tokenizer.vocabulary.bos_id, *story, tokenizer.vocabulary.eos_id]])
        with torch.inference_mode():
            log_next = method.log_next(method.backbone.features(method.inputs(x))[0])[2:]
        chosen = log_next.gather(1, x[0, 2:, None])[:, 0]
        torch.testing.assert_close(chosen, log_next.amax(1), atol=1e-3, rtol=0)


@pytest.mark.slow
def test_shipped_models(tmp_path):
    """All stages with tiny networks, then a second command that repeats none, then a mean."""
    out = tmp_path / "out"
    options = ["--tiny", "--steps", 30, "--wiki", 0.3, "--runs", tmp_path / "runs", "--out", out]
    first, second = (
        finished("learning", "shipped_models", *options, seconds=600).stdout for _ in range(2)
    )
    assert first.count(": starts") == 5 and "starts" not in second
    for name in ("wiki", "stories", "stories-ar"):
        model = unmask.load(out / name, device="cpu")
        assert (
            model.tokenizer.fingerprint == unmask.load("wiki", device="cpu").tokenizer.fingerprint
        )
    pair, mean = [out / "wiki", out / "stories"], out / "mean"
    finished("learning", "shipped_models", "--average", *pair, "--to", mean)
    a, b, middle = (
        unmask.load(name, device="cpu").method.backbone.embedding.weight for name in (*pair, mean)
    )
    torch.testing.assert_close(middle, (a + b) / 2, atol=0.02, rtol=0)


def test_files_in_parts_are_joined_again(tmp_path, monkeypatch):
    from benchmarks.learning import smol

    monkeypatch.setattr(smol, "PART", 7)
    model, text = tmp_path / "model", tmp_path / "a.train.txt"
    (model / "tokenizer").mkdir(parents=True)
    contents = {
        model / "weights": bytes(range(30)),
        model / "tokenizer" / "t.json": b"",
        text: b"x" * 14,
    }
    for file, content in contents.items():
        file.write_bytes(content)
    smol.pack([model, text], tmp_path / "parts")
    assert max(part.stat().st_size for part in (tmp_path / "parts").iterdir()) == 7
    first, second = tmp_path / "first", tmp_path / "second"
    for number, part in enumerate(sorted((tmp_path / "parts").iterdir())):
        folder = (first, second)[number % 2]
        folder.mkdir(exist_ok=True)
        part.rename(folder / part.name)
    smol.join(first, tmp_path / "to")
    smol.join(second, tmp_path / "to")
    for file, content in contents.items():
        assert (tmp_path / "to" / file.relative_to(tmp_path)).read_bytes() == content
