"""Streams completions from left to right, in pieces of text, up to a stop phrase."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from unmask.generation.sampler_spec import choose_sampler
from unmask.generation.sampling_params import SamplingParams
from unmask.model import Model
from unmask.randomness import row_seeds
from unmask.samplers.core.canvas import Frame
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

BROKEN = "\ufffd"  # decoded from an incomplete character at the end of a text


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
    model: Model, request: Completing, settings: ServerLimits, seed: int
) -> Iterator[Piece]:
    """The pieces of all texts, prompt by prompt;
    a token is sent once it and all before it are settled.
    """
    check_request(request, settings)
    options = request.options(seed) | {"n": request.drawn}
    sampling = sampling_params(model, options, request.suffix is None)
    if "ending" not in options and sampling.ending == "sentence":
        sampling = replace(sampling, ending="free")  # OpenAI's clients expect max_tokens tokens
    check_sampler(model, sampling, settings)
    tasks = [
        completion_task(model, request, sampling, prompt, settings) for prompt in request.prompts
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
    ends = request.text_schema is not None
    texts = [_Text(model, task, request.stops, echo, ends) for _ in range(request.drawn)]
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
            for index, ready in enumerate(
                _settled(model, task, frame, sampler.unwrapped().revises)
            ):
                if (more := texts[index].new_text(last[index], ready)) and not request.ranked:
                    yield Piece(first + index, more)
            if all(text.finish for text in texts):
                break
        frames.close()  # type: ignore[attr-defined]
    rests = [text.rest(ids) for text, ids in zip(texts, last, strict=True)]
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


def _settled(model: Model, task: Task, frame: Frame, revises: bool) -> list[int]:
    """The number of tokens of each completion before the first one that a later step may change."""
    settled = frame.settled
    if settled is None:
        settled = frame.tokens != model.tokenizer.vocabulary.mask_id
        if revises:
            settled = settled.zero_()
    return settled[:, task.start : task.stop].long().cumprod(1).sum(1).tolist()


@dataclass
class _Text:
    """A text during generation: the part sent so far and the finish reason."""

    model: Model
    task: Task
    stops: list[str]
    echo: str
    whole: bool  # True if a constraint makes the text complete, also without EOS
    sent: str = ""
    finish: str = ""
    tokens: int = 0
    ids: list[int] = field(default_factory=list)  # tokens of the completion, up to a stop
    _read: int = -1  # settled tokens at the last call of `new_text`

    def new_text(self, ids: list[int], ready: int) -> str:
        """The new part of the text, from its first `ready` tokens, which no longer change."""
        if self.finish or ready == self._read:
            return ""
        self._read = ready
        return self._send(ids, ready, last=False)

    def rest(self, ids: list[int]) -> str:
        """The rest of the text."""
        if self.finish:
            return ""
        more = self._send(ids, self.task.stop - self.task.start, last=True)
        self.finish = self.finish or ("stop" if self.whole else "length")
        return more

    def _send(self, ids: list[int], ready: int, last: bool) -> str:
        """The unsent part of the first `ready` tokens; sets the finish reason at EOS or a stop."""
        start, tokenizer = self.task.start, self.model.tokenizer
        completion = ids[start : start + ready]
        eos = tokenizer.vocabulary.eos_id
        complete = self.task.ends and eos in completion
        if complete and eos is not None:
            completion = completion[: completion.index(eos)]
        text = self._text(ids[:start], completion)
        found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        self.tokens, self.ids = len(completion), completion
        if found:
            text = text[: min(found)]
            while self.ids and len(self._text(ids[:start], self.ids[:-1])) >= len(text):
                self.ids = self.ids[:-1]  # tokens behind the stop are no part of the text
        if found or complete:
            self.finish = "stop"
        elif not last:
            text = self._settled(text)
        text = self.echo + text
        more, self.sent = text[len(self.sent) :], max(text, self.sent, key=len)
        return more

    def _text(self, before: list[int], completion: list[int]) -> str:
        """The text of the completion, decoded with its prompt,
        on which its first spaces can depend.
        """
        tokenizer = self.model.tokenizer
        if self.model.conditional:
            return tokenizer.decode(completion)
        given, whole = tokenizer.decode(before), tokenizer.decode(before + completion)
        text = whole[len(given) :] if whole.startswith(given) else tokenizer.decode(completion)
        return text.removeprefix(" ") if self.task.spaced else text

    def _settled(self, text: str) -> str:
        """The text without an incomplete character or the possible start of a stop phrase."""
        text = text.rstrip(BROKEN)
        longest = max(map(len, self.stops), default=1)
        held = next(
            (
                n
                for n in range(min(longest - 1, len(text)), 0, -1)
                if any(stop.startswith(text[-n:]) for stop in self.stops)
            ),
            0,
        )
        return text[: len(text) - held]
