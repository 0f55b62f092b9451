"""Reader of decoders: Llama, Mistral, Qwen, and the diffusion models that have their networks."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.formats.decoders.decoder_layout import LAYOUTS, OPTIONAL, DecoderLayout
from unmask.formats.decoders.rope_settings import read_rope
from unmask.formats.foreign import ForeignCheckpoint, ForeignSettings, as_float

_LENGTH = 2048  # most tokens of a row by default; the cache of a longer text needs more memory
_BUFFER = ".rotary_emb.inv_freq"  # of old files; the settings have the frequencies


def read_decoder(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignCheckpoint:
    """Reads a decoder. The first token of an autoregressive one is given and not predicted.

    Args:
        tree: the content of config.json.
        tensors: the weights by their names in the file.
        where: the origin, for error messages.

    Returns:
        The parts of the model.
    """
    settings = ForeignSettings(tree, where)
    layout = LAYOUTS[settings.get("model_type", str)]
    backbone = _backbone(settings, layout)
    method: dict[str, Any] = {"name": layout.method}
    if layout.method == "autoregressive":
        method["given_first"] = True
    if layout.block is not None:
        block = settings.get(layout.block[0], int, layout.block[1])
        method |= {"blocks": [block], "block": block}
    sections = {"method": method, "schedule": {"name": "loglinear"}, "backbone": backbone}
    mask_id = None
    if layout.mask_id is not None or "mask_token_id" in settings:
        mask_id = settings.get("mask_token_id", int, layout.mask_id)
    return ForeignCheckpoint(
        sections,
        length=min(backbone["positions"], _LENGTH),
        size=settings.get(layout.size, int),
        weights=_weights(tensors, layout, backbone, where),
        taken=True,
        exact=False,
        mask_id=mask_id,
        defaults=layout.defaults,
    )


def _backbone(settings: ForeignSettings, layout: DecoderLayout) -> dict[str, Any]:
    """The section `backbone` of the configuration."""
    for name, values in layout.required.items():
        settings.require(name, *values, None)
    found: dict[str, Any] = {
        here: settings.get(there, int)
        for here, there in layout.settings.items()
        if here not in OPTIONAL or there in settings
    }
    _check_window(settings, found["positions"])
    return {
        "name": "llama",
        "causal": layout.method == "autoregressive",
        **found,
        "epsilon": settings.get("rms_norm_eps", float, layout.epsilon),
        "qkv_bias": layout.qkv_bias,
        "qk_norm": layout.qk_norm,
        "shift": layout.shift,
        "tied_head": settings.get(layout.tied, bool, False),
        **read_rope(settings, found["positions"]),
    }


def _check_window(settings: ForeignSettings, positions: int) -> None:
    """Raises an error if attention has a window that is shorter than the longest text."""
    if not settings.tree.get("use_sliding_window", True) or "sliding_window" not in settings:
        return
    window = settings.get("sliding_window", int)
    if window < positions:
        raise UnmaskError(
            f"{settings.where}: attention sees {window:,} tokens of at most {positions:,}, and sliding "
            f"windows are not supported: set max_position_embeddings {window} in config.json to use "
            "the model for shorter texts"
        )


def _weights(
    tensors: Mapping[str, Tensor], layout: DecoderLayout, backbone: Mapping[str, Any], where: str
) -> dict[str, Tensor]:
    """The weights under the names used here; an error if one is missing or not expected."""
    left = {name for name in tensors if not name.endswith(_BUFFER)}
    found = {}
    for here, there in stored_names(layout, backbone["tied_head"]).items():
        for layer in range(backbone["depth"] if "{}" in here else 1):
            names = [each.format(layer) for each in there]
            for name in names:
                if name not in left:
                    raise UnmaskError(f"{where} does not fit: {name} is missing")
                left.remove(name)
            parts = [as_float(tensors[name], name, where) for name in names]
            found[here.format(layer)] = torch.cat(parts)  # a copy: a tensor of fp32 is the file
    if backbone["tied_head"]:
        left -= set(layout.names["head.weight"])  # a copy of the embedding
    if left:
        raise UnmaskError(f"{where} does not fit: {min(left)} is not expected")
    return found


def stored_names(layout: DecoderLayout, tied: bool) -> dict[str, tuple[str, ...]]:
    """Those names of a family that a file has.

    Args:
        layout: the family.
        tied: True if the head's matrix is the embedding's.

    Returns:
        Names here, and the names in the file that are stacked for each.
    """
    absent = [*["bias"] * (not layout.qkv_bias), *["_gain"] * (not layout.qk_norm)]
    absent += ["head.weight"] * tied
    return {here: there for here, there in layout.names.items() if not here.endswith(tuple(absent))}
