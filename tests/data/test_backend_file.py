"""The steps of a tokenizer.json may lengthen a text by a bounded factor; usual tokenizers are read."""

import base64
import json
import struct

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from unmask.data.tokenizers.backend_file import MOST_GROWTH, check_growth, read_backend
from unmask.errors import UnmaskError

TEN = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}


def sequence(*steps: dict, part: str = "normalizers") -> dict:
    return {"type": "Sequence", part: list(steps)}


def file(**parts) -> str:
    backend = Backend(models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    for name, part in parts.items():
        setattr(backend, name, part)
    return backend.to_str()


def charsmap(*texts: str) -> dict:
    table = struct.pack("<I", 4) + b"trie" + b"\0".join(text.encode() for text in texts) + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


USUAL = {
    "gpt2": {"pre_tokenizer": pre_tokenizers.ByteLevel(), "decoder": decoders.ByteLevel()},
    "bert": {
        "normalizer": normalizers.BertNormalizer(),
        "pre_tokenizer": pre_tokenizers.BertPreTokenizer(),
        "decoder": decoders.WordPiece(),
        "post_processor": processors.TemplateProcessing(
            single="a $A a", pair="a $A a $B:1 a:1", special_tokens=[("a", 0)]
        ),
    },
    "llama": {
        "normalizer": normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        "decoder": decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    },
    "qwen": {
        "normalizer": normalizers.NFC(),
        "pre_tokenizer": pre_tokenizers.Sequence(
            [pre_tokenizers.Split(r"\p{L}+", "isolated"), pre_tokenizers.ByteLevel(False)]
        ),
    },
    "albert without its table": {
        "normalizer": normalizers.Sequence(
            [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
        ),
        "pre_tokenizer": pre_tokenizers.Metaspace(),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_usual_tokenizers_are_read(name):
    content = file(**USUAL[name])
    assert read_backend(content).to_str() == content


def test_a_table_of_sentencepiece_behind_a_normal_form_counts_once():
    steps = [{"type": "NFKD"}, {"type": "Lowercase"}, charsmap("x" * 18, "y")]
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    check_growth({"normalizer": sequence(*steps, spaces), "pre_tokenizer": {"type": "Metaspace"}})
    with pytest.raises(UnmaskError, match="times as long"):
        check_growth({"normalizer": sequence(*steps, charsmap("x" * 18))})


@pytest.mark.parametrize(
    "content",
    [
        {"normalizer": sequence(*[TEN] * 9)},
        {"normalizer": sequence(TEN, sequence(TEN, TEN))},
        {"normalizer": sequence(TEN, TEN), "pre_tokenizer": {"type": "ByteLevel"}},
        {"decoder": sequence(*[TEN] * 3, part="decoders")},
        {"normalizer": {"type": "Prepend", "prepend": "a" * MOST_GROWTH}},
        {"normalizer": charsmap("a" * 300)},
        {"normalizer": {**TEN, "pattern": {"Regex": ""}, "content": "a" * MOST_GROWTH}},
        {"normalizer": sequence(*[{**TEN, "content": "\ufdfa"}, {"type": "NFKD"}] * 2)},
        {"pre_tokenizer": sequence(*[{"type": "ByteLevel"}] * 5, part="pretokenizers")},
        {"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 300}},
    ],
)  # fmt: skip
def test_steps_that_make_a_text_too_long_are_refused(content):
    with pytest.raises(UnmaskError, match=f"times as long, and {MOST_GROWTH} times is the limit"):
        read_backend(json.dumps(content))


@pytest.mark.parametrize("levels", [65, 100_000])
def test_too_many_steps_are_refused(levels):
    with pytest.raises(UnmaskError, match="normalizer has more than 64 steps"):
        check_growth({"normalizer": sequence(*[{"type": "NFC"}] * levels)})
