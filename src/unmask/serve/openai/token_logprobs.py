"""OpenAI's logprobs: log p of each token given those before it,
by the chain rule from left to right.

For a masked model, this is the likelihood of writing the text from left to right. It is not the
likelihood of the order in which a sampler wrote the text.
"""

import codecs
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.likelihood.token_scores import TokenScore, token_scores
from unmask.model import Model
from unmask.serve.openai.completion_task import Task

LEAST = -9999.0  # JSON has no infinity; OpenAI's API has this value for probability 0


def mean_log_probability(model: Model, given: Sequence[int], ids: Sequence[int]) -> float:
    """The mean log p of the tokens behind the given ones; an empty text comes last."""
    scores = token_scores(model.method, model.length, given, ids)
    values = [score.log_p for score in scores if score.log_p is not None]
    return sum(values) / len(values) if values else -math.inf


def log_probabilities(
    model: Model, task: Task, ids: list[int], likeliest: int, echo: bool
) -> dict[str, Any]:
    """OpenAI's object `logprobs`.

    Args:
        model: the model.
        task: the prompt's tokens.
        ids: the tokens of the completion.
        likeliest: the number of likeliest tokens of each place.
        echo: True to score the prompt too.
    """
    if echo and model.conditional:
        raise UnmaskError("this model gives no probability to a source: leave echo or logprobs out")
    before, shown = task.given, ids
    if echo:
        before, shown = task.given[: task.lead], [*task.prompt, *ids]
    scored = [*task.given, *ids][len(before) :]
    scores = token_scores(model.method, model.length, before, scored, likeliest)
    # the first token of a row has no probability; a prompt of ids may begin with it
    scores = [TokenScore(None, [])] * (len(shown) - len(scores)) + scores
    names = token_names(model.tokenizer)
    top = [
        {names[token]: max(p, LEAST) for token, p in (*score.likeliest, (own, score.log_p))}
        if score.log_p is not None
        else None
        for own, score in zip(shown, scores, strict=True)
    ]
    return {
        "tokens": [names[token] for token in shown],
        "token_logprobs": [None if s.log_p is None else max(s.log_p, LEAST) for s in scores],
        "top_logprobs": top if likeliest else None,
        "text_offset": _offsets(model.tokenizer, shown),
    }


@lru_cache(16)
def token_names(tokenizer: Tokenizer) -> list[str]:
    """The text of each token; that of a part of a character is bytes:\\x.., as in OpenAI's API."""
    v, pieces = tokenizer.vocabulary, tokenizer.pieces()
    special = {v.pad_id: "[PAD]", v.bos_id: "[BOS]", v.mask_id: "[MASK]", v.eos_id: "[EOS]"}
    special |= {token: f"[{label}]" for label, token in tokenizer.labels.items()}
    names = []
    for token in range(v.size):
        if token in special:
            names.append(special[token])
        elif pieces is None or pieces[token] is None:
            names.append(tokenizer.decode([token]))
        else:
            names.append(_text(pieces[token]))
    return names


def _text(piece: bytes | None) -> str:
    piece = piece or b""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _offsets(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """The number of characters before each token."""
    pieces, offsets, total = tokenizer.pieces(), [], 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in ids:
        offsets.append(total)
        piece = None if pieces is None else pieces[token] or b""
        total += len(tokenizer.decode([token]) if piece is None else decoder.decode(piece))
    return offsets
