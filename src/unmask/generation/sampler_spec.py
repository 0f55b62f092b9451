"""How a text is to be written: the options that generate, fill, edit and stream share."""

from dataclasses import fields, replace
from typing import Any, get_type_hints

from unmask.config.values import _value
from unmask.errors import UnmaskError, unknown
from unmask.generation.sampling_params import Sampling
from unmask.methods.method import METHODS, Method
from unmask.samplers.core.time_grid import given_times
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.samplers.semi_autoregressive import SemiAutoregressive


def choose_sampler(sampling: Sampling, method: Method, openings: int) -> Sampler:
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
    kind: Any = SAMPLERS[name]
    hints = {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
    given = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    settable = [field for field in hints if field not in ("lead", "end")]  # these follow the model
    for field in given:
        if field not in settable:
            raise unknown(f"setting of {name}", field, settable)
    values: dict[str, Any] = {}
    if "inner" in hints:  # which runs by the clock where the outer one has none
        inner_clock, clock = ({}, clock) if "steps" in hints else (clock, {})
        inner = given.pop("inner", usual)
        if inner.partition(":")[0] == name:
            raise UnmaskError(f"{name} cannot be its own inner sampler")
        values["inner"] = read_sampler(inner, inner_clock, openings, usual)
    values |= {
        field: _value(hints[field], f"{name}:{field}", text) for field, text in given.items()
    }
    for option, value in clock.items():
        if option not in hints:
            raise UnmaskError(f"the sampler {name} has no {option}: leave it out")
        values.setdefault(option, value)
    if "steps" in hints and "steps" not in values:
        times = given_times(values.get("grid", "uniform"))
        values["steps"] = max(openings, 1) if times is None else len(times) - 1
    return kind(**values)


def in_windows(sampler: Sampler, window: int, lead: int, end: int | None) -> Sampler:
    """The sampler in windows of the model's length, framed as the training rows are."""
    if not sampler.windowed:
        return SemiAutoregressive(window, inner=sampler, lead=lead, end=end)
    outer: Any = sampler
    return replace(outer, window=min(outer.window, window), lead=lead, end=end)
