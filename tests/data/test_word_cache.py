"""The word cache returns the library's ids for any text, with any content of the cache."""

import pickle
import string
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from unmask.data.tokenizers import word_cache as units
from unmask.data.tokenizers.subwords import SubwordTokenizer, byte_level, train_bpe
from unmask.data.tokenizers.word_cache import WordCache, cuttable
from unmask.errors import UnmaskError

WORDS = "the cat s don't 's 'll ' I'VE x'y 3rd 1,000.5 ² ½ _a_"
MARKS = '. ... ( " !? <|endoftext|> [MASK] [ ] </s> https://a.b/c?d=e&f'
BEYOND_ASCII = "é e\u0301 \u0301 ß İ Σ ǆ 日本 한 ा א 😀 👩‍👩‍👧 𝒳 ٣"
SPACES = [*"\n\t\x0b\x1c\x1f\x85\xa0\u2003\u2028\u3000", " ", "  ", "   ", "\n\n", "\r\n"]
UNSEEN = "\u200b\u180e\ufeff\x00\x01\x7f\ufffd\xad"
PARTS = [*WORDS.split(" "), *SPACES, *UNSEEN, *MARKS.split(" "), *BEYOND_ASCII.split(" ")]
TEXT = st.lists(
    st.sampled_from(PARTS) | st.text(st.characters(codec="utf-8"), max_size=3), max_size=25
).map("".join)
# A tokenizer that merges any adjacent characters in a word or in a run of spaces.
BPE = train_bpe(["".join(PARTS[i:] + PARTS[:i]) + " ".join(PARTS) for i in range(len(PARTS))], 600)


@pytest.fixture(params=["bpe", "gpt2", "bert"], scope="module")
def tokenizer(request, tokenizers) -> SubwordTokenizer:
    found = BPE if request.param == "bpe" else tokenizers[request.param]
    return SubwordTokenizer(found._backend, found.vocabulary)  # with an empty cache


# gpt2 finds words as bpe does
SPLITTERS = pytest.mark.parametrize("tokenizer", ["bpe", "bert"], indirect=True)


def library(tokenizer: SubwordTokenizer, text: str) -> list[int]:
    return tokenizer._backend.encode(text, add_special_tokens=False).ids


def words(backend: Backend, text: str) -> list[str]:
    """The words that the library looks up in its vocabulary."""
    text = backend.normalizer.normalize_str(text) if backend.normalizer else text
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


def assert_cuts_are_between_words(backend: Backend, text: str) -> None:
    cut = units._UNIT.findall(text)
    assert "".join(cut) == text
    assert [word for unit in cut for word in words(backend, unit)] == words(backend, text)


@SPLITTERS
@settings(max_examples=400)
@given(TEXT)
def test_cuts_are_between_words(tokenizer, text):
    assert_cuts_are_between_words(tokenizer._backend, text)


@SPLITTERS
def test_cuts_are_between_words_beside_every_odd_character(tokenizer):
    characters = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    odd = [c for c in characters if unicodedata.category(c)[0] in "MPSZ" or c <= "\xff"]
    odd += [c for c in characters if unicodedata.category(c) == "Cf"] + characters[::997]
    for first in range(0, len(odd), 1000):
        text = "".join(
            f" a.{c} {c}a{c} {c}'{c}s  {c} 1{c}2 a'{c}\n{c}" for c in odd[first : first + 1000]
        )
        assert_cuts_are_between_words(tokenizer._backend, text)


@settings(max_examples=200)
@given(st.lists(TEXT, min_size=1, max_size=4), st.sampled_from([0, units._WIDE, 1000]))
def test_ids_equal_those_of_the_library(tokenizer, texts, wide):
    expected = [library(tokenizer, text) for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "_WIDE", wide)  # at 0 no text is split, at 1000 every text
        for _ in range(2):  # the second time every word is in the cache
            assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == expected


@pytest.mark.parametrize("space", ["", " "])
def test_words_equal_those_of_the_library(tokenizer, space):
    for kind in (string.ascii_letters, string.digits, string.punctuation):
        words = [kind, kind[::-1], *(kind[i : i + n] for n in (1, 2, 3) for i in range(len(kind)))]
        for text in (space + word for word in words):
            assert tokenizer.encode(text) == library(tokenizer, text)


@settings(max_examples=200)
@given(TEXT, st.data())
def test_coverage_equals_that_of_the_library(tokenizer, text, data):
    text += data.draw(st.sampled_from(["", " \x01"]))  # BERT removes this character
    offsets = tokenizer._backend.encode(text, add_special_tokens=False).offsets
    tokens = data.draw(st.integers(0, len(offsets) + 2))
    assert tokenizer.covered(text, tokens) == [(0, 0), *offsets][: tokens + 1][-1][1]


