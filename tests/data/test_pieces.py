"""A text is the concatenation of the bytes of its tokens,
or the tokenizer declares that it is not.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from unmask.data.tokenizers.subwords import SubwordTokenizer, train_bpe
from unmask.vocabulary import Vocabulary

SUPPORTED = ("bpe", "bytes", "characters", "text8", "gpt2")


def check(tokenizer, ids: list[int]) -> None:
    pieces = tokenizer.pieces()
    text = b"".join(pieces[i] or b"" for i in ids)
    assert tokenizer.decode(ids) == text.decode("utf-8", "replace")


@pytest.mark.parametrize("kind", SUPPORTED)
@given(data=st.data())
def test_decoding_is_concatenation(kind, tokenizers, data):
    tokenizer = tokenizers[kind]
    ids = st.integers(0, tokenizer.vocabulary.size - 1)
    check(tokenizer, data.draw(st.lists(ids, max_size=20)))
    check(tokenizer, tokenizer.encode(data.draw(st.text("the cats,日é", max_size=30))))


@pytest.mark.parametrize("kind", SUPPORTED)
def test_only_special_ids_have_no_piece(kind, tokenizers):
    tokenizer = tokenizers[kind]
    v = tokenizer.vocabulary
    pieces = tokenizer.pieces()
    assert len(pieces) == v.size
    special = {v.mask_id, v.pad_id, v.bos_id, v.eos_id} - {None}
    assert {i for i, piece in enumerate(pieces) if piece is None} == special


def test_every_byte_is_a_token_of_byte_level_tokenizers(tokenizers):
    for kind in ("bpe", "bytes", "gpt2"):
        assert {bytes([byte]) for byte in range(256)} <= set(tokenizers[kind].pieces())


def test_word_piece_has_no_pieces(tokenizers):
    assert tokenizers["bert"].pieces() is None


def test_added_tokens_and_ids_beyond_the_tokenizer():
    backend = train_bpe(["the cat sat on the mat"], 290)._backend
    backend.add_tokens(["naïve 日"])
    backend.add_special_tokens([AddedToken("<class>", special=True)])
    size = backend.get_vocab_size()
    tokenizer = SubwordTokenizer(backend, Vocabulary.over(size + 5))
    pieces = tokenizer.pieces()
    assert pieces[size - 2 :] == ["naïve 日".encode(), None, *[None] * 6]
    check(tokenizer, [*tokenizer.encode("the cat"), size - 2, size - 1, *tokenizer.encode(" sat")])
