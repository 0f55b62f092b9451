"""Comparison of samplers: figures of their texts, stored in a file and resumed."""

import json
import math
import shutil
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import LENGTH, one_line

import unmask
from unmask.cli import main
from unmask.data.load import load_data
from unmask.errors import UnmaskError
from unmask.evaluation.judges.judge import MethodJudge, Sample
from unmask.evaluation.metrics.text_quality import measure, visible
from unmask.evaluation.suites.frontier_plot import draw, spread_out
from unmask.evaluation.suites.generated_texts import Generation
from unmask.evaluation.suites.sample_quality import compare, default_samplers, settings
from unmask.evaluation.suites.sample_rows import Row, Setting, stored
from unmask.evaluation.suites.sample_texts import _two_sets, real_texts
from unmask.evaluation.suites.suite import Progress
from unmask.likelihood.figure_text import with_interval
from unmask.samplers.sampler import SAMPLERS

N, STEPS = 6, [2, 5]
SAMPLED = ["ancestral", "left_to_right"]


@pytest.fixture
def calls(model, monkeypatch) -> list[dict]:
    """Options of each call of `generate`, without those that warm up."""
    asked = []
    generate = model.generate

    def remember(*args, **options):
        if "n" in options:
            asked.append(options)
        return generate(*args, **options)

    monkeypatch.setattr(unmask.Model, "generate", staticmethod(remember))
    return asked


def run_compare(model, **options) -> list[Row]:
    given = {"samplers": SAMPLED, "steps": STEPS, "n": N, "say": lambda line: None}
    return compare(model, **given | options)


def content(rows: list[Row]) -> list[Row]:
    """All but the time."""
    return [replace(row, seconds=None) for row in rows]


def spelled(model, texts: list[list[int]]) -> list[Sample]:
    return [Sample(text, model.tokenizer.decode(text)) for text in texts]


# Figures


def test_a_row_has_the_judges_figures_of_the_texts_of_its_setting(model, reader):
    judge = unmask.load(reader)
    seen: list[Row] = []
    rows = run_compare(
        model, judge=judge, temperatures=[1.0, 0.5], seed=3, batch=4, done=seen.append
    )
    assert seen == rows
    assert [(row.sampler, row.steps, row.temperature) for row in rows] == [
        ("data", None, None),
        *(("ancestral", steps, t) for t in (1.0, 0.5) for steps in STEPS),
        *(("left_to_right", None, t) for t in (1.0, 0.5)),
    ]
    row = next(row for row in rows if row.setting == Setting("ancestral", 5, 0.5))
    results = model.generate(n=N, steps=5, sampler="ancestral", temperature=0.5, seed=3)
    texts = [visible(result.ids, model.tokenizer.vocabulary) for result in results]
    quality = measure(spelled(model, texts), MethodJudge(judge.method, LENGTH), seed=3)
    assert (row.nats, row.nats_error) == (quality.nats.value, quality.nats.error)
    assert (row.entropy, row.entropy_error) == (quality.entropy.value, quality.entropy.error)
    assert (row.distinct_2, row.repetition) == (quality.distinct_2.value, quality.repetition.value)
    assert (row.tokens, row.certificate, row.n) == (quality.tokens, "exact", N)
    assert row.calls == sum(result.calls for result in results) / N
    assert row.perplexity == math.exp(row.nats)


def test_seconds_are_shared_by_the_texts_of_a_batch(model, monkeypatch):
    generate = model.generate

    def timed(*args, **options):
        results = generate(*args, **options)
        spent = [10.0] * 4 + [6.0] * 2  # of two batches
        return [replace(r, seconds=s) for r, s in zip(results, spent, strict=False)]

    monkeypatch.setattr(unmask.Model, "generate", staticmethod(timed))
    rows = run_compare(model, samplers=["ancestral"], batch=4)
    assert {row.seconds for row in rows if row.sampler != "data"} == {16 / 6}


def test_the_model_judges_itself_by_its_bound(model):
    assert {row.certificate for row in run_compare(model)} == {"upper"}


