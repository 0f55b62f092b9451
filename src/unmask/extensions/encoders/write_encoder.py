"""Writer of encoders and classifiers in the layout of transformers and sentence-transformers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.extensions.encoders.encoder_layout import LAYOUTS, EncoderLayout
from unmask.files.storage import atomic_folder, write_json
from unmask.files.tensors import system_errors
from unmask.formats.huggingface import class_fields
from unmask.formats.tokenizer_files import tokenizer_files
from unmask.methods.sequence_classifier import SequenceClassifier, as_classifier

_FAMILIES = {
    "bert": ("bert", "Bert"),
    "mpnet": ("mpnet", "MPNet"),
    "deberta": ("deberta-v2", "DebertaV2"),
}
_DEBERTA = {
    "relative_attention": True,
    "max_relative_positions": -1,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}


def write_encoder(bundle: Bundle, folder: Path) -> None:
    """Writes a folder that transformers reads without code of unmask.

    A masked language model becomes a ForMaskedLM, which sentence-transformers reads too, with the
    mean over tokens as the embedding. A classifier becomes a ForSequenceClassification.
    """
    name = bundle.config.backbone.name
    if name not in _FAMILIES:
        raise UnmaskError(
            f"backbone {name} has no layout in transformers: export it with --format huggingface"
        )
    family, prefix = _FAMILIES[name]
    classifier = as_classifier(bundle.method)
    if classifier is not None:
        _check_classifier(classifier, name)
    elif not bundle.method.capabilities.infill:
        raise UnmaskError(f"method {bundle.config.method.name} is no masked language model")
    texts = tokenizer_files(bundle.tokenizer, bundle.length, types=name == "bert")
    weights = _weights(bundle, LAYOUTS[family], classifier)
    task = "ForMaskedLM" if classifier is None else "ForSequenceClassification"
    config = {"architectures": [prefix + task], "model_type": family, **_config(bundle)}
    if classifier is not None:
        config |= class_fields(bundle) | {"classifier_dropout": classifier.config.dropout}
    with atomic_folder(folder) as new:
        with system_errors(folder):
            safetensors.torch.save_file(weights, new / "model.safetensors", {"format": "pt"})
        write_json(new / "config.json", config)
        for file, content in texts.items():
            (new / file).write_text(content, encoding="utf-8")
        if classifier is None:
            _write_sentence_modules(new, bundle)
    (folder / "manifest.json").unlink()  # files of this layout carry no hashes


def _check_classifier(classifier: SequenceClassifier, backbone: str) -> None:
    """Raises an error unless transformers has a class with the same head."""
    config = classifier.config
    if config.pooling != "cls" or not config.pooler:
        raise UnmaskError(
            f"transformers has no {backbone} classifier with pooling {config.pooling}: train one with "
            "pooling cls and a pooler, or export with --format huggingface"
        )
    if backbone == "deberta":
        raise UnmaskError(
            "DeBERTa's classifier in transformers has another pooler: export with --format huggingface"
        )


def _config(bundle: Bundle) -> dict[str, Any]:
    """The fields of config.json that describe the network."""
    c, v = bundle.config.backbone.config, bundle.tokenizer.vocabulary
    name = bundle.config.backbone.name
    first = LAYOUTS[_FAMILIES[name][0]].first_position or 0
    config = {
        "vocab_size": len(bundle.method.backbone.state_dict()["embedding.weight"]),
        "hidden_size": c.width,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": c.inner or 4 * c.width,
        "hidden_act": "gelu",
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": c.positions + first,
        "layer_norm_eps": c.epsilon,
        "type_vocab_size": c.types if name == "deberta" else c.types or 2,
        "pad_token_id": v.pad_id,
        "bos_token_id": v.bos_id,
        "eos_token_id": v.eos_id,
        "tie_word_embeddings": False,  # the file holds the matrix of the head
        "dtype": "float32",
    }
    if name == "mpnet":
        config["relative_attention_num_buckets"] = c.buckets
    if name == "deberta":
        config |= {**_DEBERTA, "position_buckets": c.buckets, "legacy": True}
    return config


def _weights(
    bundle: Bundle, layout: EncoderLayout, classifier: SequenceClassifier | None
) -> dict[str, Tensor]:
    """The weights under the names of transformers."""
    own = {k: v.detach().cpu() for k, v in bundle.method.backbone.state_dict().items()}
    prefix, found = layout.prefix, {}
    base = f"{prefix}.embeddings"
    found[f"{base}.word_embeddings.weight"] = own["embedding.weight"]
    found |= _both(own, "norm", f"{base}.LayerNorm")
    if layout.positions:
        table = own["positions.weight"]
        blank = torch.zeros(layout.first_position or 0, table.shape[1])
        found[f"{base}.position_embeddings.weight"] = torch.cat([blank, table])
    if "types.weight" in own:
        found[f"{base}.token_type_embeddings.weight"] = own["types.weight"]
    elif prefix == "bert":
        found[f"{base}.token_type_embeddings.weight"] = torch.zeros(
            2, own["embedding.weight"].shape[1]
        )
    for old, new in layout.others.items():
        found[f"{prefix}.{old}"] = own[new]
    for layer in range(bundle.config.backbone.config.depth):
        there, here = f"{prefix}.encoder.layer.{layer}", f"blocks.{layer}"
        for part in ("weight", "bias"):
            three = own[f"{here}.qkv.{part}"].chunk(3)
            found |= {f"{there}.{n}.{part}": t for n, t in zip(layout.qkv, three, strict=True)}
        for old, new in layout.layer.items():
            found |= _both(own, f"{here}.{new}", f"{there}.{old}")
    found |= _head(own, layout, classifier)
    return {name: tensor.clone().contiguous() for name, tensor in found.items()}


def _head(
    own: Mapping[str, Tensor], layout: EncoderLayout, classifier: SequenceClassifier | None
) -> dict[str, Tensor]:
    """The weights of the masked-LM head, or of the classes with their pooler."""
    if classifier is None:
        found: dict[str, Tensor] = {}
        for old, new in layout.head.items():
            found |= _both(own, new, old)
        return found | {layout.head_bias: own["head.bias"]}
    assert classifier.pooler is not None
    pooler = {f"pooler.{k}": v.detach().cpu() for k, v in classifier.pooler.state_dict().items()}
    if layout.prefix == "bert":
        return _both(pooler, "pooler", "bert.pooler.dense") | _both(own, "head", "classifier")
    return _both(pooler, "pooler", "classifier.dense") | _both(own, "head", "classifier.out_proj")


def _both(tensors: Mapping[str, Tensor], here: str, there: str) -> dict[str, Tensor]:
    """Weight and bias of a layer under another name."""
    return {f"{there}.{part}": tensors[f"{here}.{part}"] for part in ("weight", "bias")}


def _write_sentence_modules(folder: Path, bundle: Bundle) -> None:
    """The files of sentence-transformers: an encoder, then the mean over tokens."""
    kind = "sentence_transformers.models"
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{kind}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules, indent=1) + "\n", encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    width = bundle.config.backbone.config.width
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": bundle.length})
