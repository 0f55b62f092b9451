"""GGUF files of llama.cpp: settings and dequantised tensors under the names of transformers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.files.untrusted import refusing
from unmask.imports import extra

# architecture -> model_type of transformers; llama.cpp stores Mistral as llama
_ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
_SETTINGS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "head_dim": "attention.key_length",
    "rope_theta": "rope.freq_base",
    "sliding_window": "attention.sliding_window",
}
_SCALING = {
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
}
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
}
_FREQUENCIES = "rope_freqs.weight"  # llama3's scaling, as divisors of the frequencies
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


class GGUFFile(Mapping[str, Tensor]):
    """The tensors of a GGUF file by the names of transformers; a lookup dequantises one tensor."""

    def __init__(self, path: Path) -> None:
        gguf = extra("gguf", f"the file {path.name!r}", "gguf")
        self.path, self._quants = path, gguf.quants
        with refusing(f"{path} cannot be read"):
            self._reader = gguf.GGUFReader(path)
            self._tensors = {_name(each.name): each for each in self._reader.tensors}
        self.architecture = self.field("general.architecture")
        if self.architecture not in _ARCHITECTURES:
            raise UnmaskError(
                f"{path} holds a model of type {self.architecture!r}, which cannot be read; "
                f"known in GGUF: {', '.join(_ARCHITECTURES)}"
            )

    def field(self, name: str) -> Any:
        """A value of the file's metadata; None if it is missing."""
        found = self._reader.fields.get(name)
        return None if found is None else found.contents()

    def settings(self) -> dict[str, Any]:
        """The content that config.json would have."""
        found = {name: self._own(key) for name, key in _SETTINGS.items()}
        tree = {name: value for name, value in found.items() if value is not None}
        scaling = {name: self._own(key) for name, key in _SCALING.items()}
        if scaling["rope_type"] in (None, "none"):
            scaling = self._llama3()
        embedding = self._tensors.get("model.embed_tokens.weight")
        if embedding is None:
            raise UnmaskError(f"{self.path} does not fit: token_embd.weight is missing")
        return tree | {
            "model_type": _ARCHITECTURES[self.architecture],
            "vocab_size": int(embedding.shape[-1]),
            "tie_word_embeddings": "lm_head.weight" not in self._tensors,
            "rope_scaling": {name: value for name, value in scaling.items() if value is not None},
        }

    def shapes(self) -> dict[str, Tensor]:
        """The tensors without data, on the meta device."""
        return {
            name: torch.empty(
                [int(size) for size in reversed(self._tensors[name].shape)], device="meta"
            )
            for name in self
        }

    def __getitem__(self, name: str) -> Tensor:
        found = self._tensors[name]
        try:
            values = self._quants.dequantize(found.data, found.tensor_type)
        except NotImplementedError:
            raise UnmaskError(
                f"{self.path}: {found.name} has type {found.tensor_type.name}, which the library gguf "
                "cannot dequantise"
            ) from None
        shape = tuple(int(size) for size in reversed(found.shape))
        tensor = torch.from_numpy(np.array(values, np.float32).reshape(shape))
        heads = {"q_proj": "attention.head_count", "k_proj": "attention.head_count_kv"}
        key = heads.get(name.split(".")[-2])
        if self.architecture != "llama" or key is None:
            return tensor
        # neighbours pair in llama.cpp's rotary positions; here i pairs with i + width / 2
        by_pair = tensor.unflatten(0, (int(self._own(key) or self._own(heads["q_proj"])), -1, 2))
        return by_pair.transpose(1, 2).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(name for name in self._tensors if name != _FREQUENCIES)

    def __len__(self) -> int:
        return len(self._tensors) - (_FREQUENCIES in self._tensors)

    def _own(self, key: str) -> Any:
        value = self.field(f"{self.architecture}.{key}")
        # numbers are stored in fp32: 1e-5 is read as 9.9999997e-06
        return float(f"{value:.7g}") if isinstance(value, float) else value

    def _llama3(self) -> dict[str, Any]:
        """The scaling of Llama 3.1 to 3.3, which a file holds as divisors of the frequencies."""
        if _FREQUENCIES not in self._tensors:
            return {}
        return {"rope_type": "llama3", "factor": float(self[_FREQUENCIES].max()), **_LLAMA3}


def _name(name: str) -> str:
    """The name of a tensor in transformers; a name outside the tables stays."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("blk."):
        return f"{_NAMES.get(stem, stem)}.{kind}"
    _, layer, part = stem.split(".", 2)
    return f"model.layers.{layer}.{_LAYER.get(part, part)}.{kind}"
