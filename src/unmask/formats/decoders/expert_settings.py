"""Settings of experts in config.json, both directions."""

from collections.abc import Mapping
from typing import Any

from unmask.formats.decoders.decoder_layout import ExpertLayout
from unmask.formats.foreign import ForeignSettings

_SHARED, _SCALE, _ROTATED = "num_shared_experts", "routed_scaling_factor", "partial_rotary_factor"


def read_experts(
    settings: ForeignSettings, layout: ExpertLayout | None, found: Mapping[str, Any]
) -> dict[str, Any]:
    """Fields of the backbone for experts, and for heads that are rotated in part.

    Args:
        settings: config.json.
        layout: the experts of the family; None for none.
        found: the fields of the shape of the network.

    Returns:
        The fields; {} for a family without experts.
    """
    if layout is None:
        return {}
    fields: dict[str, Any] = {
        here: settings.get(there, int) for here, there in layout.settings.items()
    }
    if layout.normalized is not None:
        fields["expert_norm"] = settings.get(layout.normalized, bool, False)
    head = found.get("head_width") or found["width"] // found["heads"]
    rotated = int(head * settings.get(_ROTATED, float, 1.0))
    return {
        "dense_layers": 0,
        **fields,
        "router": layout.router,
        "expert_bias": layout.bias,
        "shared_inner": settings.get(_SHARED, int, 0) * fields["expert_inner"],
        "expert_scale": settings.get(_SCALE, float, 1.0),
        "rotary_width": 0 if rotated == head else rotated,
    }


def write_experts(backbone: Any, layout: ExpertLayout | None) -> dict[str, Any]:
    """The settings of config.json.

    Args:
        backbone: configuration of the backbone `llama`.
        layout: the experts of the family; None for none.

    Returns:
        Settings by name; {} for a family without experts.
    """
    if layout is None:
        return {}
    tree = {there: getattr(backbone, here) for here, there in layout.settings.items()}
    if layout.normalized is not None:
        return {**tree, layout.normalized: backbone.expert_norm}
    head = backbone.head_width or backbone.width // backbone.heads
    return {
        **tree,
        _SHARED: backbone.shared_inner // backbone.expert_inner,
        _SCALE: backbone.expert_scale,
        _ROTATED: (backbone.rotary_width or head) / head,
        "score_function": backbone.router,
        "moe_router_enable_expert_bias": backbone.expert_bias,
    }
