"""Reader of decoders: Llama, Mistral, Qwen, and the diffusion models that have their networks."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.formats.decoders.decoder_layout import (
    EXPERT_NAMES,
    LAYOUTS,
    OPTIONAL,
    DecoderLayout,
)
from unmask.formats.decoders.expert_settings import read_experts
from unmask.formats.decoders.rope_settings import read_rope
from unmask.formats.foreign import ForeignCheckpoint, ForeignSettings, Into, check_float

_LENGTH = 2048  # most tokens of a row by default; the cache of a longer text needs more memory
_BUFFER = ".rotary_emb.inv_freq"  # of old files; the settings have the frequencies


def read_decoder(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str, into: Into | None = None
) -> ForeignCheckpoint:
    """Reads a decoder. The first token of an autoregressive one is given and not predicted.

    Args:
        tree: the content of config.json.
        tensors: the weights by their names in the file.
        where: the origin, for error messages.
        into: precision and place of the weights; fp32 by default.

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
        weights=_weights(tensors, layout, backbone, where, into or Into()),
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
        **read_experts(settings, layout.experts, found),
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
    tensors: Mapping[str, Tensor],
    layout: DecoderLayout,
    backbone: Mapping[str, Any],
    where: str,
    into: Into,
) -> dict[str, Tensor]:
    """The weights under the names used here; an error if one is missing or not expected."""
    left = {name for name in tensors if not name.endswith(_BUFFER)}
    shapes: Mapping[str, Tensor] = getattr(tensors, "shapes", lambda: tensors)()
    found = {}
    for here, names, stacks in stored_names(layout, backbone):
        for name in names:
            if name not in left:
                raise UnmaskError(f"{where} does not fit: {name} is missing")
            left.remove(name)
        whole = _stacked(tensors, [shapes[name] for name in names], names, where, into)
        found[here] = whole.unflatten(0, (stacks, -1)) if stacks else whole
    if backbone["tied_head"]:
        left -= set(layout.names["head.weight"])  # a copy of the embedding
    if left:
        raise UnmaskError(f"{where} does not fit: {min(left)} is not expected")
    return found


def _stacked(
    tensors: Mapping[str, Tensor], shapes: list[Tensor], names: list[str], where: str, into: Into
) -> Tensor:
    """Tensors of a file as one. Each is copied to its place, so that memory holds the weights once."""
    if len({shape.shape[1:] for shape in shapes}) > 1:
        raise UnmaskError(f"{where} does not fit: {', '.join(names)} differ in width")
    shape = (sum(len(each) for each in shapes), *shapes[0].shape[1:])
    whole: Tensor | None = None
    start = 0
    for name in names:
        part = check_float(tensors[name], name, where)
        if whole is None:
            device = part.device if into.device is None or part.is_meta else into.device
            whole = torch.empty(shape, dtype=into.dtype, device=device)
        whole[start : start + len(part)] = part
        start += len(part)
    assert whole is not None
    return whole


def stored_names(
    layout: DecoderLayout, backbone: Mapping[str, Any]
) -> Iterator[tuple[str, list[str], int]]:
    """The parameters of a network, and their names in a file of a family.

    Args:
        layout: the family.
        backbone: fields of the backbone `llama`.

    Yields:
        The name here, the names in the file that are stacked for it, and the number of experts; 0
        for a parameter without them.
    """
    absent = [*["bias"] * (not layout.qkv_bias), *["_gain"] * (not layout.qk_norm)]
    absent += ["head.weight"] * backbone["tied_head"]
    experts = backbone.get("experts", 0)
    for here, there in layout.names.items():
        if here.endswith(tuple(absent)):
            continue
        mlp = here.startswith("blocks.{}.mlp.")
        layers = backbone["depth"] if "{}" in here else 1
        for layer in range(
            min(layers, backbone.get("dense_layers", 0)) if mlp and experts else layers
        ):
            yield here.format(layer), [name.format(layer) for name in there], 0
    if not experts:
        return
    odd = [*["bias"] * (not backbone["expert_bias"]), *["shared."] * (not backbone["shared_inner"])]
    for layer in range(backbone["dense_layers"], backbone["depth"]):
        for here, there in EXPERT_NAMES.items():
            if here.startswith(tuple(odd)):
                continue
            stacks = experts if here in ("up", "down") else 0
            names = [name.format(expert=e) for e in range(stacks or 1) for name in there]
            yield (
                f"blocks.{layer}.mlp.{here}",
                [f"model.layers.{layer}.mlp.{n}" for n in names],
                stacks,
            )
