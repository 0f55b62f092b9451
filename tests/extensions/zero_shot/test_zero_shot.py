"""The zero-shot suite on a tiny model: figures, reasons for absent sets, and one-line errors."""

import json
import math
import sys
from dataclasses import replace
from functools import partial
from itertools import islice

import pytest
from tiny_models import LENGTH, one_line

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import Progress, evaluate
from unmask.extensions.zero_shot.zero_shot import ZeroShot, ZeroShotOptions
from unmask.imports import install_command
from unmask.model import Model

zero_shot = partial(evaluate, suite="zero-shot")
PTB = " the cat 's on the N mats \n" * 20
SAMPLE = json.dumps({"article_text": ["the dog ( a ) sat .", "it is ."]}) * 9


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """PTB, a sample of arXiv, and nothing else."""
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "sets"
    folder.mkdir()
    (folder / "ptb.valid.txt").write_text(PTB)
    (folder / "scientific_papers_arxiv.sample.jsonl").write_text(SAMPLE)
    return folder


def test_the_figures_are_those_of_the_detokenized_text(either, folder):
    row = zero_shot(either, sets=["ptb"], folder=str(folder), draws=2)[0]
    # the same stream as a text file
    text = "the cat's on the 1 mats" * 20
    body = LENGTH - 2
    tokens = len(either.tokenizer.encode("the cat's on the 1 mats")) * 20
    assert row.bound.tokens == tokens // body * LENGTH
    assert 0 < row.bound.characters <= len(text)
    whole = (len(text) - row.bound.characters) / (len(text) / 20)
    assert row.documents == math.ceil(20 - whole)
    assert row.words == pytest.approx(7 * (20 - whole))
    assert (
        row.bound.bits_per_byte == row.bound.nats / math.log(2) * row.bound.tokens / row.bound.bytes
    )
    assert (row.set, row.absent, row.note) == ("ptb", "", "")
    assert row.source == str(folder / "ptb.valid.txt")
    sign = {"mdlm": "upper", "autoregressive": "exact"}[either.config.method.name]
    assert row.bound.certificate == sign


def test_perplexity_per_word_shares_the_whole_cost(either, folder):
    row = zero_shot(either, sets=["ptb"], folder=str(folder), draws=2)[0]
    a_word = row.bound.tokens / row.words  # tokens for each
    assert row.perplexity_per_word == pytest.approx(row.bound.perplexity**a_word)
    relative = row.bound.perplexity_error / row.bound.perplexity * a_word
    assert row.perplexity_per_word_error == pytest.approx(row.perplexity_per_word * relative)
    assert replace(row, words=1e-3).perplexity_per_word == math.inf
    assert "Infinity" not in (line := json.dumps(replace(row, words=1e-3).to_dict()))
    assert "NaN" not in line


def test_an_absent_set_is_a_row_with_a_reason_and_a_sample_is_named_so(model, folder):
    rows = zero_shot(model, folder=str(folder), draws=1)
    assert [row.set for row in rows] == [
        "ptb", "wikitext", "lm1b", "lambada", "ag_news", "pubmed", "arxiv",
    ]  # fmt: skip
    found = {row.set: row for row in rows if row.bound}
    assert set(found) == {"ptb", "arxiv"}
    assert found["arxiv"].note == "a sample, from validation and test"
    for row in rows:
        assert bool(row.absent) == (row.bound is None)
    assert "no lm1b.test.txt or other file of the set in" in rows[2].absent
    assert rows[2].to_dict()["absent"] == rows[2].absent
    assert "perplexity" not in rows[2].to_dict()


def test_a_limit_measures_the_first_rows_as_they_are_in_the_whole(model, folder):
    whole = zero_shot(model, sets=["ptb"], folder=str(folder), draws=1)[0]
    first = zero_shot(model, sets=["ptb"], folder=str(folder), draws=1, limit=2)[0]
    assert first.bound.tokens == 2 * LENGTH
    assert first.note == "first 2 rows"
    assert first.documents < whole.documents
    every = zero_shot(model, sets=["ptb"], folder=str(folder), draws=1, limit=1000)[0]
    assert every == whole


def test_the_result_depends_on_the_seed(model, folder):
    def nats(**options):
        return zero_shot(model, sets=["ptb"], folder=str(folder), draws=1, **options)[0].bound.nats

    assert nats(seed=1) == nats(seed=1) != nats(seed=2)


def test_one_set_is_named_alone(model, folder):
    alone, listed = (
        zero_shot(model, sets=sets, folder=str(folder), draws=1) for sets in ("ptb", ["ptb"])
    )
    assert alone == listed