def test_real_text_is_the_validation_text_cut_to_the_length(model):
    rows = load_data(model.config.data, model.tokenizer).valid
    x, valid = rows[range(len(rows))]
    texts = [
        visible(row[there].tolist(), model.tokenizer.vocabulary)
        for row, there in zip(x, valid, strict=True)
    ]
    real = run_compare(model, samplers=["left_to_right"], n=len(rows))[0]
    assert (real.sampler, real.n, real.calls, real.seconds) == ("data", len(rows), None, None)
    quality = measure(spelled(model, texts), MethodJudge(model.method, LENGTH))
    assert (real.nats, real.entropy) == (quality.nats.value, quality.entropy.value)
    short = run_compare(model, samplers=["left_to_right"], n=2, length=6)[0]
    assert short.tokens == 2 * (6 - 1)  # BOS is not counted
    notes: list[str] = []
    rows = len(load_data(model.config.data, model.tokenizer).valid)
    real = run_compare(model, samplers=["left_to_right"], n=rows + 1, say=notes.append)[0]
    assert real.n == rows
    assert notes == [f"the real text gives {rows} of {rows + 1} rows, with 24 of 24 tokens each"]


def test_absent_data_is_reported(run, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(run / "model", moved)
    model = unmask.load(moved)
    nowhere = replace(model.config.data, train=str(tmp_path / "gone.txt"))
    model = unmask.Model(model.method, model.tokenizer, replace(model.config, data=nowhere))
    notes: list[str] = []
    rows = run_compare(model, say=notes.append)
    assert [row.sampler for row in rows] == ["ancestral", "ancestral", "left_to_right"]
    assert len(notes) == 1
    assert notes[0].startswith("the table has no row of real text: ")
    assert "gone.txt" in notes[0] and notes[0].endswith("give a text with --data FILE")
    for data in (str(tmp_path / "gone.txt"), []):
        with pytest.raises(UnmaskError, match=r"gone\.txt|texts are empty"):
            run_compare(model, data=data)


def test_real_text_can_be_given(model, tmp_path):
    text, file = tmp_path / "text.txt", tmp_path / "rows.jsonl"
    text.write_text("The king sat on the log.\nThe king sat on the mat.\n")
    own = run_compare(model, samplers=["left_to_right"], file=file)
    for data in (str(text), text.read_text().splitlines()):
        rows = run_compare(model, samplers=["left_to_right"], data=data, file=file)
        first = real_texts(model, 2, LENGTH, print, data).first
        assert [sample.text for sample in first.samples] == text.read_text().splitlines()
        quality = measure(first.samples, MethodJudge(model.method, LENGTH))
        assert (rows[0].n, rows[0].nats) == (2, quality.nats.value)
        assert rows[0].nats != own[0].nats and rows[1].nats == own[1].nats
    lines = [json.loads(line)["conditions"] for line in file.read_text().splitlines()]
    assert [line.get("data") for line in lines[:4]] == [None, None, str(text), str(text)]
    assert lines[0]["data"] is None and len(lines) == 6  # no row was reused for another


def test_windows_on_text_are_compared_at_one_length(model, tmp_path):
    """Wrapped rows in which a text ends are left out if they are few,
    and generated texts have no end.
    """
    data = replace(model.config.data, packing="wrap")
    wrapped = unmask.Model(model.method, model.tokenizer, replace(model.config, data=data))
    text = tmp_path / "text.txt"
    short, long = "The cat sat.\n", "The {0} sat on the warm stone of the wall" * 9 + ".\n"
    text.write_text("".join(short + long.format(who) for who in ("cat", "dog", "king", "queen")))
    real = real_texts(wrapped, 4, LENGTH, pytest.fail, str(text))
    assert real.whole == LENGTH - 2
    for texts in (real.first, real.others):  # both parts are spread over the text
        assert [len(sample.ids) for sample in texts.samples] == [LENGTH - 2] * 4
        assert "cat" in texts.samples[0].text and "queen" in texts.samples[-1].text
    assert not {s.text for s in real.first.samples} & {s.text for s in real.others.samples}
    rows = run_compare(wrapped, samplers=["left_to_right"], n=4, data=str(text))
    assert [row.tokens for row in rows] == [4 * (LENGTH - 2)] * 2
    rows = run_compare(wrapped, samplers=["left_to_right"], n=4, data=str(text), length=9)
    assert [row.tokens for row in rows] == [4 * (9 - 1)] * 2  # a cut text has no EOS
    text.write_text(short * 400)  # texts end in every row: they are compared up to there
    real = real_texts(wrapped, 4, LENGTH, pytest.fail, str(text))
    assert real.whole is None
    assert all(len(sample.ids) < LENGTH - 2 for sample in real.first.samples)
    written = run_compare(wrapped, samplers=["left_to_right"], n=32, data=str(text))[1]
    assert written.tokens < 32 * (LENGTH - 2)  # at least one of them has drawn its EOS


@pytest.mark.parametrize("count", [3, 7, 8, 31, 32, 33, 48, 500])
def test_two_sets_of_rows_are_spread_and_disjoint(count):
    first, others = _two_sets(np.arange(count), 16)
    assert len(first) == min(16, count) and len(others) == min(16, count - len(first))
    assert not set(first) & set(others)
    assert first[-1] >= count * 0.8 or count <= 16
    assert list(first) == sorted(set(first)) and list(others) == sorted(set(others))


def test_rows_with_other_real_text_are_not_reused(model, tmp_path):
    """If the model's own text is missing or changed, the length of texts and MAUVE differ."""
    file, text = tmp_path / "rows.jsonl", tmp_path / "text.txt"
    for content in ("The cat sat on the log.\n", "The dog sat on the mat.\n"):
        text.write_text(content * 4)
        run_compare(model, samplers=["left_to_right"], data=str(text), file=file)
    assert len(file.read_text().splitlines()) == 4


def test_rows_of_an_older_counting_rule_are_measured_again(model, tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = run_compare(model, samplers=["left_to_right"], file=file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["conditions"]["judge"] = line["conditions"]["model"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    notes: list[str] = []
    again = run_compare(model, samplers=["left_to_right"], file=file, say=notes.append)
    assert [row.nats for row in again] == [row.nats for row in rows]
    assert "also holds 2 rows of another model, judge" in notes[-1]
    assert len(file.read_text().splitlines()) == 4


# Settings


def test_the_default_is_every_sampler_that_the_model_can_run(model, left_to_right):
    assert default_samplers(left_to_right) == ["left_to_right"]
    assert {"ancestral", "left_to_right"} <= set(default_samplers(model)) <= set(SAMPLERS)
    assert not {"semi_autoregressive", "analytic"} & set(default_samplers(model))  # no sedd


def test_a_sampler_without_steps_runs_once(model):
    specs = ["ancestral", "ancestral:steps=7", "left_to_right", "ancestral:grid=cosine"]
    points = settings(model, specs, [4, 4, 8], [1.0])
    assert [(point.sampler, point.steps) for point in points] == [
        ("ancestral", 4),
        ("ancestral", 8),
        ("ancestral:steps=7", None),
        ("left_to_right", None),
        ("ancestral:grid=cosine", 4),
        ("ancestral:grid=cosine", 8),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samplers": ["ancestrall"]}, "did you mean 'ancestral'?"),
        ({"samplers": ["ancestral", "ancestral:grid=cosinus"]}, "cosin"),
        ({"samplers": ["ancestral", "analytic"]}, "method sedd"),
        ({"samplers": ["ancestral:pace=3"]}, "unknown setting of ancestral 'pace'"),
        ({"steps": [8, 0]}, "steps must be 1 or more, not 0"),
        ({"n": 0}, "n must be 1 or more"),
        ({"batch": 0}, "batch must be 1 or more"),
        ({"length": 1}, "length must be 2 or more"),
        ({"temperatures": [1.0, -1.0]}, "temperature must be 0 or more"),
        ({"sampling": {"top_p": 0.0}}, "top_p must lie in"),
        ({"sampling": {"steps": 3}}, "sampling must not set steps"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_written(model, calls, options, message):
    with pytest.raises(UnmaskError) as caught:
        run_compare(model, **options)
    assert message in one_line(caught)
    assert calls == []


def test_other_tokenizers_and_orders_are_refused(model, left_to_right):
    with pytest.raises(UnmaskError, match="another tokenizer") as caught:
        run_compare(model, judge=left_to_right)
    one_line(caught)
    with pytest.raises(UnmaskError, match="cannot use this sampler: give left_to_right"):
        run_compare(left_to_right)


# The file


def test_rows_in_the_file_are_not_measured_again(model, calls, tmp_path):
    file = tmp_path / "new" / "rows.jsonl"

    def stop(row: Row) -> None:
        if row.steps == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_compare(model, file=file, done=stop)
    assert len(calls) == 2
    rows = run_compare(model, file=file)
    assert [call["sampler"] for call in calls] == ["ancestral", "ancestral", "left_to_right"]
    assert content(rows) == content(run_compare(model))
    assert stored(file) == rows == run_compare(model, file=file)
    assert len(calls) == 6  # three of them without the file


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"n": 5}, {"batch": 3}, {"length": 12}, {"sampling": {"top_k": 4}}]
)
def test_rows_of_other_conditions_are_measured_again(model, calls, tmp_path, other):
    file = tmp_path / "rows.jsonl"
    first = run_compare(model, file=file, samplers=["left_to_right"])
    second = run_compare(model, file=file, samplers=["left_to_right"], **other)
    assert len(calls) == 2
    assert stored(file) == second
    assert run_compare(model, file=file, samplers=["left_to_right"]) == first
    assert len(calls) == 2


def test_rows_of_another_order_policy_are_measured_again(model, calls, tmp_path):
    policy = pytest.importorskip("unmask.extensions.orders.order_policy").OrderPolicy
    for prior in ("confidence", "random", "random"):
        own = replace(model, attachments={"order_policy": policy(prior, model.digest)})
        run_compare(own, file=tmp_path / "rows.jsonl", samplers=["learned_order"])
    assert len(calls) == 4  # two policies, two numbers of steps


def test_a_model_is_its_weights_its_tokenizer_and_its_configuration(model, run, left_to_right):
    copy = unmask.load(run)
    assert copy.digest == model.digest
    assert left_to_right.digest != model.digest
    other = replace(copy.config, data=replace(copy.config.data, length=12))
    assert unmask.Model(copy.method, copy.tokenizer, other).digest != model.digest
    with torch.no_grad():
        next(copy.method.parameters()).flatten()[0] += 1e-3
    assert copy.digest != model.digest


def test_a_line_that_was_cut_short_costs_its_row_only(model, calls, tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = run_compare(model, file=file)
    file.write_bytes(file.read_bytes()[:-40])  # cuts the last line
    again = run_compare(model, file=file)
    assert content(again) == content(rows)
    assert [call["sampler"] for call in calls][3:] == ["left_to_right"]
    assert stored(file) == again


def test_an_unknown_error_is_null_in_the_file(model, tmp_path):
    row = run_compare(model, n=1, file=tmp_path / "rows.jsonl")[-1]
    assert row.nats_error == math.inf
    text = (tmp_path / "rows.jsonl").read_text()
    assert "Infinity" not in text
    assert json.loads(text.splitlines()[-1])["nats_error"] is None
    assert stored(tmp_path / "rows.jsonl")[-1] == row


def test_a_file_of_another_format_is_not_changed(model, tmp_path):
    file = tmp_path / "diary.jsonl"
    file.write_text('{"dear": "diary"}\n')
    with pytest.raises(UnmaskError, match="no rows of a comparison"):
        run_compare(model, file=file)
    assert file.read_text() == '{"dear": "diary"}\n'


# The command


def arguments(run: Path, *more: str) -> list[str]:
    how = ["--judge", "self", "--samplers", *SAMPLED, "--steps", "2,5", "--samples", "4"]
    return ["evaluate", "generation", str(run), *how, *more]


def test_the_command_prints_a_table_and_draws(run, reader, tmp_path, capsys):
    out = tmp_path / "deep" / "frontier.png"
    assert main(arguments(run, "--judge", str(reader), "--out", str(out))) == 0
    table, progress = capsys.readouterr()
    assert out.read_bytes().startswith(b"\x89PNG")
    rows = stored(out.with_suffix(".jsonl"))
    lines = [line for line in table.splitlines() if " ± " in line]
    assert "judge: another run, autoregressive" in table
    assert "[low, high]: 95% bootstrap over texts" in table
    assert [line.split()[0] for line in lines] == [
        "real",
        "ancestral",
        "ancestral",
        "left_to_right",
    ]
    for row, line in zip(rows, lines, strict=True):
        low, high = row.interval("perplexity")
        assert low < row.perplexity < high
        assert with_interval(row.perplexity, low, high) in line
        assert "≤" not in line  # the judge is exact
    assert "ancestral, 5 steps, temperature 1: " in progress
    # the same from the file alone, in any folder
    again = [str(out.with_suffix(".jsonl")), "--out", str(tmp_path / "a.svg")]
    assert main(["evaluate", "generation", *again]) == 0
    assert capsys.readouterr().out == table
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_all_samplers_are_those_that_the_model_can_run(model, tmp_path):
    class Announced(Progress):
        names: list[str]

        def expect(self, names):
            self.names = list(names)

    suite, progress = Generation(), Announced()
    options = suite.Options(judge="self", samplers=["all"], steps=[3], samples=1)
    assert next(suite.rows(model, options, progress)).sampler == "data"
    samplers = [name.partition(",")[0] for name in progress.names[1:]]
    assert samplers == default_samplers(model)


def test_some_samplers_of_a_file_are_shown(run, tmp_path, capsys):
    file = str(tmp_path / "rows.jsonl")
    names = ["ancestral", "left_to_right"]
    how = ["--judge", "self", "--steps", "4", "--samples", "2", "--length", "12"]
    command = ["evaluate", "generation", str(run), "--samplers", *names, *how]
    assert main([*command, "--out", file]) == 0
    capsys.readouterr()
    assert main(["evaluate", "generation", file, "--samplers", "left_to_right"]) == 0
    table = capsys.readouterr().out
    assert "left_to_right" in table and "real text" in table and "ancestral" not in table
    assert main(["evaluate", "generation", file, "--samplers", "ancestrall"]) == 2
    assert "did you mean 'ancestral'?" in capsys.readouterr().err


def test_json_is_a_line_for_each_row(run, tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert main(arguments(run, "--json", "--temperatures", "1,0.5", "--out", str(file))) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Row.from_dict(line) for line in lines] == stored(file)
    assert len(lines) == 7
    assert {line["certificate"] for line in lines} == {"upper"}


def test_ctrl_c_prints_the_path_of_the_rows(run, tmp_path, monkeypatch, capsys):
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(unmask.Model, "generate", stop)
    assert main(arguments(run, "--out", str(tmp_path / "x.png"))) == 130
    line = capsys.readouterr().err.splitlines()[-1]
    assert (
        line
        == f"unmask: interrupted; {tmp_path / 'x.jsonl'} holds the rows; the same command continues"
    )


def test_bad_arguments_are_one_line(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for argv, message in [
        (["--steps", "2,x"], "'2,x' is no list of numbers"),
        (["--sampling", "top_p"], "--sampling 'top_p' has no value: give NAME=VALUE"),
        (["--judge", "self", "--sampling", "top_q=1"], "unknown option 'top_q'"),
        (["--judge", "self", "--judge-prefix", "a"], "--judge-prefix needs a --judge"),
        (["--out", "x.png"], "pip install -e '.[log]'"),
        (["--out", "x.svg"], "draw it on another machine"),
    ]:
        assert main(["evaluate", "generation", str(run), *argv]) == 2
        out, err = capsys.readouterr()
        assert message in err
        assert (out, err.count("\n")) == ("", 1)
    assert main(["evaluate", "generation", str(tmp_path / "no.jsonl")]) == 2
    assert "no file" in capsys.readouterr().err


# The picture


@pytest.mark.parametrize("samplers", [1, 12])
def test_every_line_has_its_own_name_and_style(samplers, tmp_path):
    figures = dict.fromkeys((name for name in Row.__annotations__ if "error" in name), 0.1)
    figures |= {"entropy": 4.0, "distinct_2": 0.5, "repetition": 0.0, "n": 4, "tokens": 9}
    rows = [
        Row(
            sampler=f"sampler_{k}", steps=steps, temperature=t, calls=steps * 0.9, seconds=0.1 * steps,
            nats=3 + 1 / steps, certificate="upper", **figures,
        )
        for k in range(samplers) for t in (1.0, 0.5) for steps in (8, 1)
    ]  # fmt: skip
    draw(rows, tmp_path / "picture.svg")
    svg = (tmp_path / "picture.svg").read_text()
    for k in range(samplers):
        assert svg.count(f"<!-- sampler_{k} -->") == 1
    assert svg.count("<!-- temperature 0.5 -->") == 1
    assert "upper bound" in svg
    assert "real text" not in svg


def test_names_are_spread_out_in_order():
    assert spread_out([0.2, 0.8], 0.1) == pytest.approx([0.2, 0.8])
    assert spread_out([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    crowded = spread_out([0.0, 0.0, 0.01, 1.0, 1.0], 0.1)
    assert all(b - a > 0.1 - 1e-9 for a, b in pairwise(crowded))
    assert crowded[0] >= 0
    assert crowded[-1] <= 1
    assert spread_out([0.5] * 21, 0.1) == pytest.approx([k / 20 for k in range(21)])
