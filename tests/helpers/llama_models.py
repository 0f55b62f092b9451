"""Tiny random decoders of transformers, and the same networks here."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from unmask.backbones.llama import Llama
from unmask.formats.decoders.read_decoder import read_decoder
from unmask.vocabulary import Vocabulary

SIZE = 50
SHAPE = {
    "vocab_size": SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def _scaled(kind: str, **fields: Any) -> dict[str, Any]:
    rope = {"rope_type": kind, "rope_theta": 5000.0, "factor": 4.0, **fields}
    return {"rope_parameters": rope}


_ORIGINAL = {"original_max_position_embeddings": 16}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"num_key_value_heads": 4}),
    "llama, tied, wide heads": ("Llama", {"tie_word_embeddings": True, "head_dim": 16}),
    "linear": ("Llama", _scaled("linear")),
    "dynamic": ("Llama", _scaled("dynamic") | {"max_position_embeddings": 24}),
    "llama3": ("Llama", _scaled("llama3", low_freq_factor=1.0, high_freq_factor=4.0, **_ORIGINAL)),
    "yarn": ("Qwen3", _scaled("yarn", beta_slow=1.0, beta_fast=3.0, **_ORIGINAL)),
    "mistral": ("Mistral", {"sliding_window": None, "num_key_value_heads": 1}),
    "qwen2": ("Qwen2", {"rms_norm_eps": 1e-6}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
}


def reference(family: str, **fields: Any) -> Any:
    """A tiny model of transformers in which no weight is zero or one."""
    name, own = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**SHAPE | own | fields)
    config._attn_implementation = "sdpa"
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def tiny(family: str) -> tuple[Any, Llama]:
    """A model of transformers, and the backbone `llama` with its weights."""
    model = reference(family)
    parts = read_decoder(model.config.to_dict(), model.state_dict(), family)
    fields = {name: value for name, value in parts.sections["backbone"].items() if name != "name"}
    built = Llama(Llama.Config(**fields), Vocabulary(SIZE, SIZE - 1))
    weights = {"head.weight": parts.weights["embedding.weight"], **parts.weights}
    built.load_state_dict(weights)
    return model, built.eval()


WORDS = sorted(pre_tokenizers.ByteLevel.alphabet())[:42]
X = torch.randint(3, 40, (2, 20), generator=torch.Generator().manual_seed(3))


def write_tokenizer(folder: Path, chat: str | None = None) -> None:
    """A byte-level tokenizer of 45 ids with three special tokens."""
    names = ["<s>", "</s>", "<unk>", *WORDS]
    backend = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(names[:3])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": chat}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@torch.no_grad()
def check(bundle: Any, model: Any, ids: int = 50) -> None:
    """Equal logits of the ids that both know."""
    backbone = bundle.method.backbone
    ours = backbone.logits(backbone.features(X))[..., :ids]
    torch.testing.assert_close(ours, model(X).logits[..., :ids], rtol=0, atol=1e-5)
