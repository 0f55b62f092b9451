"""Reader of BERT, RoBERTa, MPNet and DeBERTa as masked language models to be trained further."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.extensions.encoders.encoder_layout import LAYOUTS, EncoderLayout
from unmask.extensions.encoders.write_encoder import write_encoder
from unmask.formats.foreign import ForeignCheckpoint, ForeignSettings, as_float, renamed
from unmask.formats.foreign_format import ForeignFormat
from unmask.formats.format import FORMATS, ReadFormat

_EITHER = r"\.(weight|bias)"


def read_encoder(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignCheckpoint:
    """Reads an encoder of transformers as an MDLM to be trained further.

    An encoder without a masked-LM head gets a fresh one, whose matrix is the embedding. A single
    token type is added to the position embeddings. Poolers and other heads are dropped.
    """
    settings = ForeignSettings(tree, where)
    family = settings.get("model_type", str)
    layout = LAYOUTS[family]
    settings.require("hidden_act", "gelu", None)
    settings.require("position_embedding_type", "absolute", None)
    backbone = _backbone(settings, layout)
    kept = {
        _prefixed(_modern(name, layout), layout): as_float(tensor, name, where)
        for name, tensor in tensors.items()
        if not name.endswith("embeddings.position_ids")
    }
    kept = {name: tensor for name, tensor in kept.items() if not name.startswith(layout.dropped)}
    fresh = _complete_head(kept, layout, backbone, where)
    weights = _embeddings(kept, settings, layout, backbone, where)
    weights |= renamed(_fused(kept, backbone["depth"], layout, where), _rules(layout), where)
    if fresh:
        backbone["tied_head"] = True
    sections = {
        "method": {"name": "mdlm"},
        "schedule": {"name": "loglinear"},
        "backbone": backbone,
    }
    size = settings.get("vocab_size", int)
    return ForeignCheckpoint(sections, backbone["positions"], size, weights, exact=False)


def _backbone(settings: ForeignSettings, layout: EncoderLayout) -> dict[str, Any]:
    """The section `backbone` of the configuration."""
    positions = settings.get("max_position_embeddings", int)
    if layout.positions:
        positions -= _first_position(settings, layout)
    if positions < 1:
        raise UnmaskError(
            f"{settings.where} does not fit: pad_token_id leaves no positions for tokens"
        )
    backbone: dict[str, Any] = {
        "name": layout.backbone,
        "width": settings.get("hidden_size", int),
        "depth": settings.get("num_hidden_layers", int),
        "heads": settings.get("num_attention_heads", int),
        "inner": settings.get("intermediate_size", int),
        "positions": positions,
        "epsilon": settings.get("layer_norm_eps", float, 1e-12),
        "dropout": settings.get("hidden_dropout_prob", float, 0.1),
    }
    if layout.backbone == "mpnet":
        backbone["buckets"] = settings.get("relative_attention_num_buckets", int, 32)
    if layout.backbone == "deberta":
        settings.require("relative_attention", True)
        settings.require("share_att_key", True)
        settings.require("position_biased_input", False)
        settings.require("norm_rel_ebd", "layer_norm")
        settings.require("conv_kernel_size", 0, None)
        settings.require("embedding_size", backbone["width"], None)
        settings.require("max_relative_positions", -1, 0, None)
        kinds = settings.tree.get("pos_att_type")
        kinds = kinds.split("|") if isinstance(kinds, str) else kinds
        if not isinstance(kinds, list) or sorted(map(str, kinds)) != ["c2p", "p2c"]:
            raise UnmaskError(
                f"{settings.where}: pos_att_type is {kinds}; only p2c|c2p is supported"
            )
        backbone["buckets"] = settings.get("position_buckets", int)
    return backbone


def _first_position(settings: ForeignSettings, layout: EncoderLayout) -> int:
    """The row of position 0 in the table; RoBERTa numbers positions from pad_token_id + 1."""
    if layout.first_position is not None:
        return layout.first_position
    first = settings.get("pad_token_id", int, 1) + 1
    if first < 0:
        raise UnmaskError(
            f"{settings.where} does not fit: pad_token_id {first - 1} leaves no positions for tokens"
        )
    return first


def _embeddings(
    kept: dict[str, Tensor],
    settings: ForeignSettings,
    layout: EncoderLayout,
    backbone: dict[str, Any],
    where: str,
) -> dict[str, Tensor]:
    """The tables of positions and token types. A single type is added to the positions."""
    base, weights = f"{layout.prefix}.embeddings", {}
    types = kept.pop(f"{base}.token_type_embeddings.weight", None)
    if types is not None and (len(types) > 1 or not layout.positions):
        backbone["types"] = len(types)
        weights["types.weight"] = types
    if layout.positions:
        table = _take(kept, f"{base}.position_embeddings.weight", where)
        table = table[_first_position(settings, layout) :]
        folded = types is not None and "types.weight" not in weights
        weights["positions.weight"] = table + types[:1] if folded and types is not None else table
    return weights


def _rules(layout: EncoderLayout) -> list[tuple[str, str]]:
    prefix = re.escape(layout.prefix)
    layer = rf"{prefix}\.encoder\.layer\.(\d+)\."
    rules = [(rf"{prefix}\.embeddings\.word_embeddings\.weight", "embedding.weight")]
    rules += [(rf"{prefix}\.embeddings\.LayerNorm{_EITHER}", r"norm.\1")]
    rules += [(rf"{prefix}\.{re.escape(old)}", new) for old, new in layout.others.items()]
    rules += [(rf"{layer}qkv{_EITHER}", r"blocks.\1.qkv.\2")]
    rules += [
        (rf"{layer}{re.escape(old)}{_EITHER}", rf"blocks.\1.{new}.\2")
        for old, new in layout.layer.items()
    ]
    rules += [(re.escape(old) + _EITHER, rf"{new}.\1") for old, new in layout.head.items()]
    return rules


def _modern(name: str, layout: EncoderLayout) -> str:
    """A parameter name with the names of today for gamma, beta and renamed heads."""
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    name = name.replace("LayerNorm.beta", "LayerNorm.bias")
    for old, new in layout.old_names.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def _prefixed(name: str, layout: EncoderLayout) -> str:
    """A parameter name with the prefix of its family, which the file of a bare encoder lacks."""
    bare = name.startswith(("embeddings.", "encoder."))
    return f"{layout.prefix}.{name}" if bare else name


def _complete_head(
    kept: dict[str, Tensor], layout: EncoderLayout, backbone: dict[str, Any], where: str
) -> bool:
    """Adds the weight and the bias of the head to `kept`; a head without a weight is the embedding.

    Returns True if there is no head at all: a fresh one is added.
    """
    names = {new: old for old, new in layout.head.items()}
    bias = kept.pop(layout.head_bias, None)
    if bias is not None:
        kept.setdefault(f"{names['head']}.bias", bias)
    table = _found(kept, f"{layout.prefix}.embeddings.word_embeddings.weight", where)
    present = [name for name in kept if name.startswith(tuple(names.values()))]
    kept.setdefault(f"{names['head']}.weight", table)
    if present:
        if f"{names['head']}.bias" not in kept:
            raise UnmaskError(
                f"{where} has a damaged masked-LM head: {names['head']}.bias is missing"
            )
        return False
    width = backbone["width"]
    generator = torch.Generator().manual_seed(0)  # the same head in every run
    kept[f"{names['head']}.bias"] = torch.zeros(len(table))
    kept[f"{names['dense']}.weight"] = 0.02 * torch.randn(width, width, generator=generator)
    kept[f"{names['dense']}.bias"] = torch.zeros(width)
    kept[f"{names['dense_norm']}.weight"] = torch.ones(width)
    kept[f"{names['dense_norm']}.bias"] = torch.zeros(width)
    return True


def _fused(
    kept: Mapping[str, Tensor], depth: int, layout: EncoderLayout, where: str
) -> dict[str, Tensor]:
    """The tensors with query, key and value of each layer concatenated to one matrix."""
    tensors = dict(kept)
    for layer in range(depth):
        base = f"{layout.prefix}.encoder.layer.{layer}"
        for part in ("weight", "bias"):
            three = [_take(tensors, f"{base}.{name}.{part}", where) for name in layout.qkv]
            tensors[f"{base}.qkv.{part}"] = torch.cat(three)
    return tensors


def _found(tensors: Mapping[str, Tensor], name: str, where: str) -> Tensor:
    if name not in tensors:
        raise UnmaskError(f"{where} does not fit: {name} is missing")
    return tensors[name]


def _take(tensors: dict[str, Tensor], name: str, where: str) -> Tensor:
    found = _found(tensors, name, where)
    del tensors[name]
    return found


@FORMATS.register("bert")
class BertFormat(ForeignFormat):
    """BERT, RoBERTa, MPNet and DeBERTa (2 and 3) with or without a masked-LM head,
    from transformers.
    """

    model_types = tuple(LAYOUTS)
    parts = staticmethod(read_encoder)

    @classmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        """Writes the folder in the layout of transformers."""
        cls.check_target(folder)
        write_encoder(bundle, folder)

    @classmethod
    def check_target(cls, folder: Path) -> None:
        """Raises an error if the folder holds anything but an encoder of this format."""
        super(ReadFormat, cls).check_target(folder)
