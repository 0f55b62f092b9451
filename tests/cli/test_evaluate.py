"""unmask evaluate with a real model: estimators, merged parts, suites and mistakes."""

import gzip
import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import unmask
from unmask.cli import main
from unmask.config.run_config import load_recipe, resolve
from unmask.evaluation.suites.suite import SUITES

TEXT = "\n".join(f"Line {i} of a text about {'masks' if i % 3 else 'noise'}." for i in range(150))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tiny model in `run` and a text of several blocks of rows."""
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "text.txt").write_text(TEXT)
    (folder / "byte.txt").write_text("x")
    (folder / "empty.txt").write_text("")
    (folder / "blank.txt").write_text(" \n\n ")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    tiny = {
        "data.train": str(folder / "text.txt"), "data.valid": str(folder / "text.txt"),
        "data.cache": str(folder / "cache"),
        "data.length": "16", "data.tokenizer.kind": "bytes", "backbone.width": "16",
        "backbone.depth": "1", "backbone.heads": "2", "training.steps": "2", "training.batch": "4",
        "training.warmup": "1", "training.sample_every": "0", "training.validation_rows": "2",
    }  # fmt: skip
    unmask.train(
        resolve(load_recipe("demo"), list(tiny.items())), folder / "run", say=lambda _: None
    )
    return folder


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def measured(capsys, *options: str) -> dict[str, Any]:
    """The parsed output of `evaluate --json`."""
    assert main(["evaluate", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def shown(capsys, *options: str) -> str:
    assert main(["evaluate", *options]) == 0
    return " ".join(capsys.readouterr().out.split())


def failure(capsys, *options: str) -> str:
    """The one line of a mistake."""
    capsys.readouterr()
    assert main(["evaluate", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("unmask: error: ").strip()


def test_merged_parts_equal_the_whole(capsys, tmp_path):
    text = ("run", "--data", "text.txt", "--draws", "2", "--batch", "50")
    whole = measured(capsys, *text)
    for i in range(3):
        assert main(["evaluate", *text, "--shard", f"{i}/3", "--save", f"{tmp_path}/{i}.json"]) == 0
        assert f" of {whole['sums']['conditions']['rows']} " in capsys.readouterr().out
    files = [f"{tmp_path}/{i}.json" for i in (2, 0, 1)]
    merged = measured(capsys, "--merge", *files)
    for figure in ("nats", "error", "freedom", "interval", "perplexity", "bits_per_byte"):
        assert merged[figure] == pytest.approx(whole[figure], rel=1e-6), figure
    assert merged["conditions"] == whole["conditions"]
    assert merged["tokens"] == whole["tokens"]
    # some parts merge into a larger part, which can be merged again
    assert measured(capsys, "--merge", *files[:2])["tokens"] < whole["tokens"]
    assert re.search(r"│ rows │ \d+ to [^│]* of \d", shown(capsys, "--merge", *files[:2]))
    assert ", all of the text │" in shown(capsys, "--merge", *files)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            "",
            [
                "≤",
                "kind of figure │ an upper bound",
                "continuous time, fixed_count",
                "99% interval",
                "8 draws",
            ],
        ),
        ("--estimator uniform --steps 5", ["≤", "T = 5, uniform estimator"]),
        ("--order right_to_left", ["kind of figure │ exact", "computed by │ right_to_left"]),
        ("--orders 2", ["≤", "any order, 2 random orders"]),
        (
            "--estimator pseudo",
            [
                "pseudo-perplexity",
                "kind of figure │ no likelihood, no bound",
                "order-agnostic bound │ perplexity ≤",
                "≤",
            ],
        ),
    ],
)
def test_a_figure_is_shown_with_its_kind(options, told, capsys):
    out = shown(capsys, "run", "--data", "byte.txt", "--packing", "split", "--draws", "2",
                *options.split())  # fmt: skip
    assert all(line in out for line in told), out
    assert ("≤" in out) == ("≤" in told)


def test_a_long_name_with_markup_is_shown_completely(capsys, tmp_path):
    file = tmp_path / f"{'long' * 40}[red].txt"
    file.write_text(TEXT)
    out = shown(capsys, "run", "--data", str(file), "--draws", "1")
    assert str(file) in out.replace(" ", "").replace("│", "")


def test_an_order_may_be_given_position_by_position(capsys):
    one = ("run", "--data", "byte.txt", "--packing", "split")
    backwards = ",".join(map(str, range(15, -1, -1)))
    named, listed = (measured(capsys, *one, "--order", o) for o in ("right_to_left", backwards))
    assert named["nats"] == listed["nats"]
    assert listed["of"].startswith("the order 15, 14, ")
    short = measured(capsys, *one, "--order", "2,1,0")  # BOS, one byte and EOS
    assert short["nats"] == named["nats"]


def test_one_draw_of_one_row_has_no_error_to_halve(capsys):
    one = ("run", "--data", "byte.txt", "--packing", "split", "--draws")
    two = shown(capsys, *one, "2")
    assert "to halve the error │ 8 draws" in two and "99% interval │ too few draws" in two
    out = shown(capsys, *one, "1")
    assert "± ?" in out and "halve" not in out and "interval" not in out
    assert re.search(r"error over texts *│ unknown: the text is one row", out)
    several = shown(capsys, "run", "--data", "text.txt", "--draws", "1")
    first = r"\S+ bits per byte at most on text.txt; a unigram model of its tokens has \S+ \(lower is better\)"
    assert re.match(first, several)
    assert re.search(r"error over texts *│ ± [0-9.]+ nats per token", several)


def test_a_shipped_model_is_measured_beside_its_autoregressive_twin(capsys):
    own = measured(capsys, "stories-ar", "--data", "text.txt")
    beside = measured(capsys, "stories", "--data", "text.txt", "--draws", "1")
    assert (beside["twin"], beside["twin_nats"]) == ("stories-ar", pytest.approx(own["nats"]))
    assert "twin" not in own


def test_a_fine_tune_is_measured_beside_its_start(capsys, tmp_path):
    stories = unmask.load("stories")
    config = replace(stories.config, init_from="stories")
    with torch.no_grad():  # other weights, as after a training
        stories.method.backbone.get_parameter("norm.weight").mul_(1.01)
    replace(stories, config=config, attachments={}).save(tmp_path / "tuned")
    before = measured(capsys, "stories", "--data", "text.txt", "--draws", "1")
    after = measured(capsys, str(tmp_path / "tuned"), "--data", "text.txt", "--draws", "1")
    assert (after["start"], after["start_nats"]) == ("stories", pytest.approx(before["nats"]))
    assert "twin" not in after and after["nats"] != before["nats"]


def test_evaluate_and_report_have_the_same_numbers(capsys):
    pytest.importorskip("unmask.extensions.report.report")
    assert main(["report", "run", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)["bound"]
    evaluated = measured(capsys, "run")
    for figure in ("nats", "error", "tokens", "draws", "bits_per_byte"):
        assert reported[figure] == evaluated[figure], figure


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--draws 4 --seed 3", ""),
        ("--order left_to_right", ""),
        ("--order left_to_right --draws 4 --seed 3", "--draws and --seed have no effect"),
        ("--order random --draws 4 --seed 3", "--draws has no effect"),
        ("--order random --seed 3", ""),
        ("--estimator pseudo --seed 3 --json", ""),  # the bound in the output uses the seed
    ],
)
def test_an_option_without_effect_is_reported(options, told, capsys):
    assert (
        main(["evaluate", "run", "--data", "byte.txt", "--packing", "split", *options.split()]) == 0
    )
    assert capsys.readouterr().err == (told and f"{told}: this figure has no noise\n")


def test_unreadable_text_is_reported(capsys, tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    lines = [f"Line {i}." for i in range(200)]
    (text / "a.txt").write_bytes("\n".join(lines).encode() + b"\n[red]\xff")
    packed = gzip.compress(random.Random(0).randbytes(9000).hex().encode(), mtime=0)
    (text / "b.txt.gz").write_bytes(packed[:6000])
    found = shown(capsys, "run", "--data", str(text / "a.txt"), "--draws", "1")
    assert "not read │ skipped 1 of 201 lines or records of the text" in found
    parts = []
    for i in range(2):
        parts.append(str(tmp_path / f"{i}.json"))
        options = ["--data", str(text), "--draws", "1", "--shard", f"{i}/2"]
        assert main(["evaluate", "run", *options, "--save", parts[-1]]) == 0
    capsys.readouterr()
    elsewhere = Path(parts[1]).read_text().replace("a.txt:201", "other.txt:201")
    Path(parts[1]).write_text(elsewhere)
    unread = measured(capsys, "--merge", *parts)["unread"]
    assert "a.txt:201 is not UTF-8" in unread and "b.txt.gz is damaged or cut short" in unread


def test_bits_of_a_part_are_about_and_those_of_the_whole_a_bound(capsys):
    text = ("run", "--data", "text.txt", "--packing", "split", "--draws", "2")
    assert "bits per byte │ ≤" in shown(capsys, *text)
    part = shown(capsys, *text, "--shard", "0/2")
    assert "bits per byte │ ≈" in part
    assert "bits per character │ ≈" in part
    assert "perplexity │ ≤" in part


# Suites


def test_the_first_suite_needs_no_name(capsys):
    text = ("run", "--data", "byte.txt", "--packing", "split", "--draws", "2")
    assert measured(capsys, *text) == measured(capsys, "likelihood", *text)


def test_the_help_lists_the_suites_and_each_has_its_own_options(capsys):
    pages = {}
    for suite in ("", *SUITES):
        with pytest.raises(SystemExit):
            main(["evaluate", *suite.split(), "--help"])
        pages[suite] = capsys.readouterr().out
    for name, summary in SUITES.summaries().items():
        assert f" {name} {summary} " in " ".join(pages[""].split())
        assert pages[name].count(f"  unmask evaluate {name} ") == 2  # examples
        for group in ("model", "measurement", "output"):
            assert f"\n{group}:\n" in pages[name]
    assert "short for\n'unmask evaluate likelihood MODEL'" in pages[""]
    assert "--shard I/N" in pages["likelihood"] and "--samplers" not in pages["likelihood"]
    assert "--samplers" in pages["generation"] and "--shard I/N" not in pages["generation"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("run --gap 3", "unrecognized arguments: --gap 3"),
        (
            "generation run --shard 0/2",
            "unrecognized arguments: --shard 0/2; see 'unmask evaluate generation --help'",
        ),
        ("generation run --draws 2", "unrecognized arguments: --draws 2"),
        ("likelyhood run", "unknown suite 'likelyhood'; did you mean 'likelihood'?"),
        ("generation", "the following arguments are required: MODEL"),
    ],
)
def test_an_option_of_another_suite_is_refused(options, message, capsys):
    assert message in failure(capsys, *options.split())


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "the following arguments are required: MODEL"),
        ("run --data byte.txt --packing wrap", "too short for one row of 16 tokens"),
        ("run --data empty.txt", "empty.txt is empty"),
        ("run --data blank.txt --packing split", "blank.txt holds no text"),
        ("run --data latin.txt", "not UTF-8"),
        ("run --draws 0", "draws must be 1 or more, not 0"),
        ("run --draws 1.5", "argument --draws: invalid int value: '1.5'"),
        ("run --batch 0", "batch must be 1 or more, not 0"),
        ("run --steps -2", "steps must be 0 or more, not -2"),
        ("run --orders 0", "orders must be 1 or more, not 0"),
        ("run --order 0,0,1", "each of the 16 positions of a row once"),
        ("run --order 0,x", "--order '0,x' is no list of positions"),
        ("run --order sideways", "unknown order 'sideways'"),
        ("run --estimator stratifed", "did you mean 'stratified'?"),
        ("run --shard 2", "--shard '2' is no shard: give I/N"),
        ("run --shard 2/2", "shard 2 of 2 does not exist"),
        ("run --data text.txt --shard 0/99", "cannot be cut into 99 shards"),
        ("run --save no/such/folder.json", "no folder for no/such/folder.json: make it first"),
        ("run --merge text.txt", "leave MODEL out"),
        ("--merge text.txt", "text.txt holds no part"),
        ("--merge nothing.json", "no file nothing.json"),
        ("--seed 1 --merge text.txt", "--seed does not go with --merge"),
        ("--precision bf16 --merge text.txt", "--precision is for a model, and the file holds saved rows"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(options, message, capsys):
    assert message in failure(capsys, *options.split())


def test_parts_of_different_measurements_are_not_merged(capsys, tmp_path):
    one = ("run", "--data", "text.txt", "--draws", "2", "--shard")
    for name, options in [("a", "0/2"), ("b", "1/2 --seed 3"), ("c", "1/2 --packing split")]:
        assert main(["evaluate", *one, *options.split(), "--save", str(tmp_path / name)]) == 0
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert "row 0 of the corpus was measured twice" in failure(capsys, "--merge", a, a)
    assert "no parts of one measurement: seed is" in failure(capsys, "--merge", a, b)
    assert "no parts of one measurement: packing is wrap" in failure(capsys, "--merge", a, c)
    assert Path(a).read_text().count("\n") == 1


def test_parts_are_matched_by_their_text_not_by_its_name(capsys, tmp_path):
    """Another machine has another folder, and a file of the same name may hold another text."""
    text = Path("text.txt").read_text()
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text(text)
    how = ("--draws", "2", "--shard")
    measured(capsys, "run", "--data", "text.txt", *how, "0/2", "--save", f"{tmp_path}/a")
    measured(capsys, "run", "--data", str(elsewhere), *how, "1/2", "--save", f"{tmp_path}/b")
    merged = measured(capsys, "--merge", f"{tmp_path}/a", f"{tmp_path}/b")
    whole = measured(capsys, "run", "--data", "text.txt", "--draws", "2")
    assert merged["nats"] == pytest.approx(whole["nats"], rel=1e-6)
    half = len(text) // 2
    elsewhere.write_text(text[half:] + text[:half])  # the same length and letters
    measured(capsys, "run", "--data", str(elsewhere), *how, "1/2", "--save", f"{tmp_path}/c")
    line = failure(capsys, "--merge", f"{tmp_path}/a", f"{tmp_path}/c")
    assert "no parts of one measurement: t" in line  # its tokens, or its text


def test_parts_of_different_weights_are_not_merged(capsys, tmp_path, folder):
    """The path is the same, the model is another one."""
    shutil.copytree(folder / "run" / "model", tmp_path / "model")
    one = (f"{tmp_path}/model", "--data", "text.txt", "--draws", "2")
    first, second = (
        measured(capsys, *one, "--save", f"{tmp_path}/a", "--shard", "0/2") for _ in "ab"
    )
    assert first["conditions"] == second["conditions"]
    model = unmask.load(tmp_path / "model")
    with torch.no_grad():
        model.method.backbone.head.weight[0, 0] += 1
    model.save(tmp_path / "model")
    measured(capsys, *one, "--save", f"{tmp_path}/b", "--shard", "1/2")
    line = failure(capsys, "--merge", f"{tmp_path}/a", f"{tmp_path}/b")
    assert "no parts of one measurement: weights is" in line
    assert "weights is None in" in failure(capsys, "--merge", *_without(tmp_path, "weights"))


def _without(folder: Path, name: str) -> list[str]:
    """Two parts. The first lacks one of its conditions."""
    saved = json.loads((folder / "a").read_text())
    del saved["conditions"][name]
    (folder / "old").write_text(json.dumps(saved))
    return [str(folder / "old"), str(folder / "b")]


def test_a_part_of_no_tokens_is_one_line(capsys, tmp_path):
    saved = measured(capsys, "run", "--data", "text.txt", "--draws", "2")
    saved["sums"]["tokens"] = 0
    (tmp_path / "none.json").write_text(json.dumps(saved))
    assert "none.json holds no part" in failure(capsys, "--merge", str(tmp_path / "none.json"))
