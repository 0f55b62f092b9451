"""From prompts, gaps and edits to canvases: rows of tokens, framed as the training rows are."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.data.tokenizers.gaps import count_blanks, parse_blanks
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.randomness import row_uniforms

LONGEST = 16  # model lengths that a text of automatic length may take
MOST_TOKENS = 2**20  # of a text


@dataclass(frozen=True)
class Job:
    """Rows to fill."""

    canvases: list[list[int]]
    lead: int  # tokens before the text: BOS, or a class
    fixed: list[int]  # tokens at the start of each row that are given: behind them a text may end
    ends: bool  # whether EOS may be drawn
    openings: int  # places to fill in a text
    revisable: bool = False  # whether what is there may be rewritten
    rows: int = 1  # that make up a text
    answers: bool = False  # whether the text is what stands behind what is given, alone


def writing(
    tokenizer: Tokenizer, first: list[int], prompts: Sequence[str], n: int, length: int, ends: bool
) -> Job:
    """`n` texts of `length` tokens after each prompt."""
    if not 2 <= length <= MOST_TOKENS:
        raise UnmaskError(f"length must be 2 or more, and {MOST_TOKENS} at most, not {length}")
    canvases, fixed = [], []
    for prompt in prompts:
        if count_blanks(prompt):
            raise UnmaskError(f"the prompt {prompt[:40]!r} has a gap: fill fills gaps")
        ids = first + tokenizer.encode(prompt)
        if len(ids) >= length:
            raise UnmaskError(
                f"the prompt {prompt[:20]!r} has {len(ids)} tokens and leaves no room in a length "
                f"of {length}: raise length"
            )
        row = ids + [tokenizer.vocabulary.mask_id] * (length - len(ids))
        canvases += [row] * n
        fixed += [len(ids)] * n
    return Job(canvases, len(first), fixed, ends, length)


def answering(
    tokenizer: Tokenizer, first: list[int], sources: Sequence[str], n: int, length: int, ends: bool
) -> Job:
    """`n` targets for each source, in rows as the pairs of training have them."""
    v = tokenizer.vocabulary
    assert v.eos_id is not None  # pairs cannot be packed without
    canvases, fixed = [], []
    for source in sources:
        if not source.strip():
            raise UnmaskError("the source is empty: this model writes a target for a source")
        given = [*first, *tokenizer.encode(source), v.eos_id]
        if len(given) >= length:
            raise UnmaskError(
                f"the source {source[:20]!r} has {len(given)} tokens with its frame and leaves no "
                f"room for a target in a row of {length}"
            )
        canvases += [given + [v.mask_id] * (length - len(given))] * n
        fixed += [len(given)] * n
    return Job(canvases, fixed[0], fixed, ends, length, answers=True)


def filling(
    tokenizer: Tokenizer, first: list[int], text: str | Sequence[int], n: int, longest: int
) -> Job:
    """A text with gaps, or its ids, `n` times; a gap is words: it holds no end of a text."""
    if isinstance(text, str):
        if (gaps := count_blanks(text)) > longest:  # before anything as long as they are is made
            raise UnmaskError(f"the text has {gaps} tokens to fill and the model reads {longest}")
        ids = parse_blanks(text, tokenizer)
    else:
        ids = checked_ids(tokenizer, text)
    if tokenizer.vocabulary.mask_id not in ids:
        raise UnmaskError("the text has no gap: write [MASK] or [MASK:4] where to fill")
    row = _framed(tokenizer, first, ids)
    if len(row) > longest:
        raise UnmaskError(f"the text has {len(row)} tokens and the model reads {longest}")
    gaps = ids.count(tokenizer.vocabulary.mask_id)
    return Job([row] * n, len(first), [len(first)] * n, ends=False, openings=gaps)


def checked_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The ids of a text as whole numbers of the vocabulary."""
    size = tokenizer.vocabulary.size
    for token in ids:
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise UnmaskError(f"{token!r} is no token: a text is given as ids, or as one string")
        if not 0 <= token < size:
            raise UnmaskError(f"{token} is no token: ids run from 0 to {size - 1}")
    return [operator.index(token) for token in ids]


@dataclass(frozen=True)
class Edit:
    """Which tokens of a text are to be rewritten: a share, a span, or the least likely ones."""

    remask: float | None = None
    remask_span: tuple[int, int] | None = None
    remask_uncertain: int | None = None

    def __post_init__(self) -> None:
        if sum(choice is not None for choice in vars(self).values()) > 1:
            raise UnmaskError("give one of remask, remask_span and remask_uncertain")
        if self.remask is not None and not 0 < self.remask <= 1:
            raise UnmaskError(f"remask must lie in (0, 1], not {self.remask}")
        if self.remask_uncertain is not None and self.remask_uncertain < 1:
            raise UnmaskError(f"remask_uncertain must be 1 or more, not {self.remask_uncertain}")

    def places(
        self, ids: list[int], seed: int, confidence: Callable[[], Float[Tensor, "tokens"]]
    ) -> list[int]:
        """Where the text is masked before it is written again."""
        if self.remask_span is not None:
            start, stop = self.remask_span
            if not 0 <= start < stop <= len(ids):
                raise UnmaskError(
                    f"the span {start}:{stop} does not lie in the text's {len(ids)} tokens"
                )
            return list(range(start, stop))
        if self.remask_uncertain is not None:
            count = min(self.remask_uncertain, len(ids))
            return confidence().argsort(stable=True)[:count].tolist()
        if self.remask is not None:
            count = max(1, round(self.remask * len(ids)))
            return row_uniforms([seed], "remask", len(ids))[0].argsort()[:count].tolist()
        return []


def editing(
    tokenizer: Tokenizer,
    first: list[int],
    ids: list[int],
    masked: Sequence[Sequence[int]],
    longest: int,
) -> Job:
    """A text, masked in one way for each of `masked`; as many rows as it needs."""
    mask_id = tokenizer.vocabulary.mask_id
    body = longest - len(_framed(tokenizer, first, []))
    canvases = []
    for places in masked:
        hidden = set(places)
        row = [mask_id if place in hidden else token for place, token in enumerate(ids)]
        parts = [row[start : start + body] for start in range(0, len(row), body)]
        canvases += [_framed(tokenizer, first, part) for part in parts]
    return Job(
        canvases,
        len(first),
        [len(first)] * len(canvases),
        ends=False,
        openings=max(map(len, masked)) or len(ids),
        revisable=not any(masked),
        rows=len(canvases) // len(masked),
    )


def _framed(tokenizer: Tokenizer, first: list[int], ids: list[int]) -> list[int]:
    """A text as a training row holds it."""
    eos = tokenizer.vocabulary.eos_id
    return first + ids + ([] if eos is None else [eos])


def leave_one_out(
    denoise: Callable[..., Tensor], row: Tensor, columns: Tensor, mask_id: int, t: float
) -> Float[Tensor, "columns"]:
    """log p(x_l | all other tokens) at the given columns, each masked in a row of its own."""
    rows = row.repeat(len(columns), 1)
    each = torch.arange(len(columns), device=row.device)
    rows[each, columns] = mask_id
    times = torch.full((len(columns),), t, dtype=torch.float64)
    return denoise(rows, times, (each, columns))[each, row[columns]]
