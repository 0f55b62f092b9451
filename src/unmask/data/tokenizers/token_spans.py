"""The text that each token of a sequence adds to the decoded text."""

from collections.abc import Iterator, Sequence

from unmask.data.tokenizers.tokenizer import Tokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"  # an incomplete character decodes to it


def start(ids: list[int], tokenizer: Tokenizer) -> int:
    """The index where the target of a pair begins, after the source and its EOS; 0 without EOS."""
    eos = tokenizer.vocabulary.eos_id
    return ids.index(eos, 1) + 1 if eos in ids[1:] else 0


def shown(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """The tokens before the first EOS; all tokens if there is none."""
    v = tokenizer.vocabulary
    first = 1 if ids and ids[0] == v.bos_id else 0  # GPT-2's BOS is its EOS
    return ids[: ids.index(v.eos_id, first)] if v.eos_id in ids[first:] else ids


def finished_text(ids: list[int], tokenizer: Tokenizer, conditional: bool) -> str:
    """The text of a filled row up to its first EOS; of a row of a pair, the target."""
    first = start(ids, tokenizer) if conditional else 0
    return tokenizer.decode(shown(ids[first:], tokenizer))


def spans(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text that each token adds; joined, they are the decoded text.

    A token that ends inside a character adds an empty text.
    """
    found = list(_spans(tokenizer, ids))
    whole = tokenizer.decode(ids)
    # if later tokens change earlier text, the last token has all of it
    return found if "".join(found) == whole else [""] * (len(ids) - 1) + [whole]


def _spans(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[str]:
    """Decodes each token after those of the previous span: a first token may decode differently."""
    before = start = 0
    for end in range(1, len(ids) + 1):
        context = tokenizer.decode(ids[before:start])
        text = tokenizer.decode(ids[before:end]).removeprefix(context)
        if text.endswith(BROKEN) and end < len(ids):
            yield ""
            continue
        yield text
        if text:  # a token without text, such as a special one, is no context
            before, start = start, end
