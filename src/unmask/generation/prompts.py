"""Builds rows of token ids from prompts, sources and texts with gaps, with masks to fill."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from unmask.bundle import Bundle
from unmask.data.tokenizers.gaps import count_blanks, parse_blanks
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generation.guidance import first_tokens
from unmask.generation.sampling_params import MOST_TOKENS, Length, SamplingParams
from unmask.methods.method import methods_that

Prompt = str | Sequence[int]  # a text or its token ids
Prompts = Prompt | Sequence[Prompt] | None
LONGEST = 16  # longest text of length auto, in model lengths


@dataclass(frozen=True)
class FillRequest:
    """Rows of ids to fill, with mask ids at the positions to fill."""

    canvases: list[list[int]]
    # number of tokens before the text: BOS or class token; the source too, before a target
    lead: int
    fixed: list[int]  # number of given tokens at the start of each row; a later EOS ends the text
    ends: bool  # True if EOS may be drawn
    openings: int  # default number of steps: positions of the gaps, or the length of a new text
    revisable: bool = False  # True if the sampler may rewrite tokens that are not masked
    rows: int = 1  # number of rows of one text
    target_only: bool = False  # True if the result is the text behind the given tokens only
    context: int = 0  # number of context tokens in `lead`; the result leaves them out
    stops: tuple[int, ...] = ()  # ids beside EOS that end a text

    def fills(self, mask_id: int) -> bool:
        """True if given tokens follow a mask, as in a gap.

        Args:
            mask_id: Id of MASK.

        Returns:
            True if a row has such a token.
        """
        open_rows = (row[row.index(mask_id) :] for row in self.canvases if mask_id in row)
        return any(token != mask_id for row in open_rows for token in row)


def rows_to_write(
    bundle: Bundle,
    prompts: Prompts,
    length: Length,
    stop: bool,
    sampling: SamplingParams,
    context: str | Sequence[str] = (),
) -> FillRequest:
    """Rows of `length` tokens, `n` for each prompt; the prompts of a model of pairs are sources.

    Length None is the model's own. Length "auto" is `LONGEST` model lengths, and EOS ends the text.
    The context, passages with the best first, precedes each prompt and is not a part of the length.
    """
    listed = prompt_list(prompts)
    length = bundle.length if length is None else length
    first = first_tokens(bundle, sampling)
    if bundle.conditional:
        if context:
            raise UnmaskError(
                "a model of pairs reads a source and no context: leave the context out"
            )
        if length == "auto" or length > bundle.length:
            raise UnmaskError(
                f"source and target share a row of {bundle.length} tokens: give no larger length"
            )
        return _targets(bundle, first, listed, sampling.n, length, stop)
    if length != "auto" and not hasattr(length, "__index__"):
        raise UnmaskError(f"length is a number of tokens or auto, not {length!r}")
    if length == "auto":
        if bundle.tokenizer.vocabulary.eos_id is None or not stop:
            raise UnmaskError("length auto needs texts that end at EOS: give a number of tokens")
        length = LONGEST * bundle.length
    passages = [context] if isinstance(context, str) else context
    if not isinstance(passages, Sequence) or not all(isinstance(one, str) for one in passages):
        raise UnmaskError(f"the context is a text or a list of texts, not {context!r}")
    given = context_ids(bundle.tokenizer, passages, bundle.length // 2)
    return _continuations(bundle.tokenizer, first, listed, sampling.n, length, stop, given)


def context_ids(tokenizer: Tokenizer, passages: Sequence[str], most: int) -> list[int]:
    """The tokens of passages before a prompt, best passage last, each with an end.

    Args:
        tokenizer: the tokenizer.
        passages: the passages, best first.
        most: the most tokens. The last passage that fits in part is cut.

    Returns:
        The ids.
    """
    eos = tokenizer.vocabulary.eos_id
    ids: list[int] = []
    for passage in passages:
        room = most - len(ids)
        if room < 2:
            break
        if own := tokenizer.encode(passage)[: room - 1]:
            ids = [*own, *([] if eos is None else [eos]), *ids]
    return ids


def prompt_list(prompts: Prompts) -> list[Prompt]:
    """The prompts as a list. A list of ids is one prompt."""
    if prompts is None or isinstance(prompts, str):
        return [prompts or ""]
    if not isinstance(prompts, Iterable):
        raise UnmaskError(
            f"a prompt is a text or a list of ids, not {prompts!r}: n is the number of texts"
        )
    parts = list(prompts)
    if parts and all(hasattr(part, "__index__") for part in parts):
        return [cast(Sequence[int], parts)]
    return cast(list[Prompt], parts)


def prompt_ids(tokenizer: Tokenizer, first: list[int], prompt: Prompt) -> list[int]:
    """The ids of a prompt behind the first tokens of a row, which ids may contain already."""
    if not isinstance(prompt, Iterable):
        raise UnmaskError(f"a prompt is a text or a list of ids, not {prompt!r}")
    if isinstance(prompt, str):
        if count_blanks(prompt):
            raise UnmaskError(f"the prompt {prompt[:40]!r} has a gap: use fill instead")
        return tokenizer.encode(prompt)
    ids = checked_ids(tokenizer, prompt)
    if tokenizer.vocabulary.mask_id in ids:
        raise UnmaskError("the ids of the prompt contain MASK: use fill instead")
    return ids[len(first) :] if ids[: len(first)] == first else ids


def _continuations(
    tokenizer: Tokenizer,
    first: list[int],
    prompts: Sequence[Prompt],
    n: int,
    length: int,
    ends: bool,
    context: list[int],
) -> FillRequest:
    """`n` rows of `length` tokens that begin with each prompt, behind the context."""
    if not 2 <= length <= MOST_TOKENS:
        raise UnmaskError(f"length must be 2 or more, and {MOST_TOKENS} at most, not {length}")
    canvases, fixed = [], []
    for prompt in prompts:
        ids = first + prompt_ids(tokenizer, first, prompt)
        if len(ids) >= length:
            raise UnmaskError(
                f"the prompt {prompt[:20]!r} has {len(ids)} tokens and leaves no room in a length "
                f"of {length}: shorten it, or give a length above {len(ids)}"
            )
        masks = [tokenizer.vocabulary.mask_id] * (length - len(ids))
        canvases += [first + context + ids[len(first) :] + masks] * n
        fixed += [len(context) + len(ids)] * n
    lead = len(first) + len(context)
    return FillRequest(canvases, lead, fixed, ends, length, context=len(context))


def _targets(
    bundle: Bundle,
    first: list[int],
    sources: Sequence[Prompt],
    n: int,
    length: int,
    ends: bool,
) -> FillRequest:
    """`n` rows of source, EOS and masked target for each source, like the pairs of training.

    Positions that a decoder does not read hold EOS.
    """
    tokenizer, backbone = bundle.tokenizer, bundle.method.backbone
    v = tokenizer.vocabulary
    assert v.eos_id is not None  # the tokenizer of a model of pairs has an EOS
    canvases, fixed = [], []
    for source in sources:
        if not source or (isinstance(source, str) and not source.strip()):
            raise UnmaskError(
                "the source is empty: give a text, for which the model writes a target"
            )
        ids = prompt_ids(tokenizer, first, source)
        if v.eos_id in ids:
            raise UnmaskError(
                "the ids of the source contain EOS, which ends a source: leave it out"
            )
        given = [*first, *ids, v.eos_id]
        if len(given) >= length:
            raise UnmaskError(
                f"the source {source[:20]!r} has {len(given)} tokens with its special tokens and leaves no "
                f"room for a target in a row of {length}: shorten it"
            )
        if backbone.longest_source is not None and len(given) > backbone.longest_source:
            raise UnmaskError(
                f"the source {source[:20]!r} has {len(given)} tokens with its special tokens and the "
                f"encoder reads {backbone.longest_source}: shorten it"
            )
        room = length - len(given)
        masks = room if backbone.longest_target is None else min(room, backbone.longest_target)
        canvases += [given + [v.mask_id] * masks + [v.eos_id] * (room - masks)] * n
        fixed += [len(given)] * n
    return FillRequest(canvases, fixed[0], fixed, ends, length, target_only=True)


def rows_to_fill(
    bundle: Bundle, text: str | Sequence[int], sampling: SamplingParams
) -> FillRequest:
    """`n` rows of a text with gaps, or of its ids. No EOS is drawn in a gap."""
    refuse_one_sided(bundle, "fill")
    first, tokenizer, longest = first_tokens(bundle, sampling), bundle.tokenizer, bundle.length
    if isinstance(text, str):
        if (gaps := count_blanks(text)) > longest:  # before lists of that length are built
            raise UnmaskError(
                f"the text has {gaps} tokens to fill and the model reads {longest}: shorten the gaps"
            )
        ids = parse_blanks(text, tokenizer)
    elif not isinstance(text, Iterable):
        raise UnmaskError(f"fill takes a text or a list of ids, not {text!r}")
    else:
        ids = checked_ids(tokenizer, text)
    if tokenizer.vocabulary.mask_id not in ids:
        raise UnmaskError("the text has no gap: write [MASK] or [MASK:4] where to fill")
    row = framed(tokenizer, first, ids)
    if len(row) > longest:
        raise UnmaskError(
            f"the text has {len(row)} tokens and the model reads {longest}: shorten it"
        )
    gaps = ids.count(tokenizer.vocabulary.mask_id)
    return FillRequest(
        [row] * sampling.n, len(first), [len(first)] * sampling.n, ends=False, openings=gaps
    )


def checked_ids(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """The ids as ints; raises an error for one that is not in the vocabulary."""
    size = tokenizer.vocabulary.size
    for token in ids:
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise UnmaskError(f"{token!r} is no token: give a text as ids, or as one string")
        if not 0 <= token < size:
            raise UnmaskError(f"{token} is no token: ids run from 0 to {size - 1}")
    return [operator.index(token) for token in ids]


def framed(tokenizer: Tokenizer, first: list[int], ids: list[int]) -> list[int]:
    """A text with the first tokens and the EOS of a training row."""
    eos = tokenizer.vocabulary.eos_id
    return first + ids + ([] if eos is None else [eos])


def refuse_one_sided(bundle: Bundle, verb: str) -> None:
    """Raises an error if the model does not condition on the text behind a gap."""
    if bundle.conditional:
        raise UnmaskError(
            f"this model writes targets for sources and cannot {verb}: use generate instead"
        )
    if not bundle.method.capabilities.infill:
        raise UnmaskError(
            f"this model writes from left to right and cannot see what follows a gap: {verb} with a "
            f"diffusion model, of method {methods_that(lambda can: can.generate and can.infill)}"
        )
