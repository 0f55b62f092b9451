"""Streams completions from left to right, in pieces of text, up to a stop phrase."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from unmask.generation.answers.growing_text import GrowingText, settled_tokens
from unmask.generation.sampler_spec import choose_sampler
from unmask.generation.sampling_params import SamplingParams
from unmask.model import Model
from unmask.randomness import row_seeds
from unmask.serve.limits import ServerLimits
from unmask.serve.openai.completion_task import (
    Task,
    check_request,
    check_sampler,
    completion_task,
    sampling_params,
)
from unmask.serve.openai.token_logprobs import log_probabilities, mean_log_probability
from unmask.serve.schemas import Completing


@dataclass
class Piece:
    """The next piece of a text; the last one has the finish reason and the token counts."""

    index: int
    text: str
    finish: str | None = None
    tokens: int = 0
    seed: int = 0  # reproduces this text in a request of its own
    prompt_tokens: int = 0
    logprobs: dict[str, Any] | None = None  # of all tokens of the text


def completion_pieces(
    model: Model, request: Completing, settings: ServerLimits, seed: int, chat: bool = False
) -> Iterator[Piece]:
    """The pieces of all texts, prompt by prompt;
    a token is sent once it and all before it are settled. With `chat`, the prompts are chats.
    """
    check_request(request, settings)
    options = request.options(seed) | {"n": request.drawn}
    sampling = sampling_params(model, options, request.suffix is None)
    if "ending" not in options and sampling.ending == "sentence":
        sampling = replace(sampling, ending="free")  # OpenAI's clients expect max_tokens tokens
    check_sampler(model, sampling, settings)
    tasks = [
        completion_task(model, request, sampling, prompt, settings, chat)
        for prompt in request.prompts
    ]
    seeds = row_seeds(seed, len(tasks) * request.drawn)  # equal prompts get different texts
    for number, task in enumerate(tasks):
        first = number * request.drawn
        seeded = replace(sampling, seed=seeds[first : first + request.drawn])
        yield from _pieces(model, request, seeded, task, number * request.n)


def _pieces(
    model: Model, request: Completing, sampling: SamplingParams, task: Task, first: int
) -> Iterator[Piece]:
    """The pieces of one prompt's texts; `first` is the index of its first text."""
    prompt = request.prompts[first // request.n]
    shown = prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt)
    echo = shown if request.echo else ""
    given = None if task.alone else task.given[: task.start]
    whole = request.text_schema is not None
    tokenizer, stops = model.tokenizer, request.stops

    def new_text() -> GrowingText:
        return GrowingText(tokenizer, task.ends, stops, given, task.spaced, echo, whole)

    texts = [new_text() for _ in range(request.drawn)]
    span, mask_id = slice(task.start, task.stop), tokenizer.vocabulary.mask_id
    seeds = row_seeds(sampling.seed, request.drawn)
    last = [task.given] * request.drawn
    if task.options:
        sampler = choose_sampler(sampling, model.method, request.max_tokens)
        trimmed = sampling.ending == "sentence"  # only the last frame shows where the text ends
        frames = model.stream(**task.options, **vars(sampling))
        for frame in frames:
            last = frame.tokens.tolist()
            if trimmed:
                continue
            revises = sampler.unwrapped().revises
            for index, ready in enumerate(
                settled_tokens(frame, task.start, task.stop, mask_id, revises)
            ):
                more = texts[index].more(last[index][span], ready)
                if more and not request.ranked:
                    yield Piece(first + index, more)
            if all(text.finish for text in texts):
                break
        frames.close()  # type: ignore[attr-defined]
    rests = [text.rest(ids[span]) for text, ids in zip(texts, last, strict=True)]
    kept = list(range(request.drawn))
    if request.ranked:
        rests = [text.sent for text in texts]
        score = [mean_log_probability(model, task.given, text.ids) for text in texts]
        kept = sorted(kept, key=lambda number: -score[number])[: request.n]
    for index, number in enumerate(kept):
        text, logprobs = texts[number], None
        if request.logprobs is not None:
            logprobs = log_probabilities(model, task, text.ids, request.logprobs, request.echo)
        yield Piece(
            first + index,
            rests[number],
            text.finish,
            text.tokens,
            seeds[number],
            task.prompt_tokens if index == 0 else 0,
            logprobs,
        )
