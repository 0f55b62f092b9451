"""Reader of GPT-2 as an autoregressive model."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.formats.foreign import ForeignCheckpoint, ForeignSettings, as_float, renamed
from unmask.formats.foreign_format import ForeignFormat
from unmask.formats.format import FORMATS

_GPT2_LAYER = {
    "ln_1": "attention_norm",
    "attn.c_attn": "qkv",
    "attn.c_proj": "out",
    "ln_2": "mlp_norm",
    "mlp.c_fc": "up",
    "mlp.c_proj": "down",
}


def read_gpt2(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignCheckpoint:
    """Reads GPT2LMHeadModel. Each row begins with <|endoftext|>,
    which is given and not predicted.
    """
    settings = ForeignSettings(tree, where)
    settings.require("activation_function", "gelu_new", "gelu_pytorch_tanh", None)
    settings.require("scale_attn_weights", True, None)
    settings.require("scale_attn_by_inverse_layer_idx", False, None)
    settings.require("reorder_and_upcast_attn", False, None)
    size, positions = settings.get("vocab_size", int), settings.get("n_positions", int)
    backbone: dict[str, Any] = {
        "name": "gpt2",
        "width": settings.get("n_embd", int),
        "depth": settings.get("n_layer", int),
        "heads": settings.get("n_head", int),
        "positions": positions,
        "epsilon": settings.get("layer_norm_epsilon", float, 1e-5),
        "dropout": settings.get("resid_pdrop", float, 0.1),
    }
    if "n_inner" in settings:
        backbone["inner"] = settings.get("n_inner", int)
    kept = {}
    for name, tensor in tensors.items():
        name = name.removeprefix("transformer.")
        if name.endswith((".attn.bias", ".attn.masked_bias")):  # buffers of the causal mask
            continue
        tensor = as_float(tensor, name, where)
        matrix = tensor.ndim == 2 and name.startswith("h.")
        kept[name] = tensor.t().contiguous() if matrix else tensor  # stored as [inputs, outputs]
    table = kept.get("wte.weight")
    if table is None or table.ndim != 2 or len(table) != size:
        raise UnmaskError(f"{where} does not fit: wte.weight must have {size} rows, one per token")
    head = kept.pop("lm_head.weight", table)
    rules = [(r"wte\.weight", "embedding.weight"), (r"wpe\.weight", "positions.weight")]
    rules += [(r"ln_f\.(weight|bias)", r"norm.\1")]
    rules += [
        (rf"h\.(\d+)\.{old.replace('.', '[.]')}\.(weight|bias)", rf"blocks.\1.{new}.\2")
        for old, new in _GPT2_LAYER.items()
    ]
    weights = renamed(kept, rules, where)
    weights |= {"head.weight": head, "head.bias": torch.zeros(size)}
    sections = {
        "method": {"name": "autoregressive", "given_first": True},
        "schedule": {"name": "loglinear"},
        "backbone": backbone,
    }
    return ForeignCheckpoint(sections, positions, size, weights, exact=False)


@FORMATS.register("gpt2")
class GPT2Format(ForeignFormat):
    """GPT-2 in the layout of transformers."""

    model_types = ("gpt2",)
    parts = staticmethod(read_gpt2)
