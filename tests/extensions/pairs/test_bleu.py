"""BLEU: values by hand, its interval, and its signature."""

import sys

import pytest

from unmask.errors import UnmaskError
from unmask.extensions.pairs.bleu import bleu, defined

HYPOTHESES = ["the cat sat on the mat", "a dog runs in the park", "two men are at a table"]
OTHERS = ["the cat sat on a mat", "the dog runs through the park", "two men sit at a table"]


def test_the_score_is_the_geometric_mean_of_precisions_with_a_brevity_penalty():
    assert bleu(HYPOTHESES, [[text] for text in HYPOTHESES]).score == pytest.approx(100)
    # 'the cat sat on the mat' against '… on a mat': 5/6, 3/5, 2/4, 1/3 of the grams
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert bleu(HYPOTHESES[:1], [OTHERS[:1]]).score == pytest.approx(expected)


def test_a_text_may_have_any_number_of_references():
    both = [[OTHERS[0], HYPOTHESES[0]], [OTHERS[1]], [OTHERS[2]]]
    one = [[text] for text in OTHERS]
    assert bleu(HYPOTHESES, both).score > bleu(HYPOTHESES, one).score
    assert bleu(HYPOTHESES[:1], both[:1]).score == pytest.approx(100)


def test_a_score_has_an_interval_and_a_signature():
    found = bleu(HYPOTHESES * 5, [[text] for text in OTHERS] * 5)
    assert found.low < found.score < found.high
    assert found.texts == 15
    assert "bs:1000" in found.signature and "tok:13a" in found.signature
    assert found == bleu(HYPOTHESES * 5, [[text] for text in OTHERS] * 5)
    assert str(found) == f"BLEU {found.score:.2f} [{found.low:.2f}, {found.high:.2f}]"


def test_the_interval_stays_within_the_range_of_scores():
    """With few texts, some of them perfect,
    the mean of the resamples is near an end of the range.
    """
    texts = [*HYPOTHESES, HYPOTHESES[0]]
    others = [["something else is written here"]] * 2
    mixed = bleu(texts, [[texts[0]], [texts[1]], *others])
    assert 0 < mixed.low < mixed.score < mixed.high == 100
    poor = bleu(texts, [[texts[0]], ["no"], *others])
    assert 0 == poor.low < poor.score < poor.high < 100
    same = bleu(texts, [[text] for text in texts])
    assert same.low <= same.score <= same.high <= 100
    alike = bleu(
        ["the cat sat on the mat"] * 5, [["the cat sat on a mat", "a cat sat on the mat"]] * 5
    )
    assert alike.low <= alike.score <= alike.high  # without rounding errors


def test_few_texts_have_no_interval():
    found = bleu(HYPOTHESES, [[text] for text in HYPOTHESES])
    assert (len(HYPOTHESES), found.low, found.high) == (3, None, None)
    assert str(found) == "BLEU 100.00 [?, ?]"


def test_short_references_have_no_score():
    assert not defined([["a b c"], ["d"]])
    assert defined([["a"], ["b", "c d, e"]])  # a comma is a word to BLEU


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([], [], "no text to score"),
        (["a"], [["a"], ["b"]], "1 texts cannot be scored by 2"),
        (["a"], ["a"], "a list of references per text"),
        (["a"], [[]], "a text has no reference for BLEU"),
        (["a b c d e"], [["a b c"]], "n-grams of 4 words, and no reference has 4"),
    ],
)
def test_a_mistake_is_one_line(hypotheses, references, message):
    with pytest.raises(UnmaskError, match=message):
        bleu(hypotheses, references)


def test_without_the_package_the_error_has_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UnmaskError, match=r"BLEU needs sacrebleu: pip install -e '\.\[eval\]'"):
        bleu(["a"], [["a"]])
