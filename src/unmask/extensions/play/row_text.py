"""Rows of tokens in the form of the page: no BOS or EOS, and None for a mask."""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

from unmask.data.tokenizers.gaps import count_blanks, parse_blanks
from unmask.data.tokenizers.token_spans import spans
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.model import Model
from unmask.randomness import row_uniforms

_CACHED = 4096  # runs of tokens between masks


class TokenTexts:
    """Decodes a row to the text of each token; caches the texts of the tokens between masks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._mask_id = tokenizer.vocabulary.mask_id
        self._texts = lru_cache(_CACHED)(partial(spans, tokenizer))

    def __call__(self, ids: Sequence[int]) -> list[str]:
        texts: list[str] = []
        for masked, run in groupby(ids, key=lambda token: token == self._mask_id):
            part = tuple(run)
            texts += [""] * len(part) if masked else self._texts(part)
        return texts


def row_of(model: Model, tokens: Sequence[int | None]) -> list[int]:
    """The ids of a row from the page; raises an error for special or unknown tokens."""
    v = model.tokenizer.vocabulary
    special = special_ids(model)
    if wrong := [
        token for token in tokens if token is not None and not _plain(token, v.size, special)
    ]:
        raise UnmaskError(f"{wrong[0]} is no text token of this model: reload the text")
    return [v.mask_id if token is None else token for token in tokens]


def typed_row(model: Model, text: str) -> list[int]:
    """The ids of a typed text; counts masks first, because `[MASK:999999999]` is a short text."""
    if (gaps := count_blanks(text)) > model.length:
        raise UnmaskError(
            f"the gaps have {gaps} tokens, but the model reads {model.length}: shorten them"
        )
    return parse_blanks(text, model.tokenizer)


def special_ids(model: Model) -> set[int]:
    """The ids that never occur in a text: MASK, BOS, EOS, PAD and class labels."""
    v = model.tokenizer.vocabulary
    named = {v.mask_id, v.bos_id, v.eos_id, v.pad_id, *model.tokenizer.labels.values()}
    return {token for token in named if token is not None}


def _plain(token: int, size: int, special: set[int]) -> bool:
    return token < size and token not in special


def token_data(model: Model, ids: list[int], seed: int) -> dict[str, Any]:
    """The tokens of a row with their texts, and a uniform u of each for the forward process.

    A token is masked at time t if u < 1 - alpha_t.
    """
    mask_id = model.tokenizer.vocabulary.mask_id
    texts = TokenTexts(model.tokenizer)(ids)
    return {
        "tokens": [
            {"id": None if token == mask_id else token, "text": text}
            for token, text in zip(ids, texts, strict=True)
        ],
        "uniforms": row_uniforms([seed], "forward", len(ids))[0].tolist(),
    }
