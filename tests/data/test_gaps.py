import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.data.tokenizers.gaps import count_blanks, parse_blanks
from unmask.errors import UnmaskError

SENTENCE = "The [MASK] sat on the [MASK:4]."


def test_characters_and_bytes_keep_every_character(tokenizers):
    for kind in ("characters", "bytes"):
        tokenizer = tokenizers[kind]
        mask = [tokenizer.vocabulary.mask_id]
        expected = [*tokenizer.encode("The "), *mask, *tokenizer.encode(" sat on the "), *mask * 4]
        assert parse_blanks(SENTENCE, tokenizer) == expected + tokenizer.encode(".")


@pytest.mark.parametrize("kind", ["bpe", "gpt2", "bert"])
def test_the_space_before_a_gap_belongs_to_the_gap(kind, tokenizers):
    tokenizer = tokenizers[kind]
    mask = [tokenizer.vocabulary.mask_id]
    expected = [*tokenizer.encode("The"), *mask, *tokenizer.encode(" sat on the"), *mask * 4]
    assert parse_blanks(SENTENCE, tokenizer) == expected + tokenizer.encode(".")


def test_only_one_space_and_only_before_a_gap(tokenizers):
    bpe = tokenizers["bpe"]
    mask = [bpe.vocabulary.mask_id]
    assert parse_blanks("a  [MASK]", bpe) == bpe.encode("a ") + mask
    assert parse_blanks("[MASK] [MASK]", bpe) == mask * 2
    assert parse_blanks("a ", bpe) == bpe.encode("a ")
    # Filled with tokens that carry their space, the sentence reads as it was meant.
    ids = parse_blanks("the [MASK] sat", bpe)
    at = ids.index(mask[0])
    assert bpe.decode(ids[:at] + bpe.encode(" cat") + ids[at + 1 :]) == "the cat sat"


@given(st.text("ab [MASK:]1", max_size=20).filter(lambda text: "[MASK:" not in text))
def test_masks_are_as_many_as_counted(text):
    tokenizer = ByteTokenizer()
    ids = parse_blanks(text, tokenizer)
    assert ids.count(tokenizer.vocabulary.mask_id) == count_blanks(text) == text.count("[MASK]")


def test_counts():
    assert count_blanks("no gap, [mask], [MASK") == 0
    assert count_blanks("[MASK][MASK:2] x [MASK:10]") == 13
    assert count_blanks("[MASK:65536]") == 65536


@pytest.mark.parametrize(
    "count", ["0", "", "-1", "abc", "1.5", " 4", "٣", "65537", "999999999", "9" * 5000]
)
def test_bad_counts(count):
    for read in (count_blanks, lambda text: parse_blanks(text, ByteTokenizer())):
        with pytest.raises(UnmaskError, match=r"write .MASK. or .MASK:n. with n from 1 to 65536"):
            read(f"a [MASK:{count}] b")
