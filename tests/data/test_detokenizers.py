"""Detokenizers against examples worked by hand, with odd cases, and rules for any text."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.data_config import DataConfig
from unmask.data.documents.detokenizers import DETOKENIZERS
from unmask.data.load import load_data, rows_from
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError

EXAMPLES = [
    # clitics, numbers, unknown words; two adjacent Ns are two numbers
    (
        "ptb",
        "mr. <unk> said the company 's profit rose N N to $ N million",
        "mr. ? said the company's profit rose 1 1 to $1 million",
    ),
    (
        "ptb",
        "he did n't see the traders ' # N and\\/or less",
        "he didn't see the traders' #1 and/or less",
    ),
    # an N at either end of a line has no adjacent space, and stays
    ("ptb", "N of nov. N", "N of nov. N"),
    ("wikitext", " = Old Mill = \n", " = Old Mill =\n"),
    ("wikitext", " = = History = = \n", " == History ==\n"),
    ("wikitext", " = = = Wheel = = = \n", " === Wheel ===\n"),
    ("wikitext", " = = = = Rim = = = = \n", " ==== Rim ====\n"),
    (
        "wikitext",
        " The mill ( built in 1874 ) is three @-@ storey ; 2 @.@ 5 km , and £ 1 @,@ 200 : why ? No ! It is . \n",
        " The mill (built in 1874) is three-storey; 2.5 km, and £ 1,200: why? No! It is.\n",
    ),
    (
        "wikitext",
        ' It was " restored " [ again ] , the owner \'s { own } idea . \n',
        ' It was "restored" [again], the owner\'s {own} idea.\n',
    ),
    # two apostrophes are read as quotes, and lose the space next to the enclosed text
    ("wikitext", " the boys ' and girls ' idea", " the boys'and girls' idea"),
    # a quotation after a plural; of two adjacent marks only the second loses its space
    ("wikitext", "she sings ' Home ' at 12 ° N in a , .  b", "she sings'Home' at 12°N in a ,.  b"),
    # the letter N becomes a number here, too
    ("wikitext", "Richard N Smith", "Richard 1 Smith"),
    ("wikitext", "one line \n the next", "one line\nthe next"),
    ("lm1b", '" It costs $ 5 , not £ 4 , " he said .', '"It costs $5, not £4," he said.'),
    (
        "lm1b",
        "Is the firm 's plan ( the third ) [ or so ] dead ?",
        "Is the firm's plan (the third) [or so] dead?",
    ),
    (
        "lm1b",
        "See https : / / a . b / c : it works ! No . Yes ; ' so ' !",
        # a full stop after a word loses its space if a space precedes the word
        "See https://a . b/c: it works! No. Yes; 'so'!",
    ),
    # " a . b ." : each full stop, although they share a space
    ("lm1b", "So a . b .", "So a. b."),
    ("lm1b", "Stop ! !", "Stop!!"),
    ("lambada", " “ Go , ” he said . \n", '\n" Go , " he said .'),
    (
        "scientific_papers",
        "the liver ( ald ) , 3 @-@ fold .\nwhy ? we do not know .",
        # only the last full stop has no line after it
        "the liver (ald), 3-fold .\nwhy? we do not know.",
    ),
    # WikiText's rules come first: in the other order it would be "so. ;'s"
    ("scientific_papers", "so . ; 's", "so .;'s"),
    ("text8", "\nThe Café, 1940–45: [[two]]", "the caf one nine four zero four five two"),
]
AS_THEY_WERE = sorted(set(DETOKENIZERS) - {"text8"})


@pytest.mark.parametrize(("name", "text", "expected"), EXAMPLES)
def test_examples_worked_by_hand(name, text, expected):
    assert DETOKENIZERS.build(name)(text) == expected


def test_every_detokenizer_has_an_example_and_a_summary():
    assert {name for name, _, _ in EXAMPLES} == set(DETOKENIZERS)
    assert all(DETOKENIZERS.summaries().values())


TEXT = st.lists(st.sampled_from([*" ab'\".,:;!?()[]{}=$£#/1\n", " ", " ", " 's ", " n't "])).map(
    "".join
)


def without_space(text: str) -> str:
    return "".join(text.split())


@given(st.text())
def test_text8_has_27_symbols_and_is_idempotent(text):
    made = DETOKENIZERS.build("text8")(text)
    assert set(made) <= set(" abcdefghijklmnopqrstuvwxyz") and "  " not in made
    assert DETOKENIZERS.build("text8")(made) == made


@pytest.mark.parametrize("name", AS_THEY_WERE)
@given(text=TEXT)
def test_only_spaces_change_in_text_without_escaped_signs(name, text):
    found = DETOKENIZERS.build(name)(text)
    assert without_space(found) == without_space(text)
    assert len(found) <= len(text) + (name == "lambada")


@pytest.mark.parametrize("name", ["ptb", "wikitext", "lm1b", "scientific_papers"])
@given(words=st.lists(st.text("abcs", min_size=1)))
def test_plain_words_stay_as_they_are(name, words):
    text = " ".join(words)
    assert DETOKENIZERS.build(name)(text) == text


@given(words=st.lists(st.sampled_from(["a", "N"]), min_size=2, max_size=40))
def test_every_number_within_a_line_of_ptb_is_written_out(words):
    inner = ["1" if word == "N" else word for word in words[1:-1]]
    expected = " ".join([words[0], *inner, words[-1]])
    assert DETOKENIZERS.build("ptb")(" ".join(words)) == expected


# As a setting of the data


def ids(rows) -> list[list[int]]:
    return rows[range(len(rows))][0].tolist()


def test_text_is_detokenized_before_it_is_tokenised(tmp_path):
    stored, plain = tmp_path / "stored.txt", tmp_path / "plain.txt"
    stored.write_text("\n".join(f"it is n't {word} 's" for word in "abcdefghij"))
    plain.write_text("\n".join(f"it isn't {word}'s" for word in "abcdefghij"))
    config = DataConfig(
        train=str(stored),
        tokenizer=TokenizerConfig("bpe", 300),
        separator="line",
        packing="split",
        length=24,
        detokenizer="ptb",
    )
    ours, theirs = load_data(config), load_data(replace(config, train=str(plain), detokenizer=""))
    assert ours.tokenizer.fingerprint == theirs.tokenizer.fingerprint
    assert ids(ours.train) == ids(theirs.train)
    assert ids(ours.valid) == ids(theirs.valid)
    assert ours.train.bytes == theirs.train.bytes
    # a corpus is detokenized, a text of the user is not
    assert ids(rows_from(str(stored), ours.tokenizer, config)) == ids(
        rows_from(str(plain), ours.tokenizer, replace(config, detokenizer=""))
    )
    text = rows_from(["it is n't a 's"], ours.tokenizer, config)
    assert ours.tokenizer.decode(text[range(1)][0][0]) == "it is n't a 's"


def test_classes_survive(tmp_path):
    path = tmp_path / "a.jsonl"
    records = ({"text": f"is n't {i}", "kind": "ab"[i % 2]} for i in range(20))
    path.write_text("\n".join(map(json.dumps, records)))
    config = DataConfig(
        train=str(path),
        tokenizer=TokenizerConfig("bytes"),
        packing="pad",
        length=16,
        label_field="kind",
        detokenizer="ptb",
    )
    data = load_data(config)
    assert set(data.tokenizer.labels) == {"a", "b"}
    assert {row[0] for row in ids(data.train)} == set(data.tokenizer.labels.values())
    assert data.tokenizer.decode(ids(data.train)[0]).startswith("isn't ")


def test_a_typo_is_one_line():
    with pytest.raises(
        UnmaskError, match=r"^unknown data\.detokenizer 'wikitex'; did you mean 'wikitext'\?$"
    ):
        DataConfig(detokenizer="wikitex")
