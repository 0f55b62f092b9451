import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer, Text8Tokenizer
from unmask.data.tokenizers.kinds import build_tokenizer, load_tokenizer
from unmask.data.tokenizers.subwords import SubwordTokenizer, train_bpe
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError

KINDS = ("bpe", "bytes", "characters", "text8", "gpt2", "bert")
UNICODE = st.text(st.characters(codec="utf-8"), max_size=60)
BPE = train_bpe(["the cat sat on the mat, the cat sat"], 280)


@given(UNICODE)
def test_bytes_and_bpe_give_every_text_back(text):
    for tokenizer in (ByteTokenizer(), BPE):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(UNICODE, st.text(max_size=5))
def test_characters_give_their_alphabet_back_and_the_rest_as_unknown(text, others):
    tokenizer = CharacterTokenizer(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    mixed = text + "".join(c for c in others if not 0xD800 <= ord(c) < 0xE000)
    expected = "".join(c if c in text else "\ufffd" for c in mixed)
    assert tokenizer.decode(tokenizer.encode(mixed)) == expected


@given(st.text("abcxyz ", max_size=60))
def test_text8_gives_its_27_symbols_back(text):
    tokenizer = Text8Tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(text.upper()) == tokenizer.encode(text)


def test_text8_reads_everything_else_as_a_space():
    tokenizer = Text8Tokenizer()
    assert tokenizer.vocabulary.size == 31  # 27, BOS, EOS, PAD, MASK
    assert tokenizer.decode(tokenizer.encode("A-b\n7é日")) == "a b    "


def test_text_without_a_token_becomes_the_unknown_token_if_there_is_one(tokenizers):
    found = {name: tokenizer.unknown_id for name, tokenizer in tokenizers.items()}
    assert {name for name, token in found.items() if token is not None} == {"characters", "bert"}
    for name in ("characters", "bert"):
        assert tokenizers[name].encode("\u4e2d") == [found[name]]


def test_word_piece_round_trip_up_to_case_and_spaces(tokenizers):
    bert = tokenizers["bert"]
    assert bert.decode(bert.encode("The  Cats sat,\non the mat.")) == "the cats sat, on the mat."


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids(kind, tokenizers):
    v = tokenizers[kind].vocabulary
    assert v.mask_id not in (v.pad_id, v.bos_id, v.eos_id)
    assert v.bos_id is not None and v.eos_id is not None
    if kind not in ("gpt2", "bert"):
        assert (v.bos_id, v.eos_id, v.pad_id, v.mask_id) == tuple(range(v.size - 4, v.size))


@pytest.mark.parametrize("kind", KINDS)
def test_special_words_in_text_are_text(kind, tokenizers):
    tokenizer = tokenizers[kind]
    v = tokenizer.vocabulary
    text = "a [MASK] b <|endoftext|> [CLS] [SEP] [PAD] <mask> c"
    special = {v.mask_id, v.bos_id, v.eos_id, v.pad_id}
    assert not special & set(tokenizer.encode(text))
    assert not special & set(tokenizer.encode_batch(["x", text])[1].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_decode_drops_special_ids(kind, tokenizers):
    tokenizer = tokenizers[kind]
    v = tokenizer.vocabulary
    special = [i for i in (v.bos_id, v.mask_id, v.eos_id, v.pad_id) if i is not None]
    ids = tokenizer.encode("the cat sat")
    assert tokenizer.decode([*special, *ids, *special]) == "the cat sat"
    assert tokenizer.decode(torch.tensor(ids)) == tokenizer.decode(np.array(ids)) == "the cat sat"
    assert tokenizer.decode(special) == tokenizer.decode([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_batch_agrees_with_single(kind, tokenizers):
    tokenizer = tokenizers[kind]
    texts = ["", "the cat", " on the mat.", "日本語 cats"]
    assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == list(
        map(tokenizer.encode, texts)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(kind, tokenizers, tmp_path):
    tokenizer = tokenizers[kind]
    tokenizer.save(tmp_path / "saved")
    loaded = load_tokenizer(tmp_path / "saved")
    assert loaded.vocabulary == tokenizer.vocabulary
    assert loaded.fingerprint == tokenizer.fingerprint
    text = "The cat [MASK] 日本語, naïve"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def test_fingerprints_tell_tokenizers_apart(tokenizers):
    gpt2 = tokenizers["gpt2"]
    several = [*tokenizers.values(), CharacterTokenizer("ab"), CharacterTokenizer("abc"), BPE]
    several.append(gpt2.with_pad())
    assert len({tokenizer.fingerprint for tokenizer in several}) == len(several)


def test_fingerprint_is_the_same_everywhere():
    # Pinned, because a change invalidates every cache.
    assert CharacterTokenizer("ollhé").fingerprint == "3f473b31ffd2b0cf7a3405dd31806737"


def test_bpe_size_counts_every_id_and_training_repeats_itself():
    texts = ["low lower lowest new newer newest wide wider widest"] * 3
    tokenizer = build_tokenizer(TokenizerConfig("bpe", 270), iter(texts))
    assert tokenizer.vocabulary.size == 270
    assert tokenizer.fingerprint == train_bpe(texts, 270).fingerprint
    assert len(tokenizer.encode("newest")) < len("newest")


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_covered_counts_the_characters_of_a_prefix(kind, tokenizers, data):
    tokenizer = tokenizers[kind]
    text = data.draw(st.text("the cats,日é", max_size=30))
    ids = tokenizer.encode(text)
    tokens = data.draw(st.integers(0, len(ids)))
    covered = tokenizer.covered(text, tokens)
    assert 0 <= covered <= len(text)
    assert tokenizer.covered(text, 0) == 0
    if kind in ("characters", "text8"):
        assert covered == tokens
    elif kind != "bert":
        whole = tokenizer.decode(ids[:tokens]).rstrip("\ufffd")
        assert text.startswith(whole) and len(whole) <= covered <= len(whole) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_lone_surrogate(kind, tokenizers):
    with pytest.raises(UnmaskError, match=r"character 0 of a .* \(U\+DCC3\).*; .*LC_ALL=C.UTF-8"):
        tokenizers[kind].encode("\udcc3\udca4")  # ä on a command line whose locale is ASCII
    with pytest.raises(UnmaskError, match=r"character 2 of a text is a lone surrogate \(U\+D800\)"):
        tokenizers[kind].encode("ab\ud800c")


def test_load_errors(tmp_path):
    with pytest.raises(UnmaskError, match="no tokenizer folder"):
        load_tokenizer(tmp_path / "absent")
    CharacterTokenizer("abc").save(tmp_path)
    (tmp_path / "alphabet.json").write_text("[")
    with pytest.raises(UnmaskError, match="is damaged"):
        load_tokenizer(tmp_path)
    BPE.save(tmp_path / "words")
    (tmp_path / "words" / "tokenizer.json").write_text("{}")
    with pytest.raises(UnmaskError, match="is damaged"):
        load_tokenizer(tmp_path / "words")
    (tmp_path / "vocabulary.json").write_text(json.dumps({"kind": "byte"}))
    with pytest.raises(UnmaskError, match="did you mean 'bytes'"):
        load_tokenizer(tmp_path)


def test_config_ranges():
    with pytest.raises(UnmaskError, match="unknown tokenizer kind 'byte'; did you mean 'bytes'"):
        TokenizerConfig("byte")
    with pytest.raises(UnmaskError, match="at least 260"):
        TokenizerConfig("bpe", 259)
    with pytest.raises(UnmaskError, match=r"needs tokenizer.path"):
        TokenizerConfig("hf")


def test_subwords_own_the_leading_space(tokenizers):
    assert all(t.leading_space == isinstance(t, SubwordTokenizer) for t in tokenizers.values())


def test_a_chat_template_is_read_and_kept(tmp_path):
    backend = BPE.backend()
    backend.add_special_tokens(["<user>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    template = "<user>{{ messages[0].content }}"
    settings = {"chat_template": [{"name": "default", "template": template}]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.save(tmp_path / "saved")
    for one in (tokenizer, load_tokenizer(tmp_path / "saved"), tokenizer.with_labels(["a"])):
        assert one.chat_template == template
        special = backend.token_to_id("<user>")
        assert one.encode_special("<user>cat") == [special, *one.encode("cat")]
        assert special not in one.encode("<user>cat")
    (tmp_path / "chat_template.jinja").write_text("other")
    assert load_tokenizer(tmp_path).chat_template == "other"
    assert BPE.chat_template is None
