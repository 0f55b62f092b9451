"""Readers of BERT and RoBERTa as initial weights of an MDLM, and of GPT-2 as an autoregressive model."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.formats.foreign import ForeignCheckpoint, ForeignSettings, as_float, renamed
from unmask.formats.foreign_format import ForeignFormat
from unmask.formats.format import FORMATS

_BERT_LAYER = {
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "mlp_norm",
}
_GPT2_LAYER = {
    "ln_1": "attention_norm",
    "attn.c_attn": "qkv",
    "attn.c_proj": "out",
    "ln_2": "mlp_norm",
    "mlp.c_fc": "up",
    "mlp.c_proj": "down",
}
_HEADS = {  # per family: name in transformers -> name here
    "bert": {
        "cls.predictions.transform.dense": "dense",
        "cls.predictions.transform.LayerNorm": "dense_norm",
        "cls.predictions.decoder": "head",
    },
    "roberta": {
        "lm_head.dense": "dense",
        "lm_head.layer_norm": "dense_norm",
        "lm_head.decoder": "head",
    },
}
_BIAS = {"bert": "cls.predictions.bias", "roberta": "lm_head.bias"}


def read_bert(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignCheckpoint:
    """Reads BertForMaskedLM or RobertaForMaskedLM as an MDLM to be trained further.

    The embedding of token type 0 is added to the position embeddings. Other token types, the pooler
    and the next-sentence head are dropped.
    """
    settings = ForeignSettings(tree, where)
    family = settings.get("model_type", str)
    settings.require("hidden_act", "gelu", None)
    settings.require("position_embedding_type", "absolute", None)
    size = settings.get("vocab_size", int)
    # RoBERTa numbers positions from pad_token_id + 1
    offset = settings.get("pad_token_id", int, 1) + 1 if family == "roberta" else 0
    positions = settings.get("max_position_embeddings", int) - offset
    if offset < 0 or positions < 1:
        raise UnmaskError(
            f"{where} does not fit: pad_token_id {offset - 1} leaves no positions for tokens"
        )
    backbone: dict[str, Any] = {
        "name": "bert",
        "width": settings.get("hidden_size", int),
        "depth": settings.get("num_hidden_layers", int),
        "heads": settings.get("num_attention_heads", int),
        "inner": settings.get("intermediate_size", int),
        "positions": positions,
        "epsilon": settings.get("layer_norm_eps", float, 1e-12),
        "dropout": settings.get("hidden_dropout_prob", float, 0.1),
    }
    kept = {
        _modern(name): as_float(tensor, name, where)
        for name, tensor in tensors.items()
        if not _is_dropped(name, family)
    }
    _tie(kept, family, where)
    type_table = _take(kept, f"{family}.embeddings.token_type_embeddings.weight", where)
    position_table = _take(kept, f"{family}.embeddings.position_embeddings.weight", where)
    weights = renamed(_fused(kept, backbone["depth"], family, where), _bert_rules(family), where)
    weights["positions.weight"] = position_table[offset:] + type_table[:1]
    sections = {
        "method": {"name": "mdlm"},
        "schedule": {"name": "loglinear"},
        "backbone": backbone,
    }
    return ForeignCheckpoint(sections, positions, size, weights, exact=False)


def read_gpt2(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignCheckpoint:
    """Reads GPT2LMHeadModel. Each row begins with <|endoftext|>, which is given and not predicted."""
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


def _bert_rules(family: str) -> list[tuple[str, str]]:
    either = r"\.(weight|bias)"
    layer = rf"{family}\.encoder\.layer\.(\d+)\."
    rules = [(rf"{family}\.embeddings\.word_embeddings\.weight", "embedding.weight")]
    rules += [(rf"{family}\.embeddings\.LayerNorm{either}", r"norm.\1")]
    rules += [(rf"{layer}qkv{either}", r"blocks.\1.qkv.\2")]
    rules += [
        (rf"{layer}{old.replace('.', '[.]')}{either}", rf"blocks.\1.{new}.\2")
        for old, new in _BERT_LAYER.items()
    ]
    rules += [
        (old.replace(".", r"\.") + either, rf"{new}.\1") for old, new in _HEADS[family].items()
    ]
    return rules


def _modern(name: str) -> str:
    """A parameter name with weight and bias for the old names of LayerNorm, gamma and beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _is_dropped(name: str, family: str) -> bool:
    """True for tensors to drop: the pooler, the next-sentence head and the buffer of position ids."""
    other = ("cls.seq_relationship.", f"{family}.pooler.")
    return name.startswith(other) or name.endswith("embeddings.position_ids")


def _tie(kept: dict[str, Tensor], family: str, where: str) -> None:
    """Adds the head's weight and bias to `kept`. A head without a weight shares the embedding."""
    bias = kept.pop(_BIAS[family], None)
    decoder = next(old for old, new in _HEADS[family].items() if new == "head")
    if bias is not None:
        kept.setdefault(f"{decoder}.bias", bias)
    table = kept.get(f"{family}.embeddings.word_embeddings.weight")
    if table is not None:
        kept.setdefault(f"{decoder}.weight", table)
    if f"{decoder}.bias" not in kept:
        raise UnmaskError(
            f"{where} has no head of a masked language model: {decoder}.bias is missing"
        )


def _fused(kept: Mapping[str, Tensor], depth: int, family: str, where: str) -> dict[str, Tensor]:
    """The tensors with query, key and value of each layer concatenated to one matrix."""
    tensors = dict(kept)
    for layer in range(depth):
        for part in ("weight", "bias"):
            base = f"{family}.encoder.layer.{layer}"
            three = [
                _take(tensors, f"{base}.attention.self.{name}.{part}", where)
                for name in ("query", "key", "value")
            ]
            tensors[f"{base}.qkv.{part}"] = torch.cat(three)
    return tensors


def _take(tensors: dict[str, Tensor], name: str, where: str) -> Tensor:
    if name not in tensors:
        raise UnmaskError(f"{where} does not fit: {name} is missing")
    return tensors.pop(name)


@FORMATS.register("bert")
class BertFormat(ForeignFormat):
    """BERT and RoBERTa with their masked-LM head, in the layout of transformers."""

    model_types = ("bert", "roberta")
    parts = staticmethod(read_bert)


@FORMATS.register("gpt2")
class GPT2Format(ForeignFormat):
    """GPT-2 in the layout of transformers."""

    model_types = ("gpt2",)
    parts = staticmethod(read_gpt2)
