"""Applies a constraint to rows and draws. An impossible one raises an error before any network call."""

import json
import operator
import re
from dataclasses import replace

import torch

from unmask.constraints.budget import Budget
from unmask.constraints.compile_cache import CACHE
from unmask.constraints.compiled import Compiled, compile_constraint
from unmask.constraints.constraint import Constraint
from unmask.constraints.json_schema import measure
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generation.prompts import FillRequest
from unmask.generation.sampling_params import SamplingParams, constrains
from unmask.randomness import row_uniforms
from unmask.samplers.core.token_sampler import SamplingTask

_FLAGS = re.compile(r"(\(\?[aimsux]+\))?\^?(.*)", re.DOTALL)  # at the start of a pattern


def constrained(
    tokenizer: Tokenizer, job: FillRequest, sampling: SamplingParams, task: SamplingTask, near: int
) -> tuple[FillRequest, SamplingTask]:
    """The rows with the phrases of `include`, and a sampling task restricted to the allowed tokens.

    In a text that may end, phrases are written among its first `near` tokens if they fit there.
    """
    if not constrains(vars(sampling)):
        return job, task
    room = min(map(len, job.canvases)) - job.lead
    constraint = _constraint(tokenizer, job.lead, room, sampling)
    if job.target_only and len(set(job.fixed)) > 1:  # all rows share `lead`
        raise UnmaskError("targets are constrained for one source at a time: give one source")
    start = job.lead
    if sampling.json_schema is not None:  # JSON begins behind the prompt
        if not job.ends or len(set(job.fixed)) > 1:
            raise UnmaskError("json_schema is for generate, with one prompt at a time: give one")
        start = job.fixed[0]
    if job.rows > 1:
        raise UnmaskError(
            "the text is longer than the model and cannot be constrained: shorten it to the model's length"
        )
    if constraint.regex is not None and tokenizer.drops_space:
        constraint = replace(constraint, regex=_after_space(constraint.regex))
    compiled = _compiled(constraint, tokenizer, task.banned, sampling.constraint_budget)
    z = torch.tensor(job.canvases)
    compiled.check(z.unique(dim=0), start)
    if constraint.include:
        phrases, length = len(constraint.include), z.shape[1]
        uniforms = row_uniforms(task.seeds, "place", phrases * length).view(-1, phrases, length)
        if job.ends:  # a text cannot end before its last phrase: positions from `near` on rank last
            uniforms[:, :, near:] *= 1e-9
        spellings = [_spellings(tokenizer, phrase) for phrase in constraint.include]
        z = compiled.place(z, start, spellings, uniforms)
    return replace(job, canvases=z.tolist()), replace(task, allow=compiled.passes(start).allowed)


def _after_space(pattern: str) -> str:
    """The pattern after the space that begins every text and that decoding drops."""
    flags, rest = _FLAGS.fullmatch(pattern).groups(default="")  # type: ignore[union-attr]
    return f"{flags} (?:{rest})"


def _compiled(
    constraint: Constraint, tokenizer: Tokenizer, never: tuple[int, ...], factor: float
) -> Compiled:
    """The compiled constraint; an equal one of another job is used again."""
    measure(constraint.json_schema, Budget(factor))  # before it is written as a key
    parts = [
        *(constraint.regex, constraint.ban, constraint.include, constraint.json_schema),
        sorted((column, sorted(ids)) for column, ids in constraint.allowed.items()),
        *(tokenizer.fingerprint, sorted(never), factor),
    ]

    def compile() -> Compiled:
        v = tokenizer.vocabulary
        found = compile_constraint(constraint, tokenizer.pieces(), v, never, Budget(factor))
        found.machine  # noqa: B018  it is compiled here, while no other constraint is
        return found

    return CACHE.compiled(json.dumps(parts, default=dict), compile)


def _constraint(tokenizer: Tokenizer, lead: int, room: int, sampling: SamplingParams) -> Constraint:
    allowed: dict[int, set[int]] = {}
    for position, tokens in (sampling.allowed or {}).items():
        if not 0 <= position < room:
            raise UnmaskError(
                f"allowed has position {position}, which the text lacks: give 0 to {room - 1}"
            )
        if not tokens:
            raise UnmaskError(f"no token is allowed at position {position}: give at least one")
        allowed[lead + position] = {_token(tokenizer, token) for token in tokens}
    ban, include = (
        tuple(_cased(tokenizer, phrase) for phrase in phrases)
        for phrases in (sampling.ban, sampling.include)
    )
    return Constraint(sampling.regex, ban, include, allowed, sampling.json_schema)


def _token(tokenizer: Tokenizer, token: str | int) -> int:
    """The id of a token, given as id or text."""
    if not isinstance(token, str):
        return operator.index(token)
    ids = tokenizer.encode(token)
    if len(ids) != 1:
        raise UnmaskError(
            f"{token!r} in allowed is {len(ids)} tokens, not one: give single tokens, or ids"
        )
    return ids[0]


def _cased(tokenizer: Tokenizer, phrase: str) -> str:
    """A phrase in the case of the tokenizer's texts: that of DNA has upper case only."""
    written = tokenizer.decode(tokenizer.encode(phrase))
    return written if written.lower() == phrase.lower() else phrase


def _spellings(tokenizer: Tokenizer, phrase: str) -> list[list[int]]:
    """The token ids of a phrase, with and without a space before it where tokens include the space."""
    spaced = [f" {phrase}"] if tokenizer.leading_space else []
    return [tokenizer.encode(text) for text in (*spaced, phrase)]
