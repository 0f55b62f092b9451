"""The rows of a chat, and its answer in pieces."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from unmask.bundle import Bundle
from unmask.data.tokenizers.chat_format import Messages, chat_format
from unmask.errors import UnmaskError
from unmask.generation.answers.growing_text import GrowingText, settled_tokens
from unmask.generation.generator import Generator
from unmask.generation.prompts import FillRequest, checked_ids
from unmask.samplers.core.canvas import Frame

CANVAS = 128  # tokens of an answer by default, if the model writes all of them at once


def rows_to_answer(
    bundle: Bundle, messages: Messages | Sequence[int], tokens: int | None, n: int
) -> tuple[Bundle, FillRequest]:
    """`n` rows of a chat with masks for the answer, and the model with the tokenizer of chats.

    Args:
        bundle: the model.
        messages: the messages, or the ids of a chat that is written in the template already.
        tokens: the most tokens of the answer. By default those of `usual_tokens`.
        n: the number of answers.

    Returns:
        The model and the rows.
    """
    bundle.refuse_pairs("it takes no chats")
    form, v = chat_format(bundle.tokenizer), bundle.tokenizer.vocabulary
    if isinstance(messages, list) and messages and all(type(one) is int for one in messages):
        prompt = checked_ids(bundle.tokenizer, messages)
    else:
        prompt = form.ids(cast(Messages, messages))
    room = bundle.length - len(prompt)
    if room < 1:
        raise UnmaskError(
            f"the chat has {len(prompt)} tokens and the model reads {bundle.length}: leave messages out"
        )
    tokens = usual_tokens(bundle, room) if tokens is None else tokens
    if not 1 <= tokens <= room:
        raise UnmaskError(
            f"the answer can have 1 to {room} tokens behind a chat of {len(prompt)} tokens, not "
            f"{tokens}: the model reads {bundle.length}"
        )
    row, ends = [*prompt, *[v.mask_id] * tokens], bool(form.ends)
    lead = len(prompt)
    job = FillRequest(
        [row] * n, lead, [lead] * n, ends, tokens, target_only=True, stops=form.ends[1:]
    )
    return replace(bundle, tokenizer=form.answers), job


def answer_pieces(generator: Generator) -> Iterator[str]:
    """The answer of a chat in pieces; a piece holds no token that a later step can change.

    Args:
        generator: the generator of the row of `rows_to_answer`.

    Returns:
        The pieces, which together are the answer.
    """
    job, tokenizer = generator.job, generator.bundle.tokenizer
    if len(job.canvases) != 1:
        raise UnmaskError("one answer is streamed at a time: give n 1")
    v, (row,) = tokenizer.vocabulary, job.canvases
    ends = () if v.eos_id is None else (v.eos_id, *job.stops)
    revises = generator.sampler.unwrapped().revises
    settled = partial(
        settled_tokens, start=job.lead, stop=len(row), mask_id=v.mask_id, revises=revises
    )
    frames = generator.frames()  # errors come before the first piece
    return _pieces(frames, GrowingText(tokenizer, ends), settled, row, job.lead)


def _pieces(
    frames: Iterator[Frame],
    text: GrowingText,
    settled: Callable[[Frame], list[int]],
    row: list[int],
    lead: int,
) -> Iterator[str]:
    for frame in frames:
        (row,), (ready,) = frame.tokens.tolist(), settled(frame)
        yield text.more(row[lead:], ready)
        if text.finish:
            return
    yield text.rest(row[lead:])


def usual_tokens(bundle: Bundle, room: int) -> int:
    """The most tokens of an answer by default.

    Args:
        bundle: the model.
        room: the tokens that the model reads behind the chat.

    Returns:
        All of them for a model that writes from left to right, else at most CANVAS.
    """
    can = bundle.method.capabilities
    onwards = can.causal or (can.blocks and bundle.method.sampler == "blocks")
    return room if onwards else min(room, CANVAS)
