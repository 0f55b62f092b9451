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
# of weights by a part of their names; 1.5 for others. Attention then differs by position
_SCALES = {
    "q_proj": 2.5,
    "k_proj": 2.5,
    "query_key": 4.0,
    "attention.dense": 4.0,
    "gate.weight": 4.0,
}
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
    "llada2_moe": {
        **_COMMON,
        "architectures": ["LLaDA2MoeModelLM"],
        "head_dim": HEAD_WIDTH,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 3,
        "num_shared_experts": 1,
        "n_group": 4,
        "topk_group": 2,
        "moe_intermediate_size": EXPERT_INNER,
        "first_k_dense_replace": 1,
        "partial_rotary_factor": 0.5,
        "routed_scaling_factor": 2.5,
        "use_qk_norm": True,
        "use_bias": False,
        "use_qkv_bias": False,
        "mask_token_id": MASK,
    },
    "sdar_moe": {
        **_QWEN3,
        "architectures": ["SDARMoeForCausalLM"],
        "block_size": 4,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": EXPERT_INNER,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    "Fast_dLLM_Qwen": {**_QWEN2, "architectures": ["Fast_dLLM_QwenForCausalLM"], "bd_size": 32},
}


def weights(kind: str) -> dict[str, torch.Tensor]:
    """The weights of a family under its own names."""
    found = {}
    for name, shape in _SHAPES[kind]():
        draws = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
        gain = "norm" in name or "ln_f" in name
        sharp = next((size for part, size in _SCALES.items() if part in name), 1.5)
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


def _llada2() -> Shapes:
    for name, shape in _qwen(WIDTH, bias=False, norms=True):
        if name.endswith(("k_proj.weight", "v_proj.weight")) or "layers.1.mlp" in name:
            continue
        for there, here in _LLADA2.items():
            name = name.replace(there, here)
        rows = (HEADS + 4) * HEAD_WIDTH if "query_key_value" in name else shape[0]
        yield name, (rows, *shape[1:])
    yield "model.layers.1.mlp.gate.expert_bias", (EXPERTS,)
    yield from _mlp("model.layers.1.mlp.shared_experts", WIDTH, EXPERT_INNER)
    yield from _experts("model.layers.1.mlp")


def _sdar_moe() -> Shapes:
    yield from (one for one in _qwen(WIDTH, bias=False, norms=True) if ".mlp." not in one[0])
    for layer in range(DEPTH):
        yield from _experts(f"model.layers.{layer}.mlp")


def _experts(where: str) -> Shapes:
    yield f"{where}.gate.weight", (EXPERTS, WIDTH)
    for number in range(EXPERTS):
        yield from _mlp(f"{where}.experts.{number}", WIDTH, EXPERT_INNER)


_LLADA2 = {
    "embed_tokens": "word_embeddings",
    "self_attn.q_proj": "attention.query_key_value",
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
}
_SHAPES = {
    "llada2_moe": _llada2,
    "sdar_moe": _sdar_moe,
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
    if kind == "llada2_moe":
        return "model.word_embeddings.weight", "dense.weight", "down_proj.weight", "lm_head.weight"
    return "model.embed_tokens.weight", "o_proj.weight", "down_proj.weight", "lm_head.weight"
