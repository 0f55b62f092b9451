"""Reads tokenizer.json: the growth of a text in its steps is bounded before the library sees the file."""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer as Backend

from unmask.errors import UnmaskError

MOST_GROWTH = 256  # times the characters of a text
MOST_STEPS = 64  # of a normalizer, pre-tokenizer, decoder or post-processor
# Most characters that a step makes of one. Unicode's normal forms: U+FDFA has 18 letters.
_FORMS = ("NFC", "NFD", "NFKC", "NFKD", "BertNormalizer", "Precompiled")
_GROWTH = {
    "NFC": 3,
    "NFD": 4,
    "NFKC": 18,
    "NFKD": 18,
    "BertNormalizer": 12,
    "Lowercase": 2,
    "ByteLevel": 4,
    "Metaspace": 2,
    "WordPiece": 2,
    "BPEDecoder": 2,
    "CTC": 2,
}
_LISTS = ("normalizers", "pretokenizers", "decoders", "processors")


def read_backend(content: str) -> Backend:
    """The tokenizer of a file tokenizer.json.

    Args:
        content: The content of the file, which is untrusted.

    Returns:
        The tokenizer of the `tokenizers` library.

    Raises:
        UnmaskError: If its steps could make a text more than `MOST_GROWTH` times as long.

    Example:
        >>> steps = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 9
        >>> read_backend(json.dumps({"normalizer": {"type": "Sequence", "normalizers": steps}}))
        Traceback (most recent call last):
        unmask.errors.UnmaskError: the tokenizer's normalizer …
    """
    found = json.loads(content)
    if isinstance(found, Mapping):
        check_growth(found)
    return Backend.from_str(content)


def check_growth(content: Mapping[str, Any]) -> None:
    """Raises an error if the steps of a tokenizer could make a text too long.

    Args:
        content: The content of tokenizer.json.
    """
    for names in (("normalizer", "pre_tokenizer"), ("decoder",), ("post_processor",)):
        growth = math.prod(_growth(_steps(content.get(name), name)) for name in names)
        if growth > MOST_GROWTH:
            raise UnmaskError(
                f"the tokenizer's {' and '.join(names)} can make a text {growth:.4g} times as long, "
                f"and {MOST_GROWTH} times is the limit: remove steps that insert text"
            )


def _steps(part: Any, name: str) -> list[Mapping[str, Any]]:
    """The steps of a part of the file, with those of sequences in sequences."""
    steps, parts = [], [part]
    while parts:
        one = parts.pop()
        if isinstance(one, Mapping):
            inner = next((one[key] for key in _LISTS if isinstance(one.get(key), list)), None)
            if inner is None:
                steps.append(one)
            else:
                parts += reversed(inner)
        if len(steps) + len(parts) > MOST_STEPS:
            raise UnmaskError(f"the tokenizer's {name} has more than {MOST_STEPS} steps")
    return steps


def _growth(steps: list[Mapping[str, Any]]) -> float:
    """Most characters that the steps make of one.

    A text in a normal form does not grow in another one. So forms without an insertion between
    them count once, together with one table of SentencePiece, which holds a normal form too.
    """
    total, normal, tables = 1.0, 1.0, 0  # `normal`, `tables`: since the last insertion
    for step in steps:
        kind = str(step.get("type"))
        if kind in _FORMS:
            tables += kind == "Precompiled"
            own = _charsmap(step) if kind == "Precompiled" else float(_GROWTH[kind])
            if tables > 1:
                total, normal, tables = total * normal, own, 1
            normal = max(normal, own)
            continue
        if kind == "Lowercase":  # keeps a normal form
            total *= _GROWTH[kind]
            continue
        own = _inserted(step, kind)
        if own > 1 or not str(step.get("content", "")).isascii():
            total, normal, tables = total * normal * own, 1.0, 0
    return total * normal


def _inserted(step: Mapping[str, Any], kind: str) -> float:
    """Most characters that a step makes of one, apart from normal forms."""
    if kind == "Replace":
        pattern, content = step.get("pattern"), len(str(step.get("content", "")))
        literal = pattern.get("String") if isinstance(pattern, Mapping) else None
        if isinstance(literal, str) and literal:
            return max(1.0, content / len(literal))
        return 1.0 + content  # a regular expression may match nothing between characters
    if kind == "Prepend":
        return 1.0 + len(str(step.get("prepend", "")))
    if kind == "TemplateProcessing":
        return float(max(_pieces(step.get("single")), _pieces(step.get("pair")), 1))
    texts = [step.get(name) for name in ("prefix", "suffix", "replacement", "word_delimiter_token")]
    longest = max((len(one) for one in texts if isinstance(one, str)), default=1)
    return float(_GROWTH.get(kind, 1)) * max(1, longest)


def _pieces(template: Any) -> int:
    """The sequences of a template, repeated ones too, and one more for its special tokens."""
    names = [str(piece) for piece in template] if isinstance(template, list) else []
    return 1 + sum("Sequence" in name for name in names)


def _charsmap(step: Mapping[str, Any]) -> float:
    """The length of the longest text in a table of SentencePiece, behind its trie."""
    try:
        table = base64.b64decode(str(step.get("precompiled_charsmap") or ""))
    except ValueError:
        return 1.0  # the library refuses it
    texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
    return float(max(len(one.decode("utf-8", "replace")) for one in texts))
