"""The generation suite: texts of a model under a judge with another tokenizer,
compared with real text.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_judge import save_judge
from tiny_models import one_line

import unmask
from unmask.cli import main
from unmask.data.load import load_data
from unmask.errors import UnmaskError
from unmask.evaluation.judges.judge import Sample
from unmask.evaluation.judges.load_judge import load_judge
from unmask.evaluation.metrics.mauve import mauve
from unmask.evaluation.suites.frontier_plot import draw
from unmask.evaluation.suites.generated_texts import Generation
from unmask.evaluation.suites.sample_quality import compare
from unmask.evaluation.suites.sample_rows import Row, Setting, stored
from unmask.evaluation.suites.sample_texts import real_texts
from unmask.likelihood.figure_text import with_interval

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def judge(judge_folder):
    return load_judge(judge_folder, "cpu")


def run_compare(model, judge, **options) -> list[Row]:
    given = {"samplers": ["ancestral"], "steps": [4], "n": 2, "say": lambda line: None}
    return compare(model, judge=judge, **given | options)


def written(model, monkeypatch, ids: list[list[int]]) -> None:
    """Makes the model generate these texts."""
    generate = model.generate

    def stand_in(*args, **options):
        results = generate(*args, **options)
        return [replace(result, ids=text) for result, text in zip(results, ids * 9, strict=False)]

    monkeypatch.setattr(unmask.Model, "generate", staticmethod(stand_in))


# Figures


def test_a_row_has_the_figures_of_two_texts_counted_by_hand(model, judge, monkeypatch):
    cat, dog, sat = (model.tokenizer.encode(word)[0] for word in ("cat", "dog", "sat"))
    texts = [[cat, sat, cat, sat], [cat, dog, cat, sat]]
    written(model, monkeypatch, texts)
    row = run_compare(model, judge)[1]
    read = judge.read_texts([model.tokenizer.decode(ids) for ids in texts])
    assert row.nats == pytest.approx(float(torch.cat([each.nats for each in read]).mean()))
    assert row.entropy == pytest.approx((math.log(2) + 1.5 * math.log(2)) / 2)  # the mean of texts
    assert row.distinct_1 == 3 / 8  # cat, dog, sat
    assert row.distinct_2 == 4 / 6  # cat sat, sat cat, cat dog, dog cat
    assert row.repetition == 0  # there is one 4-gram in each text
    low, high = row.interval("perplexity")
    assert low <= row.perplexity == math.exp(row.nats) <= high
    assert row.judge == f"tiny after <|endoftext|>, windows of 32, {judge.digest[:8]}"
    assert row.certificate == "exact"
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row


def test_real_text_is_compared_with_other_real_text(model, judge):
    rows = len(load_data(model.config.data, model.tokenizer).valid)
    assert run_compare(model, judge, n=rows)[0].mauve is None  # there is no further real text
    real = run_compare(model, judge, n=1)[0]
    texts = real_texts(model, 1, model.length, print)
    first, second = texts.first, texts.others
    assert first.samples != second.samples
    features = [judge.read(texts.samples).features for texts in (first, second)]
    assert (real.sampler, real.mauve) == ("data", mauve(*features).value)
    written = run_compare(model, judge, n=rows)[1]
    assert written.mauve is not None  # compared with the first rows instead


def test_rows_are_reused_only_with_the_same_judge(model, judge, tmp_path):
    file = tmp_path / "rows.jsonl"
    notes: list[str] = []
    rows = run_compare(model, judge, file=file)
    assert run_compare(model, judge, file=file) == rows == stored(file)
    other = load_judge(save_judge(tmp_path / "other", seed=1), "cpu")
    assert other.digest != judge.digest
    assert run_compare(model, other, file=file, say=notes.append) != rows
    assert notes == [
        f"{file} also holds 2 rows of another model, judge, text, device or setting: not shown"
    ]


def test_rows_of_older_files_are_shown_and_measured_again(model, judge, tmp_path):
    old = stored(ROOT / "docs" / "images" / "frontier.jsonl")
    assert old[0].mauve is None and old[0].interval("nats") is None
    assert main(["evaluate", "generation", str(ROOT / "docs" / "images" / "frontier.jsonl")]) == 0
    file = tmp_path / "rows.jsonl"
    rows = run_compare(model, judge, file=file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    new = ("judge", "bits_per_byte", "intervals", "mauve")
    file.write_text(
        "".join(
            json.dumps({name: x for name, x in line.items() if name not in new}) + "\n"
            for line in lines
        )
    )
    assert [row.mauve for row in stored(file)] == [None, None]
    again = run_compare(model, judge, file=file)
    assert [row.mauve for row in again] == [row.mauve for row in rows]


# Texts that are hard to read


def test_invalid_bytes_are_reported(model, judge, monkeypatch):
    pieces = model.tokenizer.pieces()
    broken = pieces.index(b"\xc3")
    plain = model.tokenizer.encode("The cat")
    written(model, monkeypatch, [[broken, broken], plain])
    notes: list[str] = []
    row = run_compare(model, judge, say=notes.append)[-1]
    assert notes == [
        "ancestral, 4 steps, temperature 1: 1 of 2 texts are not UTF-8; the judge scores U+FFFD there"
    ]
    assert math.isfinite(row.nats)


def test_a_run_reads_the_bytes_themselves(model, monkeypatch):
    broken = model.tokenizer.pieces().index(b"\xc3")
    plain = model.tokenizer.encode("The cat")
    written(model, monkeypatch, [[broken, broken], plain])
    notes: list[str] = []
    row = run_compare(model, None, say=notes.append)[-1]
    assert notes == []  # it reads the bytes, not U+FFFD
    assert row.tokens == 2 + len(plain)
    size = 2 + len("The cat")
    assert row.bits_per_byte == pytest.approx(row.nats * row.tokens / math.log(2) / size)


def test_an_empty_text_is_not_counted(model, judge, monkeypatch):
    plain, eos = model.tokenizer.encode("The cat"), model.tokenizer.vocabulary.eos_id
    written(model, monkeypatch, [[eos], plain])
    row = run_compare(model, judge)[-1]
    read = judge.read([Sample(plain, "The cat")])
    assert row.tokens == int(read.tokens[0])
    assert row.nats == pytest.approx(float(read.nats[0]) / row.tokens)


def test_texts_that_are_all_empty_are_one_line(model, judge, monkeypatch):
    written(model, monkeypatch, [[model.tokenizer.vocabulary.eos_id]])
    for who in (judge, None):
        with pytest.raises(UnmaskError, match="all texts are empty") as caught:
            run_compare(model, who)
        one_line(caught)


def test_validation_text_of_one_byte_is_measured_or_refused(model, judge, tmp_path):
    (tmp_path / "byte.txt").write_bytes(b"a")
    data = replace(
        model.config.data,
        valid=str(tmp_path / "byte.txt"),
        cache=str(tmp_path / "cache"),
        held_out_digest="",
    )
    tiny = unmask.Model(model.method, model.tokenizer, replace(model.config, data=data))
    notes: list[str] = []
    rows = run_compare(tiny, judge, say=notes.append)
    assert [row.sampler for row in rows] == ["data", "ancestral"]
    assert (rows[0].n, rows[0].tokens) == (1, 1)
    assert notes == ["the real text gives 1 of 2 rows, with 24 of 24 tokens each"]


# Judges by name


def test_a_run_is_a_judge_too(model, run, judge_folder):
    assert isinstance(load_judge(run), unmask.Model)
    row = run_compare(model, str(run), n=1)[-1]
    assert (row.judge, row.mauve) == (f"the model itself, mdlm, {model.digest[:8]}", None)
    with pytest.raises(UnmaskError, match="which takes no prefix"):
        load_judge(run, prefix="a")
    assert load_judge(judge_folder, "cpu", "<other>").prefix == "<other>"


# The command


def evaluate(suite: str, *argv: str) -> None:
    assert main(["evaluate", suite, *argv]) == 0


def test_the_suite_prints_a_table_and_draws(run, judge_folder, tmp_path, capsys):
    out = tmp_path / "frontier.svg"
    options = ["--judge", str(judge_folder), "--samples", "3", "--steps", "2,4", "--out", str(out)]
    evaluate("generation", str(run), *options, "--temperatures", "1,0.5")
    table, told = capsys.readouterr()
    assert "--steps" not in told
    assert "MAUVE" in table and "bits / byte" in table
    assert "judge: tiny after <|endoftext|>, windows of 32" in table
    assert "not GPT-2-large: perplexity and MAUVE cannot be compared" in table
    assert "MAUVE of 3 texts has few clusters" in table
    rows = stored(out.with_suffix(".jsonl"))
    assert [row.setting for row in rows] == [
        Setting("data"),
        *(Setting("ancestral", steps, t) for t in (1.0, 0.5) for steps in (2, 4)),
    ]
    assert {row.n for row in rows} == {3}
    picture = out.read_text()
    assert "nats per token by tiny" in picture and "generative perplexity" in picture
    evaluate("generation", str(run), *options[:-2], "--samplers", "left_to_right", "--json")
    printed, told = capsys.readouterr()
    assert told.count("--steps has no effect: none of the samplers has steps") == 1
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["sampler"] for line in lines] == ["data", "left_to_right"]
    assert lines[1]["intervals"]["entropy"][0] <= lines[1]["entropy"]


def test_the_suite_takes_a_text(run, judge_folder, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("The king sat on the log.\nThe king sat on the mat.\n")
    given = ["--data", str(text), "--samples", "2", "--json"]
    evaluate("generation", str(run), *given, "--judge", str(judge_folder), "--steps", "2")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["sampler"] for line in lines] == ["data", "ancestral"]
    assert {line["n"] for line in lines} == {2}


def test_without_the_models_text_the_error_names_the_option_data(model, tmp_path, capsys):
    nowhere = replace(model.config.data, train=str(tmp_path / "gone.txt"))
    moved = unmask.Model(model.method, model.tokenizer, replace(model.config, data=nowhere))
    moved.save(tmp_path / "moved")
    assert main(["evaluate", str(tmp_path / "moved")]) == 2
    err = capsys.readouterr().err
    assert "gone.txt" in err and err.rstrip().endswith("give a text with --data FILE")


def test_models_are_shown_beside_each_other(model, judge, tmp_path, capsys):
    for name, who in (("a", judge), ("b", judge), ("own", None)):
        run_compare(model, who, file=tmp_path / f"{name}.jsonl")
    files = {name: str(tmp_path / f"{name}.jsonl") for name in ("a", "b", "own")}
    out = str(tmp_path / "both.svg")
    assert main(["evaluate", "generation", files["a"], "--beside", files["b"], "--out", out]) == 0
    table = capsys.readouterr().out
    assert table.count("real text") == 1
    assert "ancestral, b" in table and "ancestral, b" in Path(out).read_text()
    assert main(["evaluate", "generation", files["a"], "--beside", files["own"]]) == 2
    error = capsys.readouterr().err
    assert (
        f"own.jsonl was measured by another judge: the model itself, mdlm, {model.digest[:8]}, not tiny"
        in error
    )
    # real text may have fewer rows than requested
    many = len(load_data(model.config.data, model.tokenizer).valid) + 1
    for name in ("more", "most"):
        run_compare(model, judge, n=many, file=tmp_path / f"{name}.jsonl")
    assert (
        main(
            [
                "evaluate",
                "generation",
                str(tmp_path / "more.jsonl"),
                "--beside",
                str(tmp_path / "most.jsonl"),
            ]
        )
        == 0
    )


def test_only_rows_of_the_same_judge_and_texts_are_compared(model, judge, tmp_path, capsys):
    """Two judges have one name, or two models each judge themselves."""
    other = load_judge(save_judge(tmp_path / "tiny", seed=1), "cpu")
    config = replace(model.config, seed=model.config.seed + 1)
    second, itself = unmask.Model(model.method, model.tokenizer, config), None
    files = {}
    for name, who, by, options in [
        ("judged", model, judge, {}),
        ("namesake", model, other, {}),
        ("shorter", model, judge, {"length": 12}),
        ("fewer", model, judge, {"n": 1}),
        ("itself", model, itself, {}),
        ("another", second, itself, {}),
        ("by_the_first", second, model, {}),
    ]:
        files[name] = str(tmp_path / f"{name}.jsonl")
        run_compare(who, by, samplers=["left_to_right"], file=Path(files[name]), **options)
    capsys.readouterr()
    for name, message in [
        (
            "namesake",
            f"by another judge: tiny after <|endoftext|>, windows of 32, {other.digest[:8]}, not",
        ),
        ("shorter", "at another length: 12, not 24"),
        ("fewer", "on another number of texts: 1, not 2"),
    ]:
        assert main(["evaluate", "generation", files["judged"], "--beside", files[name]]) == 2
        out, err = capsys.readouterr()
        assert f"{name}.jsonl was measured {message}" in err and out == "" and err.count("\n") == 1
    assert main(["evaluate", "generation", files["itself"], "--beside", files["another"]]) == 2
    assert (
        "another.jsonl was measured by another judge: the model itself" in capsys.readouterr().err
    )
    assert main(["evaluate", "generation", files["itself"], "--beside", files["by_the_first"]]) == 0
    table = capsys.readouterr().out
    for whose in ("the model itself", "another run"):
        assert f"judge: {whose}, mdlm, {model.digest[:8]}" in table


def test_rows_that_cannot_be_compared_are_refused_early(run, model, judge, tmp_path, capsys):
    file = str(tmp_path / "judged.jsonl")
    run_compare(model, judge, file=Path(file))
    how = ["--judge", "self", "--samplers", "ancestral", "--steps", "2,3", "--samples", "2"]
    command = ["evaluate", "generation", str(run), *how]
    assert main([*command, "--beside", file, "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "was measured by another judge" in err
    assert main([*command, "--beside", str(tmp_path / "none.jsonl")]) == 2
    assert "real text" not in (err := capsys.readouterr().err) and "no file" in err


def test_the_precision_of_model_and_judge_is_a_condition(model, run, tmp_path, bf16):
    file = tmp_path / "rows.jsonl"
    half = unmask.load(run, precision="bf16")
    assert half.digest == model.digest
    rows = run_compare(model, None, file=file)
    halves = run_compare(half, None, file=file)
    assert halves[0].nats != rows[0].nats  # real text, so only the judge's arithmetic differs
    assert halves[0].judge == f"the model itself, mdlm in bf16, {model.digest[:8]}"
    whole = run_compare(half, model, file=file)
    assert whole[0].nats == rows[0].nats
    assert len(file.read_text().splitlines()) == 6  # no row was reused for another
    assert [run_compare(*who, file=file) for who in ((model, None), (half, None), (half, model))] == [
        rows, halves, whole,
    ]  # fmt: skip


def test_bounds_are_marked_and_unpublished_figures_are_reported(
    run, judge_folder, tmp_path, capsys
):
    how = ["--samplers", "left_to_right", "--samples", "2"]
    command = ["evaluate", "generation", str(run), *how]
    assert main([*command, "--judge", "self"]) == 0
    table = capsys.readouterr().out
    lines = [line for line in table.splitlines() if "real text" in line or "left_to_right" in line]
    assert [line.count("≤") for line in lines] == [3, 3]  # nats, perplexity, bits per byte
    assert "not GPT-2-large: perplexity cannot be compared with published ones" in table
    out = tmp_path / "rows.jsonl"
    assert main([*command, "--judge", str(judge_folder), "--out", str(out)]) == 0
    assert "≤" not in capsys.readouterr().out
    rows = stored(out)
    for name, other in [
        ("openai-community/gpt2-large", False),
        ("tiny", True),
        ("not-gpt2-large", True),
    ]:
        judged = [
            replace(row, judge=f"{name} after <|endoftext|>, windows of 1024") for row in rows
        ]
        assert (
            any(
                "not GPT-2-large: perplexity and MAUVE" in line
                for line in Generation().notes(judged)
            )
            == other
        )
        mixed = [*judged, replace(rows[0], judge="another run, mdlm")]
        assert any("not GPT-2-large" in line for line in Generation().notes(mixed))


def test_an_unknown_interval_is_a_question_mark(model, judge):
    row = run_compare(model, judge)[-1]
    alike = replace(
        row, repetition=0.0, repetition_error=math.inf, nats_error=math.inf, intervals={}
    )
    assert Generation().cells(alike)["repeated-4"] == "0.0000 ± ?"
    assert Generation().cells(alike)["perplexity"] == f"{row.perplexity:.4f} ± ?"


@pytest.mark.parametrize(
    ("suite", "argv", "message"),
    [
        ("generation", [], "hub cannot be reached"),  # GPT-2-large
        ("generation", ["--judge", "no/judge"], "no judge 'no/judge'"),
        ("generation", ["--judge", "FOLDER", "--judge-prefix", "<s>"], "has no token '<s>'"),
        ("generation", ["--judge", "FOLDER", "--samples", "0"], "samples must be 1 or more, not 0"),
        ("generation", ["--judge", "FOLDER", "--out", "x.txt"], "has an unknown ending: give .png"),
    ],
)
def test_a_mistake_is_one_line(run, judge_folder, monkeypatch, capsys, suite, argv, message):
    monkeypatch.setattr("socket.getaddrinfo", lambda *a, **k: (_ for _ in ()).throw(OSError()))
    monkeypatch.setattr("unmask.files.hub.getproxies", dict)
    argv = [{"FOLDER": str(judge_folder), "RUN": str(run)}.get(word, word) for word in argv]
    assert main(["evaluate", suite, str(run), *argv]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


# The picture


def test_a_sampler_without_steps_is_a_line_through_temperatures(tmp_path):
    fixed = {name: 0.1 for name in Row.__annotations__ if "error" in name}
    fixed |= {"distinct_2": 0.5, "repetition": 0.0, "n": 4, "tokens": 9, "certificate": "exact"}
    rows = [
        Row(sampler="data", calls=None, seconds=None, nats=3.0, entropy=4.0, **fixed),
        *(
            Row(
                sampler="left_to_right", temperature=t, calls=64.0, seconds=1.0, nats=2 + t,
                entropy=3 + t, **fixed,
            )
            for t in (1.0, 0.5, 0.8)
        ),
    ]  # fmt: skip
    draw(rows, tmp_path / "picture.svg")
    svg = (tmp_path / "picture.svg").read_text()
    assert svg.count("<!-- left_to_right -->") == 1
    assert all(svg.count(f"<!-- T={t:g} -->") == 1 for t in (1.0, 0.5, 0.8))
    assert "real text" in svg and "<!-- temperature" not in svg


def test_intervals_are_written_to_the_digits_they_leave():
    assert with_interval(34.123, 32.1, 36.9) == "34.1 [32.1, 36.9]"
    assert with_interval(0.5, 0.5, 0.5) == "0.5000 [0.5000, 0.5000]"
    assert with_interval(1234.5, 1000, 1500) == "1234 [1000, 1500]"


def test_the_device_of_a_judge_is_the_models(judge_folder):
    assert load_judge(judge_folder, "cpu").network.device == torch.device("cpu")
