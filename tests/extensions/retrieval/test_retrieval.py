"""Retrieval: BM25 passages before a prompt, in generation and in the suite `retrieval`."""

import json

import pytest

pytest.importorskip("bm25s", reason="bm25s is not installed")

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import evaluate
from unmask.extensions.retrieval.bm25 import Retriever

PASSAGES = [
    "Zebras eat grass on the plain.",
    "The moon has no air and no water.",
    "The library opens at nine.",
    "A zebra has black and white stripes on the plain.",
]


@pytest.fixture
def notes(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("\n\n".join(PASSAGES) + "\n")
    return file


# The index


def test_the_passage_with_the_rarest_common_words_is_first(notes):
    retriever = Retriever.of(str(notes))
    assert retriever.passages == PASSAGES
    assert retriever.search("Where does a ZEBRA show its stripes?", 2)[0] == PASSAGES[3]
    assert retriever.search("moon", 4) == [PASSAGES[1]]
    assert retriever.search("xylophone", 4) == []
    assert retriever.search("", 4) == []
    assert len(retriever.search("the zebras on the plain", 100)) <= 4
    assert Retriever(["我们去河边散步。", "天上有月亮。"]).search("河边", 2) == ["我们去河边散步。"]


def test_a_folder_is_searched_too(tmp_path):
    for number, passage in enumerate(PASSAGES):
        (tmp_path / f"{number}.txt").write_text(passage)
    assert Retriever.of(str(tmp_path)).search("the moon", 1) == [PASSAGES[1]]


def test_an_empty_text_is_one_line(tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UnmaskError, match="no passages to search"):
        Retriever.of(str(tmp_path / "empty.txt"))
    with pytest.raises(UnmaskError, match="have no words"):
        Retriever(["!!! ???"])
    with pytest.raises(UnmaskError, match="1 or more, not -1"):
        Retriever(PASSAGES).search("moon", -1)


# Generation


def test_the_command_searches_for_each_prompt(run, notes, capsys):
    command = ["generate", str(run), "--prompt", "The moon", "--prompt", "zebra", "--length", "20"]
    command += ["--steps", "2", "--json", "--seed", "4"]
    assert main([*command, "--retrieve", str(notes), "--n", "2"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"][:5] for line in lines] == ["The m", "The m", "zebra", "zebra"]
    assert len({line["seed"] for line in lines}) == 4


def test_watch_shows_the_text_without_its_context(run, notes, capsys):
    command = ["generate", str(run), "--prompt", "zebra", "--length", "20", "--steps", "2"]
    command += ["--seed", "4", "--retrieve", str(notes)]
    plain, watched = (
        main(command) or capsys.readouterr().out for command in (command, [*command, "--watch"])
    )
    assert watched == plain and plain.startswith("zebra")


MISTAKES = [
    ([], "give --prompt"),
    (["--prompt", "a", "--prompt", "b", "--watch"], "give one --prompt"),
    (["--prompt", "a", "--passages", "0"], "--passages must be 1 or more"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_one_line(arguments, message, run, notes, capsys):
    assert main(["generate", str(run), "--retrieve", str(notes), *arguments]) == 2
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1


def test_passages_without_a_source_are_one_line(run, capsys):
    assert main(["generate", str(run), "--prompt", "a", "--passages", "3"]) == 2
    assert "--passages counts passages of --retrieve" in capsys.readouterr().err


def test_a_missing_source_is_one_line(run, capsys):
    assert main(["generate", str(run), "--prompt", "a", "--retrieve", "nowhere.txt"]) == 2
    assert "nowhere.txt" in capsys.readouterr().err


# The suite


@pytest.fixture
def paragraphs(tmp_path):
    """Paragraphs that differ; every one has a word of its own."""
    file = tmp_path / "paragraphs.txt"
    text = (
        f"number {i} of the list is word{i} and the king sat on hill {i} again." for i in range(60)
    )
    file.write_text("\n\n".join(text) + "\n")
    return str(file)


SMALL = {"prompt": 10, "target": 4, "context": 8, "draws": 2, "paragraphs": 4}


def test_the_suite_measures_three_contexts_on_the_same_targets(either, paragraphs):
    rows = evaluate(either, "retrieval", data=paragraphs, **SMALL)
    assert [row.context for row in rows] == ["none", "random passages", "retrieved passages"]
    assert rows[0].gain is None
    assert rows[0].tokens == 0
    for row in rows[1:]:
        assert 0 < row.tokens <= 8, row
        assert row.gain == pytest.approx(rows[0].bits_per_byte - row.bits_per_byte)
        assert row.low <= row.gain <= row.high
    again = evaluate(either, "retrieval", data=paragraphs, **SMALL)
    assert again == rows


def test_without_a_context_the_figure_is_the_likelihood_of_the_paragraph(either, paragraphs):
    """The chain rule from left to right is exact: the padding before a row changes nothing."""
    import torch

    from unmask.data.rows.row_counts import Totals
    from unmask.data.rows.token_rows import Layout, Rows
    from unmask.extensions.retrieval.context_gain import RetrievalOptions, _rows, held_out
    from unmask.likelihood.estimate import nats_by_row

    options = RetrievalOptions(data=paragraphs, **SMALL)
    held, _ = held_out(either, options)
    padded, sizes, tokens = _rows(either, held, lambda query: (), options)
    assert tokens == [0] * 4
    bos = either.tokenizer.vocabulary.bos_id
    table = torch.tensor([[15, 11, bos, *ids] for ids in held]).numpy()
    plain = Rows(table, Totals(4, 16, 16, 16), Layout(paired=True))
    how = {"order": "left_to_right"} if either.method.capabilities.any_order else {}
    nats = [nats_by_row(either.method, rows, draws=1, **how) for rows in (padded, plain)]
    for terms in zip(*(each.values() for each in nats), strict=True):
        assert terms[0] == pytest.approx(terms[1], rel=1e-4)
    assert sizes.tolist() == [len(either.tokenizer.decode(ids[10:]).encode()) for ids in held]


def test_a_held_out_paragraph_is_no_passage(model, paragraphs):
    from unmask.extensions.retrieval.context_gain import RetrievalOptions, held_out

    held, others = held_out(model, RetrievalOptions(data=paragraphs, **SMALL))
    assert len(held) == 4
    assert len(others) == 54  # nine of ten
    texts = {model.tokenizer.decode(ids) for ids in held}
    assert not any(other.startswith(tuple(texts)) for other in others)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 4000}, "context, prompt and target have"),
        ({"paragraphs": 50}, "held-out paragraphs of 14 tokens, and 50 are needed"),
    ],
)
def test_mistakes_of_the_suite(options, message, model, paragraphs):
    with pytest.raises(UnmaskError, match=message):
        evaluate(model, "retrieval", data=paragraphs, **{**SMALL, **options})
