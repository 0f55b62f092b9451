"""The tokenizer in a GGUF file, as the files of a folder in the hub's layout."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from unmask.errors import UnmaskError
from unmask.formats.decoders.gguf_file import GGUFFile

_CONTROL, _DEFINED = (
    3,
    4,
)  # types of tokens: special tokens, and tokens found before words are split
_ROLES = ("bos", "eos", "padding", "unknown")
_BYTES: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_CASES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(digits: str) -> list[dict[str, Any]]:
    """Splits words with the pattern of GPT-4, in which a number has so many digits."""
    pattern = {"Regex": _CASES % digits}
    step = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    return [step, _BYTES | {"use_regex": False}]


_GPT2 = [_BYTES | {"use_regex": True}]
_WORDS: dict[str, list[dict[str, Any]]] = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": [{"type": "Digits", "individual_digits": True}, *_GPT2],
    "llama-bpe": _split("{1,3}"),
    "qwen2": _split(""),
}


def gguf_tokenizer(file: GGUFFile) -> dict[str, str]:
    """The files tokenizer.json and tokenizer_config.json.

    Args:
        file: the GGUF file.

    Returns:
        The content of each file by name.
    """
    tokens, kinds = (_listed(file, name) for name in ("tokens", "token_type"))
    added = [
        {"id": number, "content": token, "special": kind == _CONTROL, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _DEFINED)
    ]
    model = file.field("tokenizer.ggml.model")
    builders = {"gpt2": _byte_level, "llama": _sentence_piece}
    if model not in builders:
        raise UnmaskError(
            f"{file.path} has a tokenizer of type {model!r}; known types: {', '.join(builders)}: "
            "name its tokenizer with 'unmask convert --tokenizer'"
        )
    content = {"version": "1.0", "added_tokens": added, **builders[model](file, tokens)}
    return {
        "tokenizer.json": json.dumps(content),
        "tokenizer_config.json": json.dumps(_settings(file, tokens)),
    }


def _settings(file: GGUFFile, tokens: Sequence[str]) -> dict[str, Any]:
    """The special tokens and the chat template."""
    settings = {"chat_template": file.field("tokenizer.chat_template")}
    for role in _ROLES:
        number = file.field(f"tokenizer.ggml.{role}_token_id")
        if number is not None and number < len(tokens):
            settings[f"{role.removesuffix('ding').removesuffix('nown')}_token"] = tokens[number]
    return settings


def _byte_level(file: GGUFFile, tokens: Sequence[str]) -> Mapping[str, Any]:
    """A byte-level BPE, as GPT-2's."""
    words = file.field("tokenizer.ggml.pre") or "default"
    if words not in _WORDS:
        raise UnmaskError(
            f"{file.path} splits words as {words!r}; known: {', '.join(_WORDS)}: "
            "name its tokenizer with 'unmask convert --tokenizer'"
        )
    merges = [merge.split(" ", 1) for merge in _listed(file, "merges")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    whole = words == "llama-bpe"  # a word that is a token needs no merges
    return {
        "normalizer": {"type": "NFC"} if words == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _WORDS[words]},
        "decoder": _BYTES | {"use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": whole},
    }


def _sentence_piece(file: GGUFFile, tokens: Sequence[str]) -> Mapping[str, Any]:
    """A SentencePiece BPE with bytes for unknown characters, as Llama 2's."""
    scores = _listed(file, "scores")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [
        (-scores[number], vocabulary[token[:cut]], vocabulary[token[cut:]])
        for token, number in vocabulary.items()
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prefix = file.field("tokenizer.ggml.add_space_prefix") is not False
    back = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoders = [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *[strip] * prefix]
    return {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [*[{"type": "Prepend", "prepend": "▁"}] * prefix, space],
        },
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": [(tokens[left], tokens[right]) for _, left, right in sorted(merges)],
            "unk_token": tokens[file.field("tokenizer.ggml.unknown_token_id") or 0],
            "fuse_unk": True,
            "byte_fallback": True,
        },
    }


def _listed(file: GGUFFile, name: str) -> list[Any]:
    found = file.field(f"tokenizer.ggml.{name}")
    if not isinstance(found, list):
        raise UnmaskError(f"{file.path} has no tokenizer: tokenizer.ggml.{name} is missing")
    return found