def test_without_a_folder_sets_come_from_the_hub(model, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    asked = ZeroShotOptions(["wikitext", "pubmed-abstracts"])
    rows = list(islice(ZeroShot().rows(model, asked, Progress()), 2))
    assert rows[0].absent == (
        "hf:Salesforce/wikitext/wikitext-103-raw-v1:validation needs datasets: "
        + install_command("data")
    )
    assert rows[1].absent.startswith("the set is not on the hub")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"fine\n\xff\n", "is not UTF-8: byte 5 is 0xff"),
        (b"x", f"the text is too short for one row of {LENGTH} tokens"),
        (b"", "holds no text"),
        (b" \n \n", "holds no text"),
    ],
)
@pytest.mark.parametrize("limit", [None, 3])
def test_a_set_that_cannot_be_read_says_so_in_one_line(model, folder, content, reason, limit):
    (folder / "ptb.valid.txt").write_bytes(content)
    row, other = zero_shot(model, sets=["ptb", "arxiv"], folder=str(folder), draws=1, limit=limit)
    assert reason in row.absent
    assert "\n" not in row.absent
    assert other.bound is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": ["ptb", "wikitxt"]}, "unknown zero-shot set 'wikitxt'; did you mean 'wikitext'?"),
        ({"sets": []}, "the list of sets is empty: give some of ptb, wikitext"),
        ({"folder": "nowhere"}, "no folder nowhere"),
        ({"draws": 0}, "draws must be 1 or more, not 0"),
        ({"limit": 0}, "limit must be 1 or more, not 0"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_measured(
    model, folder, options, message, monkeypatch
):
    monkeypatch.setattr(
        "unmask.likelihood.estimate.likelihood", lambda *rest, **more: pytest.fail()
    )
    with pytest.raises(UnmaskError) as caught:
        zero_shot(model, **{"folder": str(folder)} | options)
    assert message in one_line(caught)


def test_a_model_of_pairs_is_refused(model):
    data = replace(model.config.data, source_field="source", target_field="target", packing="pad")
    pairs = Model(model.method, model.tokenizer, replace(model.config, data=data))
    with pytest.raises(UnmaskError, match="it has no perplexity of a text without a source"):
        zero_shot(pairs, sets=["ptb"])


# The command


def execute(run, *arguments) -> int:
    draws = [] if "--draws" in arguments else ["--draws", "1"]
    return main(["evaluate", "zero-shot", str(run), *map(str, arguments), *draws])


def test_the_table_holds_figures_preparation_and_reasons(run, folder, capsys):
    execute(run, "--folder", folder, "--limit", 2, "--sets", "ptb", "lm1b", "arxiv")
    printed = capsys.readouterr().out
    lines = " ".join(printed.split())
    assert (
        f"one stream cut into rows of {LENGTH}: BOS, {LENGTH - 2} tokens, EOS; 1 draw: errors over texts"
        in lines
    )
    row = next(line for line in printed.splitlines() if line.startswith((" ptb", "ptb")))
    assert row.count("≤") == 3
    assert row.count("±") == 3
    assert f" {2 * LENGTH} " in row
    for text in ("detokenizer ptb", "first 2 rows", "absent", "no lm1b.test.txt", "a sample"):
        assert text in printed
    assert f"ptb: {folder / 'ptb.valid.txt'}" in printed


def test_with_unknown_tokens_only_the_figure_per_token_is_a_bound(
    model, run, folder, capsys, monkeypatch
):
    ids = model.tokenizer.encode((folder / "ptb.valid.txt").read_text())
    monkeypatch.setattr(type(model.tokenizer), "unknown_id", max(ids, key=ids.count))
    execute(run, "--folder", folder, "--sets", "ptb")
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith((" ptb", "ptb")))
    assert (row.count("≤"), row.count("≈")) == (1, 2)
    assert " unknown tokens" in " ".join(printed.split())


def test_several_draws_show_how_many_would_halve_the_errors(run, folder, capsys):
    execute(run, "--folder", folder, "--limit", 2, "--sets", "ptb", "--draws", 2)
    out, err = capsys.readouterr()
    assert "EOS; 2 draws, 8 to halve the errors" in " ".join(out.split())
    assert err == ""


def test_draws_of_an_exact_likelihood_are_reported_as_without_effect(
    left_to_right, folder, tmp_path, capsys
):
    left_to_right.save(tmp_path / "ar")
    execute(tmp_path / "ar", "--folder", folder, "--limit", 2, "--sets", "ptb", "--draws", 2)
    assert capsys.readouterr().err == "--draws has no effect: this figure has no noise\n"


def test_json_lines(run, folder, capsys):
    execute(run, "--folder", folder, "--sets", "ptb", "lm1b", "--json")
    ptb, lm1b = map(json.loads, capsys.readouterr().out.splitlines())
    assert ptb["preprocessing"] == "validation, detokenizer ptb, no EOS between lines"
    assert ptb["length"] == LENGTH
    assert ptb["perplexity"] == pytest.approx(math.exp(ptb["nats"]))
    assert ptb["perplexity_per_word"] == pytest.approx(
        math.exp(ptb["nats"] * ptb["tokens"] / ptb["words"])
    )
    assert ptb["bits_per_byte_error"] == pytest.approx(
        ptb["bits_per_byte"] * ptb["error"] / ptb["nats"]
    )
    assert ptb["absent"] is None
    assert (ptb["model"], ptb["tokenizer"], ptb["precision"]) == (str(run), "bpe 300", "fp32")
    assert "no lm1b.test.txt" in lm1b["absent"]


def test_an_evaluation_of_no_readable_set_fails(run, folder, capsys):
    assert execute(run, "--folder", folder, "--sets", "lm1b") == 2
    printed, told = capsys.readouterr()
    assert told.endswith("none of the sets could be read, for the reasons in the table above\n")
    assert "no lm1b.test.txt" in printed
    assert "draw" not in printed  # nothing was drawn
    assert execute(run, "--sets", "pubmed-abstracts") == 2
    assert capsys.readouterr().err.endswith("; --folder DIR reads them from files\n")
