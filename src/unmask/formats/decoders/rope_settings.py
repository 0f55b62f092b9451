"""Settings of rotary positions in config.json, in the form of transformers 4 and 5."""

import math
from collections.abc import Mapping
from typing import Any

from unmask.errors import UnmaskError
from unmask.formats.foreign import ForeignSettings

_PLAIN = ("default", None)
# field of the backbone -> setting, by the kind of scaling
_FIELDS = {
    "linear": {},
    "dynamic": {},
    "llama3": {"slow": "low_freq_factor", "fast": "high_freq_factor"},
    "yarn": {"slow": "beta_slow", "fast": "beta_fast", "attention_factor": "attention_factor"},
}
_TRAINED = "original_max_position_embeddings"
_DEFAULTS = {"beta_slow": 1.0, "beta_fast": 32.0}


def read_rope(settings: ForeignSettings, positions: int) -> dict[str, Any]:
    """Fields of the backbone for rotary positions.

    Args:
        settings: config.json.
        positions: most tokens of a text.

    Returns:
        theta, and the fields of the scaling if there is one.
    """
    name = "rope_parameters" if "rope_parameters" in settings else "rope_scaling"
    tree = settings.tree.get(name) or {}
    rope = ForeignSettings(tree, f"{settings.where}: {name}")
    theta = settings.get("rope_theta", float, rope.get("rope_theta", float, 10_000.0))
    kind = tree.get("rope_type", tree.get("type"))
    if kind in _PLAIN:
        return {"theta": theta}
    if kind not in _FIELDS:
        known = ", ".join(_FIELDS)
        raise UnmaskError(f"{rope.where}: {kind!r} is not supported; known scalings: {known}")
    for odd in ("mscale", "mscale_all_dim"):
        rope.require(odd, None)
    rope.require("truncate", True, None)
    factor = rope.get("factor", float)
    found = {
        field: rope.get(name, float, _DEFAULTS.get(name))
        for field, name in _FIELDS[kind].items()
        if name in rope or name in _DEFAULTS
    }
    if kind == "yarn" and "attention_factor" not in found:
        found["attention_factor"] = 0.1 * math.log(max(factor, 1.0)) + 1.0
    trained = settings.get(_TRAINED, int, rope.get(_TRAINED, int, positions))
    return {"theta": theta, "scaling": kind, "factor": factor, "trained": trained, **found}


def write_rope(backbone: Any) -> Mapping[str, Any]:
    """The settings of config.json, which transformers 4 and 5 read.

    Args:
        backbone: configuration of the backbone `llama`.

    Returns:
        rope_theta and rope_scaling.
    """
    if backbone.scaling == "none":
        return {"rope_theta": backbone.theta, "rope_scaling": None}
    own = {name: getattr(backbone, field) for field, name in _FIELDS[backbone.scaling].items()}
    scaling = {"rope_type": backbone.scaling, "factor": backbone.factor, **own}
    return {
        "rope_theta": backbone.theta,
        "rope_scaling": {**scaling, _TRAINED: backbone.trained},
    }
