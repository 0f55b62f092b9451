"""Streams completions from left to right, in pieces of text, up to a stop phrase."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from unmask.data.tokenizers.gaps import count_blanks, parse_blanks
from unmask.errors import UnmaskError
from unmask.generation.guidance import first_tokens
from unmask.generation.sampler_spec import choose_sampler
from unmask.generation.sampling_params import SamplingParams, params_to_fill, params_to_generate
from unmask.model import Model
from unmask.randomness import row_seeds
from unmask.serve.limits import ServerLimits
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


@dataclass(frozen=True)
class Task:
    """The generation task of one prompt: arguments of `Model.stream`, and the completion's columns."""

    options: dict[str, Any]
    start: int  # first column of the completion
    stop: int  # column after its last one
    prompt_tokens: int
    ends: bool  # True if EOS ends the completion
    spaced: bool = False  # True if the first new token contains the space at the prompt's end


def completion_pieces(
    model: Model, request: Completing, settings: ServerLimits, seed: int
) -> Iterator[Piece]:
    """The pieces of all texts, prompt by prompt; a token is sent once no mask is left of it."""
    _check_request(request, settings)
    sampling = sampling_params(model, request.options(seed), request.suffix is None)
    check_sampler(model, sampling, settings)
    tasks = [_task(model, request, sampling, prompt, settings) for prompt in request.prompts]
    seeds = row_seeds(seed, len(tasks) * request.n)  # equal prompts get different texts
    for number, task in enumerate(tasks):
        first = number * request.n
        seeded = replace(sampling, seed=seeds[first : first + request.n])
        yield from _pieces(model, request, seeded, task, first)


def sampling_params(model: Model, options: dict[str, Any], writes: bool) -> SamplingParams:
    """The sampling parameters of a request, with all texts in one batch.

    Args:
        model: the model, whose defaults apply.
        options: the options of the request.
        writes: True for generation, False for infilling.
    """
    if writes:
        sampling, _ = params_to_generate(model.defaults, options)
    else:
        sampling = params_to_fill(model.defaults, options)
    return replace(sampling, batch=max(sampling.batch, sampling.n))


def check_sampler(model: Model, sampling: SamplingParams, settings: ServerLimits) -> None:
    """Raises an error for constraints, sampler steps or texts that the limits forbid."""
    if not settings.constraints and (sampling.regex or sampling.ban or sampling.include):
        raise UnmaskError("regex, ban and include are disabled on this server: leave them out")
    part: Any = choose_sampler(sampling, model.method, openings=1)
    while part is not None:
        if getattr(part, "steps", 1) > settings.steps:
            raise UnmaskError(f"steps must be {settings.steps} or less here, not {part.steps}")
        part = getattr(part, "inner", None)
    if sampling.n > settings.texts:
        raise UnmaskError(f"n must be {settings.texts} or less here, not {sampling.n}")


def _check_request(request: Completing, settings: ServerLimits) -> None:
    """Raises an error for unsupported options of OpenAI's API, and for a wrong number of texts."""
    refused = {
        "logprobs": request.logprobs is not None,
        "best_of": request.best_of not in (None, request.n),
        "logit_bias": bool(request.logit_bias),
        "presence_penalty": request.presence_penalty != 0,
        "frequency_penalty": request.frequency_penalty != 0,
    }
    for name, given in refused.items():
        if given:
            raise UnmaskError(f"{name} is not supported: leave it out")
    if not request.prompts:
        raise UnmaskError("there is no prompt: give a text, or an empty one")
    if len(request.prompts) * request.n > settings.texts:
        raise UnmaskError(
            f"{len(request.prompts)} prompts with n {request.n} are more than "
            f"{settings.texts} texts: send several requests"
        )


