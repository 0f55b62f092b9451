"""Suite `translation`: targets of a set of pairs and their scores."""

import json
from pathlib import Path

import pytest
from pair_runs import OWN, UNSEEN, turned
from tiny_models import one_line

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.extensions.pairs.translation import translate


@pytest.mark.parametrize("method", OWN)
def test_a_data_set_is_translated_and_scored(method, pair_models, tmp_path):
    model = pair_models[method]
    lines = [("ab", "BA"), ("abcdefgh", "X X X X"), ("ab", "BA BA"), ("abcdefg", "Y")]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps({"word": w, "turned": t}) + "\n" for w, t in lines))
    found = translate(model, str(path))
    assert found.sources == ["ab", "abcdefgh", "abcdefg"]
    assert found.references == [["BA", "BA BA"], ["X X X X"], ["Y"]]
    assert found.hypotheses[1] == ""
    assert (found.too_long, found.bleu.texts) == (1, 3)
    expected = model.generate(["ab", "abcdefg"], **found.decoding)  # the longest source that fits
    assert found.hypotheses[::2] == [str(result) for result in expected]
    assert found.calls == sum(result.calls for result in expected) / 2
    assert found.exact == (found.hypotheses[0] in ("BA", "BA BA")) + (found.hypotheses[2] == "Y")
    first = translate(model, str(path), sources=1)
    assert first.sources == ["ab"]
    # targets of two words have no BLEU
    assert first.bleu is None and first.to_dict()["score"] is None
    shorter = translate(model, str(path), length=9)
    assert shorter.too_long == 2 and shorter.hypotheses[1:] == ["", ""]


def test_a_set_with_an_unreadable_pair_has_no_score(pair_mdlm, tmp_path):
    """A score of the other pairs would not be the score of the set.
    Training may skip one pair of 200.
    """
    (tmp_path / "test.word").write_text("ab\n" * 200)
    (tmp_path / "test.turned").write_text("B A B A\n" * 7 + "\n" + "B A B A\n" * 192)
    with pytest.raises(UnmaskError) as caught:
        translate(pair_mdlm, str(tmp_path / "test.{word,turned}"))
    assert "test.{word,turned}:8" in one_line(caught)


def test_a_target_is_scored_for_each_source(pair_mdlm):
    with pytest.raises(UnmaskError, match="one target for each source: leave n out"):
        translate(pair_mdlm, n=2)


def test_without_data_the_validation_pairs_are_translated(pair_mdlm):
    found = translate(pair_mdlm)
    assert found.sources == UNSEEN
    right = sum(a == turned(b) for a, b in zip(found.hypotheses, UNSEEN, strict=True))
    assert found.exact == right > 0.7 * len(UNSEEN)


def translation(model: Path, *options: str) -> int:
    return main(["evaluate", "translation", str(model), *options])


def test_the_suite_prints_scores_and_saves_hypotheses(pair_runs, tmp_path, capsys):
    file = tmp_path / "out.txt"
    data = tmp_path / "test.jsonl"
    pairs = [{"word": word, "turned": " ".join(turned(word) + "AB")} for word in UNSEEN]
    data.write_text("\n".join(map(json.dumps, pairs)))
    options = ["--sources", "5", "--hypotheses", str(file), "--decoding", "ancestral:steps=4"]
    told = ["--data", str(data), "--seed", "5", "--batch", "2"]
    assert translation(pair_runs["mdlm"], *options, *told, "--json") == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["texts"] == 5
    assert figures["calls"] <= 4
    assert figures["fields"] == "word to turned"
    assert len(file.read_text().splitlines()) == 5
    assert "batch" not in figures["decoding"]
    assert translation(pair_runs["mdlm"], "--sources", "5") == 0
    assert "not defined: no reference has four words" in capsys.readouterr().out
    assert translation(pair_runs["mdlm"], "--sources", "5", "--data", str(data), "--seed", "5") == 0
    printed = capsys.readouterr().out
    assert "BLEU" in printed
    assert "confidence, deterministic, length first, seed 5" in printed
    # the whole signature, because scores with different signatures cannot be compared
    assert figures["signature"] in "".join(printed.split()).replace("│", "")


def test_the_path_of_hypotheses_is_checked_before_translation(
    pair_runs, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        "unmask.extensions.pairs.translation.translate", lambda *args, **options: pytest.fail()
    )
    for file, message in [
        (tmp_path / "no" / "out.txt", "there is no folder for"),
        (tmp_path, "is a folder: name a file in it"),
    ]:
        assert translation(pair_runs["mdlm"], "--hypotheses", str(file)) == 2
        assert message in capsys.readouterr().err


def test_a_model_of_text_does_not_translate(model):
    with pytest.raises(UnmaskError) as caught:
        translate(model)
    assert "data.source_field" in one_line(caught)


def test_the_end_of_a_target_is_decided_first_unless_it_is_free(pair_mdlm):
    first, free = (translate(pair_mdlm, sources=4, **ending) for ending in ({}, {"ending": "free"}))
    assert first.decoding["ending"] == "first"
    assert free.calls > first.calls
