"""The generation task of each prompt of a completion request, and the checks of a request."""

from dataclasses import dataclass, replace
from typing import Any

from unmask.data.tokenizers.chat_format import chat_format
from unmask.data.tokenizers.gaps import count_blanks, parse_blanks
from unmask.errors import UnmaskError
from unmask.generation.guidance import first_tokens
from unmask.generation.prompts import Prompt, checked_ids, prompt_ids
from unmask.generation.sampler_spec import choose_sampler
from unmask.generation.sampling_params import (
    SamplingParams,
    constrains,
    params_to_fill,
    params_to_generate,
)
from unmask.model import Model
from unmask.serve.limits import ServerLimits
from unmask.serve.responses import Problem, named_field
from unmask.serve.schemas import Completing


@dataclass(frozen=True)
class Task:
    """The generation task of one prompt: arguments of `Model.stream`,
    and the completion's columns.
    """

    options: dict[str, Any]  # empty if there is nothing to generate
    lead: int  # tokens before the text: BOS or class token
    start: int  # first column of the completion
    stop: int  # column after its last one
    given: list[int]  # tokens before the completion
    prompt: list[
        int
    ]  # ids of the prompt as sent, at the end of `given` but for the EOS of a source
    prompt_tokens: int
    ends: tuple[int, ...]  # ids that end the completion
    spaced: bool = False  # True if the first new token contains the space at the prompt's end
    alone: bool = False  # True if the completion is decoded without the prompt


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
    if not settings.constraints and constrains(vars(sampling)):
        raise UnmaskError(
            "regex, ban, include and response_format are disabled on this server: leave them out"
        )
    part: Any = choose_sampler(sampling, model.method, openings=1)
    while part is not None:
        if getattr(part, "steps", 1) > settings.steps:
            raise UnmaskError(f"steps must be {settings.steps} or less here, not {part.steps}")
        part = getattr(part, "inner", None)
    if sampling.n > settings.texts:
        raise UnmaskError(f"n must be {settings.texts} or less here, not {sampling.n}")


def check_request(request: Completing, settings: ServerLimits) -> None:
    """Raises an error for unsupported options of OpenAI's API, and for a wrong number of texts."""
    refused = {
        "logit_bias": bool(request.logit_bias),
        "presence_penalty": request.presence_penalty != 0,
        "frequency_penalty": request.frequency_penalty != 0,
    }
    for name, given in refused.items():
        if given:
            raise Problem(400, f"{name} is not supported: leave it out", param=name)
    if request.suffix is not None and (request.logprobs is not None or request.ranked):
        raise Problem(
            400, "logprobs and best_of read no suffix: leave one of them out", param="suffix"
        )
    if request.drawn < request.n:
        raise Problem(400, f"best_of must be n ({request.n}) or more", param="best_of")
    if request.ranked and request.stream:
        raise Problem(400, "best_of ranks whole texts: leave stream out", param="best_of")
    if request.text_schema is not None and (request.stops or request.suffix is not None):
        raise Problem(
            400, "stop and suffix would cut the JSON: leave them out", param="response_format"
        )
    if not request.prompts:
        raise Problem(400, "there is no prompt: give a text, or an empty one", param="prompt")
    if len(request.prompts) * request.drawn > settings.texts:
        name = "best_of" if request.ranked else "n"
        raise Problem(
            400,
            f"{len(request.prompts)} prompts with {name} {request.drawn} are more than "
            f"{settings.texts} texts: send several requests",
            param=name,
        )


def completion_task(
    model: Model,
    request: Completing,
    sampling: SamplingParams,
    prompt: Prompt,
    settings: ServerLimits,
    chat: bool = False,
) -> Task:
    """The task of one prompt, or of one chat; raises an error if its text is too long."""
    width = request.max_tokens
    if width > settings.length:
        raise Problem(
            400,
            f"max_tokens must be {settings.length} or less here, not {width}",
            param="max_tokens",
        )
    build = _answer if chat else _continuation if request.suffix is None else _gap
    try:
        task = build(model, request, sampling, prompt)
    except UnmaskError as error:
        raise Problem(400, str(error), param=named_field(str(error)) or "prompt") from None
    length = task.stop if request.suffix is None else task.prompt_tokens + width
    if length > settings.length:
        raise Problem(
            400, f"a text may have {settings.length} tokens here, not {length}", param="prompt"
        )
    return task


def _continuation(
    model: Model, request: Completing, sampling: SamplingParams, prompt: Prompt
) -> Task:
    """The task of the text behind a prompt.

    The last position of a training row is EOS, so a diffusion model writes EOS there. The row has
    one position more than the completion, which is then text to its last token. Windows of a text
    longer than the model have that position already. A constraint holds for a whole row.
    """
    first, v = first_tokens(model, sampling), model.tokenizer.vocabulary
    ids = prompt_ids(model.tokenizer, first, prompt)
    given = [*first, *ids, *([v.eos_id] if model.conditional and v.eos_id is not None else [])]
    stop = len(given) + request.max_tokens
    constrained = sampling.regex or sampling.include or sampling.json_schema is not None
    diffusion = not model.method.capabilities.causal and v.eos_id is not None
    length = stop + (diffusion and not constrained and stop <= model.length)
    if model.conditional:
        stop, length = min(stop, model.length), min(length, model.length)
    sent = ids if isinstance(prompt, str) else list(prompt)
    options = {"prompts": [prompt], "length": length} if request.max_tokens else {}
    prompt_tokens = len(given) - len(first)
    ends = () if v.eos_id is None else (v.eos_id,)
    where = options, len(first), len(given), stop, given, sent, prompt_tokens
    return Task(*where, ends, alone=model.conditional)


def _answer(model: Model, request: Completing, sampling: SamplingParams, prompt: Prompt) -> Task:
    """The task of the answer behind a chat, which is given as ids."""
    ids = list(checked_ids(model.tokenizer, prompt))  # type: ignore[arg-type]
    start, width = len(ids), request.max_tokens
    options = {"chat": ids, "tokens": width} if width else {}
    ends = chat_format(model.tokenizer).ends
    return Task(options, start, start, start + width, ids, ids, start, ends, alone=True)


def _gap(model: Model, request: Completing, sampling: SamplingParams, prompt: Prompt) -> Task:
    """The task of the text between a prompt and a suffix."""
    tokenizer, width, suffix = model.tokenizer, request.max_tokens, request.suffix or ""
    if not isinstance(prompt, str):
        raise Problem(400, "a prompt with a suffix is a text: send no ids", param="prompt")
    if count_blanks(prompt) + count_blanks(suffix):
        raise Problem(400, "prompt or suffix contains a gap: use /v1/fill", param="prompt")
    text = f"{prompt}[MASK:{width}]{suffix}" if width else prompt + suffix
    ids = parse_blanks(text, tokenizer)
    first = first_tokens(model, sampling)
    gap = ids.index(tokenizer.vocabulary.mask_id) if width else 0
    start, spaced = len(first) + gap, tokenizer.leading_space and prompt.endswith(" ")
    options = {"fill": text} if width else {}
    given, count = [*first, *ids[:gap]], len(ids) - width
    return Task(options, len(first), start, start + width, given, ids[:gap], count, (), spaced)
