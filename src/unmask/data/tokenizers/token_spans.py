"""The text of single tokens: what each adds to the text that they make together."""

from collections.abc import Iterator, Sequence

from unmask.data.tokenizers.tokenizer import Tokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"  # what a piece of a character decodes to


def start(ids: list[int], tokenizer: Tokenizer) -> int:
    """Where the target of a conditional row begins: behind the source and its EOS."""
    eos = tokenizer.vocabulary.eos_id
    return ids.index(eos, 1) + 1 if eos in ids[1:] else 0


def shown(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """The tokens up to the end of the text."""
    v = tokenizer.vocabulary
    first = 1 if ids and ids[0] == v.bos_id else 0  # GPT-2's BOS is its EOS
    return ids[: ids.index(v.eos_id, first)] if v.eos_id in ids[first:] else ids


def spans(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text that each token adds; nothing until a character is whole. Together they are the decoded text."""
    found = list(_spans(tokenizer, ids))
    whole = tokenizer.decode(ids)
    # a tokenizer whose pieces change with what follows has no spans: its text comes with the last token
    return found if "".join(found) == whole else [""] * (len(ids) - 1) + [whole]


def _spans(tokenizer: Tokenizer, ids: Sequence[int]) -> Iterator[str]:
    """Decodes from the last whole character but one, as some tokens read differently at a start."""
    before = start = 0
    for end in range(1, len(ids) + 1):
        context = tokenizer.decode(ids[before:start])
        text = tokenizer.decode(ids[before:end]).removeprefix(context)
        if text.endswith(BROKEN) and end < len(ids):
            yield ""
            continue
        yield text
        if text:  # a special token is no context
            before, start = start, end