def test_units_are_encoded_once():
    asked: list[str] = []

    def encode(texts: list[str]) -> list[bytes]:
        asked.extend(texts)
        return [text.encode() for text in texts]

    table = WordCache(encode)
    texts = ["the cat, the cat; the cat (the cat), " * 3, "the cat. " * 9]
    assert table.encode_batch(texts) == [text.encode() for text in texts]
    assert sorted(asked) == [" ", " (", " cat", " the", "),", ",", ".", ";", "the"]
    asked.clear()
    assert table.encode_batch(texts) == [text.encode() for text in texts]
    assert table.encode_batch(["the cat! " * 9]) == [b"the cat! " * 9]
    assert asked == ["!"]


def test_plain_words_go_straight_to_the_model():
    words, rest = [], []

    def encode(texts: list[str]) -> list[bytes]:
        rest.extend(texts)
        return [text.encode() for text in texts]

    table = WordCache(encode, lambda word: words.append(word) or word.encode())
    text = "the cat's 3rd café, (1990)\nnaïve 42"
    assert table.encode_batch([text]) == [text.encode()]
    assert words == ["the", " cat", " (", "1990", ")", " 42"]
    assert rest == ["'s", " 3rd", " café,", "\n", "naïve"]


def test_texts_without_words_are_encoded_as_they_are():
    asked: list[list[str]] = []
    table = WordCache(lambda texts: asked.append(texts) or [text.encode() for text in texts])
    texts = ["日本語の文章には空白がありません。" * 3, "but here", "それで全部一度に。" * 4]
    assert table.encode_batch(texts) == [text.encode() for text in texts]
    assert asked == [["but"], [" here"], [texts[0], texts[2]]]
    assert list(table._cache) == ["but", " here"]


def test_the_table_stays_small(monkeypatch):
    monkeypatch.setattr(units, "_ROOM", 20_000)
    monkeypatch.setattr(units, "_WIDE", 1000)
    table = WordCache(lambda texts: [text.encode() for text in texts])
    for number in range(300):
        text = f"the cat {number} sat {'x' * 100}{number} on {number * 7}"
        assert table.encode_batch([text]) == [text.encode()]
        taken = sum(units._ENTRY + len(unit) for unit in table._cache)
        assert taken == table._cache._bytes <= 20_000
    assert list(table._cache)[:2] == ["the", " cat"]  # the first words stay
    # the last words are in the cache
    assert f" {299 * 7}" in table._cache and " 150" not in table._cache
    assert max(map(len, table._cache)) <= units._LONG


def test_a_copy_has_an_empty_cache(tokenizer):
    tokenizer.encode("the cat sat on the mat " * 9)
    assert tokenizer._units._cache
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert not copy._units._cache and copy.encode("the cat") == tokenizer.encode("the cat")
    assert copy.fingerprint == tokenizer.fingerprint


def _prefixed(backend: Backend) -> None:
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


def _in_one_piece(backend: Backend) -> None:
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def _normalized(backend: Backend) -> None:
    backend.normalizer = normalizers.Replace(" ", "")


@pytest.mark.parametrize("change", [_prefixed, _in_one_piece, _normalized, None])
def test_other_tokenizers_are_left_to_the_library(change):
    text = "the cat sat, on the cat sat"
    backend = byte_level(models.BPE())
    assert cuttable(backend)
    if change:
        change(backend)
    backend.train_from_iterator([text] * 9)
    if not change:  # an added word has an id after the learned ones
        backend.add_tokens([AddedToken("cat sat")])
    assert not cuttable(backend)
    tokenizer = SubwordTokenizer(backend, BPE.vocabulary)
    assert tokenizer.encode(text) == library(tokenizer, text)
    tokenizer._units = WordCache(tokenizer._encoded)
    assert tokenizer.encode(text) != library(tokenizer, text)  # the cache would have been wrong


def test_merges_left_out_at_random_are_left_to_the_library():
    assert not cuttable(byte_level(models.BPE(dropout=0.1)))


def test_a_mask_that_is_looked_up_is_refused_every_time():
    backend = byte_level(models.BPE())
    backend.train_from_iterator(["the cat " * 9])
    mask_id = backend.encode(" cat").ids[-1]
    tokenizer = SubwordTokenizer(backend, BPE.vocabulary.over(backend.get_vocab_size(), mask_id))
    for _ in range(2):
        with pytest.raises(UnmaskError, match="encodes as its mask"):
            tokenizer.encode("the cat " * 9)
