"""Samplers from a text such as "NAME:field=value,…", and the choice of one for a method."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from unmask.bundle import Bundle
from unmask.config.values import read_option
from unmask.errors import UnmaskError, unknown
from unmask.extension import attachments
from unmask.generation.sampling_params import SamplingParams
from unmask.methods.method import METHODS, Method
from unmask.options import Option, options_of
from unmask.samplers.core.time_grid import given_times
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.samplers.semi_autoregressive import SemiAutoregressive

DECODING = {  # options of `generate` for the likeliest text; the key is True for causal methods
    False: {"sampler": "confidence", "strategy": "deterministic"},
    True: {"sampler": "left_to_right", "strategy": "deterministic"},
}
_OF_MODEL = ("lead", "end")  # fields that a text cannot set


def choose_sampler(
    sampling: SamplingParams,
    method: Method,
    openings: int,
    attached: Mapping[str, Any] | None = None,
    fills: bool = False,
) -> Sampler:
    """The sampler of the options, or the method's default sampler.

    The default number of steps is `openings`, unless `grid` lists the times. `attached` are the
    model's own attachments, for a sampler that is given by name. `fills` is True if text behind a
    gap is given: a model of block diffusion then reads the whole row.
    """
    if not method.capabilities.generate:
        raise UnmaskError(
            f"the method {METHODS.name_of(method)} writes no text: give a model of another method"
        )
    default = "ancestral" if fills and method.capabilities.blocks else method.sampler
    chosen = sampling.sampler
    if chosen is not None and not isinstance(chosen, str):
        if sampling.steps is not None or sampling.grid is not None:
            raise UnmaskError(
                "steps and grid go with the name of a sampler, and this sampler is an object: set its fields"
            )
    else:
        options = {"steps": sampling.steps, "grid": sampling.grid}
        grid_options = {name: value for name, value in options.items() if value is not None}
        chosen = read_sampler(chosen or default, grid_options, openings, default, attached)
    for name, part in sampling.attachments.items():
        chosen = _with_attachment(chosen, name, part)
    if not (method.whole_rows or chosen.blocks):
        raise UnmaskError(
            "this model was trained in blocks only, so it reads no text behind the block that it "
            "fills: give sampler blocks, or a model whose method.blocks have 0, the whole row"
        )
    if not _suits(chosen.unwrapped(), method):
        others = ", ".join(name for name in suitable_samplers(method) if name != default)
        raise UnmaskError(
            f"the method {METHODS.name_of(method)} cannot use this sampler: give {default}"
            + (f", or one of {others}" if others else "")
        )
    return chosen


def decoding_rule(rule: str | Sampler, bundle: Bundle) -> Sampler:
    """The sampler whose texts are measured, with one token a step unless it says otherwise.

    Args:
        rule: Name and fields of a sampler, or a sampler.
        bundle: The model.

    Returns:
        The sampler.

    Example:
        >>> decoding_rule("margin", model).steps == model.config.data.length
        True
    """
    sampling = SamplingParams(sampler=rule)
    return choose_sampler(sampling, bundle.method, bundle.config.data.length, bundle.attachments)


def _with_attachment(sampler: Sampler, name: str, part: Any) -> Sampler:
    """The sampler with an attachment; an error for a sampler that does not use it."""
    kind = attachments()[name]
    if SAMPLERS.name_of(sampler) != kind.sampler:
        raise UnmaskError(f"{name} is for another sampler: give sampler {kind.sampler}")
    if not isinstance(part, kind.type):
        words, own = name.replace("_", " "), kind.type.__name__
        raise UnmaskError(f"{part!r} is no {words}: give {own}.load(file)")
    return replace(cast(Any, sampler), **{kind.field: part})


def suitable_samplers(method: Method | type[Method]) -> list[str]:
    """The names of the samplers that work with a method."""
    return [name for name in SAMPLERS if _suits(SAMPLERS[name], method)]


def _suits(sampler: Sampler | type[Sampler], method: Method | type[Method]) -> bool:
    """True if both handle the same states; a causal method also needs a causal sampler."""
    capabilities = method.capabilities
    if sampler.states != capabilities.states:
        return False
    if sampler.token_schedule and not capabilities.token_schedule:
        return False
    return sampler.causal or not capabilities.causal


def read_sampler(
    spec: str,
    grid_options: dict[str, Any],
    openings: int,
    default: str,
    attached: Mapping[str, Any] | None = None,
) -> Sampler:
    """A sampler from `NAME` or `NAME:field=value,…`; a value in parentheses may have commas.

    Args:
        spec: Name and fields.
        grid_options: Given values of steps and grid.
        openings: Default number of steps.
        default: Default inner sampler.
        attached: Attachments of the model, by name.
    """
    name, _, rest = spec.partition(":")
    known = {one.name: one for one in sampler_options(name)}
    given = dict(_fields(rest))
    for field in given:
        if field not in known:
            raise unknown(f"setting of {name}", field, known)
    values: dict[str, Any] = {}
    if "inner" in known:  # steps and grid go to the inner sampler if the outer one has no steps
        inner_options: dict[str, Any] = {}
        if "steps" not in known:
            inner_options, grid_options = grid_options, {}
        inner = given.pop("inner", "ancestral" if default == name else default)
        if inner.partition(":")[0] == name and name != "blocks":  # a block has smaller ones
            raise UnmaskError(f"{name} cannot be its own inner sampler: give another inner")
        values["inner"] = read_sampler(inner, inner_options, openings, default, attached)
    values |= {
        field: read_option(replace(known[field], name=f"{name}:{field}"), text)
        for field, text in given.items()
    }
    for option, value in grid_options.items():
        if option not in known:
            raise UnmaskError(f"the sampler {name} has no {option}: leave it out")
        values.setdefault(option, value)
    if "steps" in known and "steps" not in values:
        times = given_times(values.get("grid", "uniform"))
        values["steps"] = max(openings, 1) if times is None else len(times) - 1
    for part, kind in attachments().items():
        if kind.sampler == name and part in (attached or {}):
            values[kind.field] = (attached or {})[part]
    return SAMPLERS.build(name, **values)


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of "field=value,…"; commas in parentheses belong to a value."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    for part in filter(None, parts):
        name, _, value = part.partition("=")
        inside = value.startswith("(") and value.endswith(")")
        yield name, value[1:-1] if inside else value


def sampler_options(name: str) -> list[Option]:
    """The fields that "NAME:field=value" can set; others belong to the model."""
    parts = [kind.field for kind in attachments().values() if kind.sampler == name]
    return [one for one in options_of(SAMPLERS[name]) if one.name not in (*_OF_MODEL, *parts)]


def spelled_samplers() -> str:
    """All samplers with their fields and the fields' help, in one line."""
    spelled = []
    for name in SAMPLERS:
        fields = [
            f"{one.name}: {one.help}" if one.help else one.name for one in sampler_options(name)
        ]
        spelled.append(f"{name} ({', '.join(fields)})" if fields else name)
    return "; ".join(spelled)


def in_windows(
    sampler: Sampler, window: int, lead: int, end: int | None, own: bool = True
) -> Sampler:
    """The sampler in windows of at most `window` tokens, each with the BOS and EOS of training rows.

    Args:
        sampler: The sampler.
        window: Most tokens that the network reads.
        lead: Tokens with which each window begins.
        end: Id of the token with which each window ends, or None.
        own: False if the windows of the sampler do not suit the model.

    Returns:
        The sampler with this window, or a wrapper.
    """
    if not (sampler.windowed and own):
        return SemiAutoregressive(window, inner=sampler, lead=lead, end=end)
    outer: Any = sampler
    ends = {"end": end} if hasattr(outer, "end") else {}
    return replace(outer, window=min(outer.window or window, window), lead=lead, **ends)
