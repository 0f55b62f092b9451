"""Tiny models of each family of diffusion models, in the family's own layout.

Their weights are a function of the tensors' names, so that another program builds the same models. As in trained models, the
special tokens, MASK among them, have no probability.
"""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SIZE, MASK, WIDTH, DEPTH, HEADS, HEAD_WIDTH, INNER = 64, 57, 32, 2, 4, 16, 48
SPECIAL = (0, 1, 2, *range(MASK, SIZE))  # BOS, EOS, UNK, and ids that are no token
EXPERTS, EXPERT_INNER = 8, 24
_POSITIVE, _FAR = (
    3.0,
    -8.0,
)  # of the first value of an embedding, and its weight in the logits of special tokens
_COMMON = {
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "intermediate_size": INNER,
    "max_position_embeddings": 256,
    "vocab_size": SIZE,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
_QWEN2 = {**_COMMON, "hidden_size": HEADS * HEAD_WIDTH, "mask_token_id": MASK}
_QWEN3 = {**_COMMON, "head_dim": HEAD_WIDTH, "attention_bias": False, "mask_token_id": MASK}
CONFIGS: dict[str, dict[str, Any]] = {
    "llada": {
        "architectures": ["LLaDAModelLM"],
        "d_model": HEADS * HEAD_WIDTH,
        "n_layers": DEPTH,
        "n_heads": HEADS,
        "n_kv_heads": HEADS,
        "mlp_hidden_size": INNER,
        "max_sequence_length": 256,
        "vocab_size": SIZE,
        "embedding_size": SIZE,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope": True,
        "alibi": False,
        "block_type": "llama",
        "activation_type": "silu",
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "attention_layer_norm": False,
        "attention_dropout": 0.0,
        "residual_dropout": 0.0,
        "embedding_dropout": 0.0,
        "bias_for_layer_norm": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "multi_query_attention": None,
        "scale_logits": False,
        "input_emb_norm": False,
        "weight_tying": False,
        "flash_attention": False,
        "init_device": "cpu",
        "mask_token_id": MASK,
        "eos_token_id": 1,
        "pad_token_id": 1,
    },
    "Dream": {**_QWEN2, "architectures": ["DreamModel"]},
    "sdar": {**_QWEN3, "architectures": ["SDARForCausalLM"], "block_size": 4},
    "Fast_dLLM_Qwen": {**_QWEN2, "architectures": ["Fast_dLLM_QwenForCausalLM"], "bd_size": 32},
}


def weights(kind: str) -> dict[str, torch.Tensor]:
    """The weights of a family under its own names."""
    found = {}
    for name, shape in _SHAPES[kind]():
        draws = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
        gain = "norm" in name or "ln_f" in name
        sharp = (
            2.5 if "q_proj" in name or "k_proj" in name else 1.5
        )  # attention that differs by position
        values = 1 + 0.2 * draws if gain else sharp / shape[-1] ** 0.5 * draws
        found[name] = torch.from_numpy(values).float()
    table, *outs, head = _marked(kind)
    found[table][:, 0] = _POSITIVE
    for name, tensor in found.items():
        if name.endswith(tuple(outs)):
            tensor[0] = 0.0  # so the first value of an embedding reaches the last layer
    found[head] *= 1.5
    found[head][:, 0] = 0.0
    found[head][list(SPECIAL)] = 0.0
    found[head][list(SPECIAL), 0] = _FAR
    return found


def write_family(folder: Path, kind: str, **settings: Any) -> None:
    """Writes the tiny model of a family with its tokenizer.

    Args:
        folder: a new or empty folder.
        kind: a key of `CONFIGS`.
        settings: changes of config.json.
    """
    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(weights(kind), folder / "model.safetensors", {"format": "pt"})
    tree = {"model_type": kind, **CONFIGS[kind], **settings}
    (folder / "config.json").write_text(json.dumps(tree))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[: MASK - 3]
    names = ["<s>", "</s>", "<unk>", *letters, "<|mask|>"]
    backend = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([*names[:3], names[-1]])
    backend.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))


Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _llada() -> Shapes:
    top, width = "model.transformer", HEADS * HEAD_WIDTH
    yield from ((f"{top}.{name}.weight", (SIZE, width)) for name in ("wte", "ff_out"))
    yield f"{top}.ln_f.weight", (width,)
    for layer in range(DEPTH):
        here = f"{top}.blocks.{layer}"
        yield from ((f"{here}.{name}.weight", (width,)) for name in ("attn_norm", "ff_norm"))
        for name in ("q_proj", "k_proj", "v_proj", "attn_out"):
            yield f"{here}.{name}.weight", (width, width)
        yield from ((f"{here}.{name}.weight", (INNER, width)) for name in ("ff_proj", "up_proj"))
        yield f"{here}.ff_out.weight", (width, INNER)


def _qwen(width: int, bias: bool, norms: bool) -> Shapes:
    yield "model.embed_tokens.weight", (SIZE, width)
    yield "lm_head.weight", (SIZE, width)
    yield "model.norm.weight", (width,)
    for layer in range(DEPTH):
        here = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{here}.{name}.weight", (width,)
        for name, heads in (("q", HEADS), ("k", 2), ("v", 2)):
            yield f"{here}.self_attn.{name}_proj.weight", (heads * HEAD_WIDTH, width)
            if bias:
                yield f"{here}.self_attn.{name}_proj.bias", (heads * HEAD_WIDTH,)
            if norms and name != "v":
                yield f"{here}.self_attn.{name}_norm.weight", (HEAD_WIDTH,)
        yield f"{here}.self_attn.o_proj.weight", (width, HEADS * HEAD_WIDTH)
        yield from _mlp(f"{here}.mlp", width, INNER)


def _mlp(where: str, width: int, inner: int) -> Shapes:
    yield f"{where}.gate_proj.weight", (inner, width)
    yield f"{where}.up_proj.weight", (inner, width)
    yield f"{where}.down_proj.weight", (width, inner)


_SHAPES = {
    "llada": _llada,
    "Dream": lambda: _qwen(HEADS * HEAD_WIDTH, bias=True, norms=False),
    "sdar": lambda: _qwen(WIDTH, bias=False, norms=True),
    "Fast_dLLM_Qwen": lambda: _qwen(HEADS * HEAD_WIDTH, bias=True, norms=False),
}


def _marked(kind: str) -> tuple[str, ...]:
    """Names of the embedding, of the matrices that write into the residual, and of the head."""
    if kind == "llada":
        top = "model.transformer"
        return f"{top}.wte.weight", "attn_out.weight", "ff_out.weight", f"{top}.ff_out.weight"
    return "model.embed_tokens.weight", "o_proj.weight", "down_proj.weight", "lm_head.weight"
