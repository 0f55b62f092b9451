"""Names and settings of decoders by family, from their own to those of the backbone `llama`."""

from dataclasses import dataclass, field
from typing import Any

Names = dict[str, tuple[str, ...]]

# field of the backbone -> setting of config.json; the optional ones may be missing
_SETTINGS = {
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_width": "head_dim",
    "inner": "intermediate_size",
    "positions": "max_position_embeddings",
}
OPTIONAL = ("kv_heads", "head_width")
_LLADA_SETTINGS = {
    "width": "d_model",
    "depth": "n_layers",
    "heads": "n_heads",
    "kv_heads": "n_kv_heads",
    "inner": "mlp_hidden_size",
    "positions": "max_sequence_length",
}
# values that settings must have if they are there; others mean another network
_PLAIN: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
}
_QWEN2: dict[str, tuple[Any, ...]] = {"hidden_act": ("silu",), "use_sliding_window": (False,)}
_QWEN3 = {**_QWEN2, "attention_bias": (False,)}
_LLADA: dict[str, tuple[Any, ...]] = {
    "block_type": ("llama",),
    "activation_type": ("silu",),
    "layer_norm_type": ("rms",),
    "layer_norm_with_affine": (True,),
    "attention_layer_norm": (False,),
    "rope": (True,),
    "alibi": (False,),
    "include_bias": (False,),
    "include_qkv_bias": (False,),
    "bias_for_layer_norm": (False,),
    "multi_query_attention": (None,),
    "clip_qkv": (None,),
    "scale_logits": (False,),
    "input_emb_norm": (False,),
}


def _names(ends: tuple[str, str, str], layers: str, parts: Names) -> Names:
    """Parameter here -> those of a family, stacked in this order; {} is the number of a layer."""
    here = ("embedding.weight", "norm.weight", "head.weight")
    found: Names = {own: (f"{name}.weight",) for own, name in zip(here, ends, strict=True)}
    for own, names in parts.items():
        found[f"blocks.{{}}.{own}"] = tuple(f"{layers}.{{}}.{name}" for name in names)
    return found


NAMES = _names(
    ("model.embed_tokens", "model.norm", "lm_head"),
    "model.layers",
    {
        "attention_norm.weight": ("input_layernorm.weight",),
        "attention.qkv.weight": tuple(f"self_attn.{part}_proj.weight" for part in "qkv"),
        "attention.qkv.bias": tuple(f"self_attn.{part}_proj.bias" for part in "qkv"),
        "attention.query_gain": ("self_attn.q_norm.weight",),
        "attention.key_gain": ("self_attn.k_norm.weight",),
        "attention.out.weight": ("self_attn.o_proj.weight",),
        "mlp_norm.weight": ("post_attention_layernorm.weight",),
        "mlp.0.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        "mlp.2.weight": ("mlp.down_proj.weight",),
    },
)
_LLADA_NAMES = _names(
    tuple(f"model.transformer.{name}" for name in ("wte", "ln_f", "ff_out")),  # type: ignore[arg-type]
    "model.transformer.blocks",
    {
        "attention_norm.weight": ("attn_norm.weight",),
        "attention.qkv.weight": tuple(f"{part}_proj.weight" for part in "qkv"),
        "attention.out.weight": ("attn_out.weight",),
        "mlp_norm.weight": ("ff_norm.weight",),
        "mlp.0.weight": ("ff_proj.weight", "up_proj.weight"),
        "mlp.2.weight": ("ff_out.weight",),
    },
)


@dataclass(frozen=True)
class DecoderLayout:
    """One family: names of its settings and parameters, and facts that its config.json leaves out."""

    architecture: str  # class in transformers, or in the family's own code
    method: str = "autoregressive"
    settings: dict[str, str] = field(default_factory=lambda: dict(_SETTINGS))
    size: str = "vocab_size"
    tied: str = "tie_word_embeddings"
    names: Names = field(default_factory=lambda: dict(NAMES))
    required: dict[str, tuple[Any, ...]] = field(default_factory=lambda: dict(_PLAIN))
    qkv_bias: bool = False
    qk_norm: bool = False
    epsilon: float = 1e-6  # of the norms if config.json has none
    shift: bool = False  # the logits at a position are those of the next token
    mask_id: int | None = None  # if config.json has no mask_token_id; None: the tokenizer's
    block: tuple[str, int] | None = None  # setting of the block size, and its default
    defaults: dict[str, Any] = field(default_factory=dict)  # of the family's own decoding


LAYOUTS = {
    "llama": DecoderLayout("LlamaForCausalLM"),
    "mistral": DecoderLayout("MistralForCausalLM"),
    "qwen2": DecoderLayout("Qwen2ForCausalLM", required=_QWEN2, qkv_bias=True),
    "qwen3": DecoderLayout("Qwen3ForCausalLM", required=_QWEN3, qk_norm=True),
    "llada": DecoderLayout(
        "LLaDAModelLM",
        "mdlm",
        settings=_LLADA_SETTINGS,
        size="embedding_size",
        tied="weight_tying",
        names=_LLADA_NAMES,
        required=_LLADA,
        epsilon=1e-5,
        mask_id=126336,
        defaults={
            "sampler": "blocks:block=32,inner=(confidence:counts=even,drawn=true)",
            "temperature": 0.0,
        },
    ),
    "Dream": DecoderLayout(
        "DreamModel",
        "mdlm",
        required=_QWEN2,
        qkv_bias=True,
        shift=True,
        mask_id=151666,
        defaults={
            "sampler": "entropy:counts=share,sharpened=true",
            "temperature": 0.2,
            "top_p": 0.95,
        },
    ),
    "sdar": DecoderLayout(
        "SDARForCausalLM",
        "block_diffusion",
        required=_QWEN3,
        qk_norm=True,
        mask_id=151669,
        block=("block_size", 4),
        defaults={
            "sampler": "blocks:inner=(confidence:counts=even,threshold=0.85,drawn=true,sharpened=true)"
        },
    ),
    "Fast_dLLM_Qwen": DecoderLayout(
        "Fast_dLLM_QwenForCausalLM",
        "block_diffusion",
        required=_QWEN2,
        qkv_bias=True,
        shift=True,
        mask_id=151665,
        block=("bd_size", 32),
        defaults={
            "sampler": "blocks:first=true,inner=(blocks:block=8,aligned=true,inner=threshold:threshold=1)",
            "temperature": 0.0,
        },
    ),
    "a2d-llama": DecoderLayout("A2DLlamaLMHeadModel", "mdlm"),
    "a2d-qwen2": DecoderLayout("A2DQwen2LMHeadModel", "mdlm", required=_QWEN2, qkv_bias=True),
    "a2d-qwen3": DecoderLayout("A2DQwen3LMHeadModel", "mdlm", required=_QWEN3, qk_norm=True),
}
