"""Controls of the page, made from the models, the registries and the declared options."""

from collections.abc import Mapping
from typing import Any

import torch

from unmask.generation.sampler_spec import sampler_options, suitable_samplers
from unmask.generation.sampling_params import sampling_options
from unmask.model import Model
from unmask.options import Option
from unmask.samplers.core.time_grid import GRIDS
from unmask.samplers.sampler import SAMPLERS, Sampler

TIMES = 101  # points t = 0, 0.01, … 1 of alpha_t


def menu(models: Mapping[str, Model]) -> dict[str, Any]:
    """The models, the samplers with their fields, the time grids and the sampling options."""
    return {
        "models": [_model(name, model) for name, model in models.items()],
        "samplers": [_sampler(name) for name in SAMPLERS],
        "grids": list(GRIDS),
        "options": [_control(one) for one in sampling_options("play")],
    }


def _model(name: str, model: Model) -> dict[str, Any]:
    method = model.method
    times = torch.linspace(0, 1, TIMES, dtype=torch.float64)
    return {
        "name": name,
        "length": model.length,
        "method": model.config.method.name,
        "parameters": sum(weights.numel() for weights in method.parameters()),
        "fills": method.capabilities.infill,
        "sampler": method.sampler,
        "defaults": {name: value for name, value in model.defaults.items() if _plain(value)},
        "samplers": suitable_samplers(method),
        "conditional": model.conditional,
        "labels": list(model.tokenizer.labels),
        "words": model.tokenizer.leading_space,  # False: tokens are characters
        "dna": model.tokenizer.vocabulary.complement_ids is not None,
        "schedule": model.config.schedule.name,
        "alpha": method.schedule.alpha(times).detach().tolist(),
    }


def _plain(value: Any) -> bool:
    """True for a value that a field of the page can hold; a sampler object is none."""
    return isinstance(value, str | int | float)


def _sampler(name: str) -> dict[str, Any]:
    fields = sampler_options(name)
    return {
        "name": name,
        "summary": SAMPLERS.summaries()[name],
        "steps": any(one.name == "steps" for one in fields),
        "fields": [_control(one) for one in fields if one.name != "steps"],  # has its own control
    }


def _control(one: Option) -> dict[str, Any]:
    """An option as a control: its kind of value, default, limits and help text."""
    kind = "sampler" if one.hint is Sampler else "grid" if one.name == "grid" else _KINDS[one.kind]
    default = None if one.required or kind == "sampler" else one.default
    return {
        "name": one.name,
        "kind": kind,
        "default": default,
        "choices": list(map(str, one.choices)) or None,
        "help": one.help,
        "min": one.ge if one.gt is None else one.gt,
        "max": one.le if one.lt is None else one.lt,
    }


_KINDS = {bool: "bool", int: "int", float: "float", str: "text"}
