"""Finds served models by name; a name is never used as a file path."""

from typing import Any

from unmask.errors import unknown
from unmask.serve.execution.engine import Engine
from unmask.serve.responses import Problem

STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "JSON, or server-sent events if the request streams",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    }
}


def model_name(engine: Engine, name: str | None) -> str:
    """The name of the requested model, by default the first; raises an error for an unknown one."""
    if not engine.models:
        raise Problem(404, "this server has no model: start one with 'unmask serve MODEL'")
    if name is None:
        return next(iter(engine.models))
    if name not in engine.models:
        raise Problem(404, str(unknown("model", name, engine.models)), "model_not_found")
    return name


def model_entry(engine: Engine, name: str) -> dict[str, Any]:
    """A model as an entry of OpenAI's list, with its method, size and capabilities."""
    model = engine.models[name]
    parameters = sum(p.numel() for p in model.method.parameters())
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "unmask",
        "method": model.config.method.name,
        "length": model.length,
        "parameters": parameters,
        "fills": model.method.capabilities.infill and not model.conditional,
        "conditional": model.conditional,
        "labels": sorted(model.tokenizer.labels),
    }
