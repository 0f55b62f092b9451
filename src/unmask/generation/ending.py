"""The end of texts that fill their whole length: an EOS after the last complete sentence."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import torch

from unmask.data.tokenizers.token_spans import spans
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.samplers.core.canvas import Frame

# a sentence ends here, unless the full stop belongs to a title
_SENTENCE = re.compile(r"""(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bDr)[.!?…]["'”’)]*\s*$""")
_WINDOW = 12  # characters that the pattern reads


def end_sentences(
    frames: Iterator[Frame], tokenizer: Tokenizer, given: Sequence[int]
) -> Iterator[Frame]:
    """The frames, and one more frame if a finished text needs an EOS after its last sentence.

    Args:
        frames: the frames of a sampler.
        tokenizer: decodes the tokens.
        given: the number of given tokens at the start of each row.
    """
    last = None
    for last in frames:
        yield last
    if last is None:
        return
    tokens, eos_id = last.tokens.clone(), tokenizer.vocabulary.eos_id
    assert eos_id is not None  # the caller checks it
    for row, (ids, first) in enumerate(zip(last.tokens.tolist(), given, strict=True)):
        if ids[-1] == eos_id:  # rows of training end so, also in mid-sentence
            ids.pop()
        if eos_id not in ids[first:] and (end := last_sentence(spans(tokenizer, ids), first)):
            tokens[row, end] = eos_id
    if not torch.equal(tokens, last.tokens):
        yield replace(last, tokens=tokens, changed=tokens != last.tokens)


def last_sentence(texts: Sequence[str], given: int) -> int | None:
    """The position after the last complete sentence of a text.

    Args:
        texts: the text of each token.
        given: the number of given tokens at the start.

    Returns:
        The position, where no quotation is open if there is such a position. None if the text ends
        with a sentence, or if less than half of its new tokens would remain.

    Example:
        >>> last_sentence(["The", " cat", " sat", ".", " It"], given=1)
        4
    """
    before = list(accumulate(texts))
    if not before or _ends(before[-1]):
        return None
    least = (given + len(texts)) / 2
    ends = [
        at
        for at, (text, next_text) in enumerate(pairwise(before), 1)
        if at >= least and _ends(text) and next_text[len(text) :][:1].isspace()
    ]
    closed = [at for at in ends if before[at - 1].count('"') % 2 == 0]
    return max(closed or ends, default=None)


def _ends(text: str) -> bool:
    """True if a text ends with a sentence."""
    return _SENTENCE.search(text[-_WINDOW:]) is not None
