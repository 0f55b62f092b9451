"""What can be chosen on the page, read from the models and the registries."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from unmask.generation.sampler_spec import suitable_samplers
from unmask.model import Model
from unmask.samplers.core.time_grid import GRIDS
from unmask.samplers.sampler import SAMPLERS, Sampler

TIMES = 101  # at which the page knows alpha_t: 0, 0.01, … 1
_FOLLOW_THE_MODEL = ("steps", "lead", "end")  # asked apart, or no choice


def menu(models: Mapping[str, Model]) -> dict[str, Any]:
    """The models, the samplers with their fields, and the names that fields can take."""
    return {
        "models": [_model(name, model) for name, model in models.items()],
        "samplers": [_sampler(name) for name in SAMPLERS],
        "grids": list(GRIDS),
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
        "samplers": suitable_samplers(method),
        "conditional": model.conditional,
        "words": model.tokenizer.leading_space,  # or characters
        "schedule": model.config.schedule.name,
        "alpha": method.schedule.alpha(times).detach().tolist(),
    }


def _sampler(name: str) -> dict[str, Any]:
    kind: Any = SAMPLERS[name]
    hints = get_type_hints(kind)
    return {
        "name": name,
        "summary": SAMPLERS.summaries()[name],
        "steps": "steps" in hints,
        "fields": [
            _field(field, hints[field.name])
            for field in fields(kind)
            if field.name not in _FOLLOW_THE_MODEL
        ],
    }


def _field(field: Field[Any], hint: Any) -> dict[str, Any]:
    """A field of a sampler: its name, the kind of its values, and its default."""
    default = field.default if field.default is not MISSING else None
    choices: list[str] | None = None
    if get_origin(hint) is Literal:
        choices = [str(value) for value in get_args(hint)]
    kind = "sampler" if hint is Sampler else "grid" if field.name == "grid" else _kind(hint)
    return {"name": field.name, "kind": kind, "default": default, "choices": choices}


def _kind(hint: Any) -> str:
    members = [member for member in (get_args(hint) or (hint,)) if member is not type(None)]
    return "text" if members[0] not in (int, float, bool) else members[0].__name__