def _task(
    model: Model,
    request: Completing,
    sampling: SamplingParams,
    prompt: str,
    settings: ServerLimits,
) -> Task:
    """The task of one prompt; raises an error if its text is too long."""
    tokenizer, lead = model.tokenizer, len(first_tokens(model, sampling))
    width = request.max_tokens
    if width > settings.length:
        raise UnmaskError(f"max_tokens must be {settings.length} or less here, not {width}")
    if request.suffix is None:
        given = lead + len(tokenizer.encode(prompt)) + model.conditional
        length = min(given + width, model.length) if model.conditional else given + width
        task = Task({"prompts": prompt, "length": length}, given, length, given - lead, True)
    else:
        if count_blanks(prompt) + count_blanks(request.suffix):
            raise UnmaskError("prompt or suffix contains a gap: use /v1/fill")
        text = f"{prompt}[MASK:{width}]{request.suffix}"
        ids = parse_blanks(text, tokenizer)
        length = lead + len(ids)
        start = lead + ids.index(tokenizer.vocabulary.mask_id)
        spaced = tokenizer.leading_space and prompt.endswith(" ")
        task = Task({"fill": text}, start, start + width, len(ids) - width, False, spaced)
    if length > settings.length:
        raise UnmaskError(f"a text may have {settings.length} tokens here, not {length}")
    return task


def _pieces(
    model: Model, request: Completing, sampling: SamplingParams, task: Task, first: int
) -> Iterator[Piece]:
    """The pieces of one prompt's texts; `first` is the index of its first text."""
    sampler = choose_sampler(sampling, model.method, request.max_tokens)
    revises = sampler.revises or getattr(getattr(sampler, "inner", None), "revises", False)
    echo = request.prompts[first // request.n] if request.echo else ""
    texts = [_Text(model, task, request.stops, echo) for _ in range(request.n)]
    seeds = row_seeds(sampling.seed, request.n)
    frames = model.stream(**task.options, **vars(sampling))
    for frame in frames:
        if not revises:
            for index, (text, ids) in enumerate(zip(texts, frame.tokens.tolist(), strict=True)):
                if more := text.new_text(ids):
                    yield Piece(first + index, more)
            if all(text.finish for text in texts):
                break
    frames.close()  # type: ignore[attr-defined]
    for index, (text, ids) in enumerate(zip(texts, frame.tokens.tolist(), strict=True)):
        more = text.rest(ids)
        prompt = task.prompt_tokens if index == 0 else 0
        yield Piece(first + index, more, text.finish, text.tokens, seeds[index], prompt)


@dataclass
class _Text:
    """A text during generation: the part sent so far and the finish reason."""

    model: Model
    task: Task
    stops: list[str]
    echo: str
    sent: str = ""
    finish: str = ""
    tokens: int = 0
    _read: int = field(default=-1)  # tokens before the first mask, at the last call of `new_text`

    def new_text(self, ids: list[int]) -> str:
        """The new part of the text that can no longer change."""
        if self.finish:
            return ""
        ready = self._ready(ids)
        if ready == self._read:
            return ""
        self._read = ready
        return self._send(ids, ready, last=False)

    def rest(self, ids: list[int]) -> str:
        """The rest of the text."""
        if self.finish:
            return ""
        more = self._send(ids, self._ready(ids), last=True)
        self.finish = self.finish or "length"
        return more

    def _ready(self, ids: list[int]) -> int:
        """The number of tokens before the first mask of the completion."""
        completion, mask = (
            ids[self.task.start : self.task.stop],
            self.model.tokenizer.vocabulary.mask_id,
        )
        return completion.index(mask) if mask in completion else len(completion)

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
        self.tokens = len(completion)
        if found:
            text = text[: min(found)]
        if found or complete:
            self.finish = "stop"
        elif not last:
            text = self._settled(text)
        text = self.echo + text
        more, self.sent = text[len(self.sent) :], max(text, self.sent, key=len)
        return more

    def _text(self, before: list[int], completion: list[int]) -> str:
        """The text of the completion, decoded with its prompt, on which its first spaces can depend."""
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
