"""Reader of decoders: Llama, Mistral, Qwen, and what has their layout."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.files.untrusted import refusing
from unmask.formats.decoders.decoder_layout import LAYOUTS, DecoderLayout
from unmask.formats.decoders.gguf_file import GGUFFile
from unmask.formats.decoders.gguf_tokenizer import tokenizer_files
from unmask.formats.decoders.rope_settings import read_rope
from unmask.formats.foreign import ForeignCheckpoint, ForeignSettings, as_float
from unmask.formats.foreign_format import ForeignFormat, build_bundle, find_tokenizer
from unmask.formats.format import FORMATS

_LENGTH = 2048  # most tokens of a row by default; the cache of a longer text needs more memory
_BUFFER = ".rotary_emb.inv_freq"  # of old files; the settings have the frequencies


def read_decoder(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignCheckpoint:
    """Reads a decoder as an autoregressive model, whose first token is given and not predicted.

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
    sections = {
        "method": {"name": "autoregressive", "given_first": True},
        "schedule": {"name": "loglinear"},
        "backbone": {"name": "llama", "causal": True, **backbone},
    }
    size = settings.get("vocab_size", int)
    weights = _weights(tensors, layout, backbone, where)
    length = min(backbone["positions"], _LENGTH)
    return ForeignCheckpoint(sections, length, size, weights, taken=True, exact=False)


def _backbone(settings: ForeignSettings, layout: DecoderLayout) -> dict[str, Any]:
    """The fields of the backbone."""
    settings.require("hidden_act", "silu", None)
    for name, values in layout.required.items():
        settings.require(name, *values, None)
    found: dict[str, Any] = {
        here: settings.get(there, int)
        for here, there in layout.settings.items()
        if here != "kv_heads" or there in settings
    }
    _check_window(settings, found["positions"])
    if "head_dim" in settings:
        found["head_width"] = settings.get("head_dim", int)
    return {
        **found,
        "epsilon": settings.get("rms_norm_eps", float, 1e-6),
        "qkv_bias": layout.qkv_bias,
        "qk_norm": layout.qk_norm,
        "tied_head": settings.get("tie_word_embeddings", bool, False),
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
    absent = {"qkv.bias": "qkv_bias", "gain": "qk_norm"}
    found = {}
    for here, there in layout.names.items():
        if any(here.endswith(end) and not backbone[flag] for end, flag in absent.items()):
            continue
        if here == "head.weight" and backbone["tied_head"]:
            left.discard(there[0])  # a copy of the embedding
            continue
        for layer in range(backbone["depth"] if "{}" in here else 1):
            parts = []
            for name in (each.format(layer) for each in there):
                if name not in left:
                    raise UnmaskError(f"{where} does not fit: {name} is missing")
                left.remove(name)
                parts.append(as_float(tensors[name], name, where))
            found[here.format(layer)] = torch.cat(parts)  # a copy: a tensor of fp32 is the file
    if left:
        raise UnmaskError(f"{where} does not fit: {min(left)} is not expected")
    return found


@FORMATS.register("gguf")
class GGUFFormat(ForeignFormat):
    """A GGUF file of Llama, Mistral, Qwen2 or Qwen3, with its tokenizer; its weights are dequantised."""

    model_types = ()
    parts = staticmethod(read_decoder)

    @classmethod
    def matches(cls, path: Path) -> bool:
        """True if the path is a file whose name ends in .gguf."""
        return path.suffix == ".gguf" and path.is_file()

    @classmethod
    def read(cls, path: Path, tokenizer: str | None = None, averaged: bool = True) -> Bundle:
        """The model as a bundle, with the tokenizer of the file if none is given."""
        file = GGUFFile(path)
        with refusing(f"{path} cannot be read"):
            parts = read_decoder(file.settings(), file, str(path))
        if tokenizer is not None:
            return build_bundle(parts, find_tokenizer(path, parts, tokenizer), str(path))
        with tempfile.TemporaryDirectory() as folder:
            for name, content in tokenizer_files(file).items():
                (Path(folder) / name).write_text(content, encoding="utf-8")
            found = find_tokenizer(Path(folder), parts)
        return build_bundle(parts, found, str(path))


@FORMATS.register("decoder")
class DecoderFormat(ForeignFormat):
    """Llama, Mistral, Qwen2 and Qwen3 in the layout of transformers."""

    model_types = tuple(LAYOUTS)
    parts = staticmethod(read_decoder)
