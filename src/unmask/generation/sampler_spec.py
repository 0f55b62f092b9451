"""Samplers by name: "NAME:field=value,…" and the fields that it sets."""

from dataclasses import replace
from typing import Any

from unmask.config.values import read_option
from unmask.errors import UnmaskError, unknown
from unmask.generation.sampling_params import SamplingParams
from unmask.methods.method import METHODS, Method
from unmask.options import Option, options_of
from unmask.samplers.core.time_grid import given_times
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.samplers.semi_autoregressive import SemiAutoregressive


def choose_sampler(sampling: SamplingParams, method: Method, openings: int) -> Sampler:
    """The sampler of some options, or else the method's own.

    It takes as many steps as there are open places unless a number is given.
    """
    if not method.capabilities.generate:
        raise UnmaskError(f"the method {METHODS.name_of(method)} writes no text")
    usual = method.sampler
    chosen = sampling.sampler
    if chosen is not None and not isinstance(chosen, str):
        if sampling.steps is not None or sampling.grid is not None:
            raise UnmaskError("steps and grid go with a sampler's name: this one has its own")
    else:
        clock = {"steps": sampling.steps, "grid": sampling.grid}
        clock = {option: value for option, value in clock.items() if value is not None}
        chosen = read_sampler(chosen or usual, clock, openings, usual)
    if not _suits(chosen.unwrapped(), method):
        raise UnmaskError(f"the method {METHODS.name_of(method)} takes the sampler {usual} only")
    return chosen


def suitable_samplers(method: Method) -> list[str]:
    """The names of the samplers that can write with a method."""
    return [name for name in SAMPLERS if _suits(SAMPLERS[name], method)]


def _suits(sampler: Sampler | type[Sampler], method: Method) -> bool:
    """True if the sampler works on what the method diffuses and in the order that it writes in."""
    capabilities = method.capabilities
    return sampler.latent == capabilities.latent and (sampler.causal or not capabilities.causal)


def read_sampler(spec: str, clock: dict[str, Any], openings: int, usual: str) -> Sampler:
    """A sampler from `NAME` or `NAME:field=value,…`; `clock` is the steps and grid asked for."""
    name, _, rest = spec.partition(":")
    known = {one.name: one for one in sampler_options(name)}
    given = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    for field in given:
        if field not in known:
            raise unknown(f"setting of {name}", field, known)
    values: dict[str, Any] = {}
    if "inner" in known:  # which runs by the clock where the outer one has none
        inner_clock, clock = ({}, clock) if "steps" in known else (clock, {})
        inner = given.pop("inner", usual)
        if inner.partition(":")[0] == name:
            raise UnmaskError(f"{name} cannot be its own inner sampler")
        values["inner"] = read_sampler(inner, inner_clock, openings, usual)
    values |= {
        field: read_option(replace(known[field], name=f"{name}:{field}"), text)
        for field, text in given.items()
    }
    for option, value in clock.items():
        if option not in known:
            raise UnmaskError(f"the sampler {name} has no {option}: leave it out")
        values.setdefault(option, value)
    if "steps" in known and "steps" not in values:
        times = given_times(values.get("grid", "uniform"))
        values["steps"] = max(openings, 1) if times is None else len(times) - 1
    return SAMPLERS.build(name, **values)


def sampler_options(name: str) -> list[Option]:
    """The fields of a sampler that "NAME:field=value" sets; `lead` and `end` follow the model."""
    return [one for one in options_of(SAMPLERS[name]) if one.name not in ("lead", "end")]


def spelled_samplers() -> str:
    """Every sampler with its fields, and their help where they have one, in one line."""
    spelled = []
    for name in SAMPLERS:
        fields = [
            f"{one.name}: {one.help}" if one.help else one.name for one in sampler_options(name)
        ]
        spelled.append(f"{name} ({', '.join(fields)})" if fields else name)
    return "; ".join(spelled)


def in_windows(sampler: Sampler, window: int, lead: int, end: int | None) -> Sampler:
    """The sampler in windows of the model's length, framed as the training rows are."""
    if not sampler.windowed:
        return SemiAutoregressive(window, inner=sampler, lead=lead, end=end)
    outer: Any = sampler
    return replace(outer, window=min(outer.window, window), lead=lead, end=end)
