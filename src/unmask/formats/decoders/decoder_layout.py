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
# parameters of layers with experts; {expert} is the number of an expert
EXPERT_NAMES: Names = {
    "router.weight": ("gate.weight",),
    "bias": ("gate.expert_bias",),
    "up": ("experts.{expert}.gate_proj.weight", "experts.{expert}.up_proj.weight"),
    "down": ("experts.{expert}.down_proj.weight",),
    "shared.0.weight": ("shared_experts.gate_proj.weight", "shared_experts.up_proj.weight"),
    "shared.2.weight": ("shared_experts.down_proj.weight",),
}
_LLADA2_NAMES = _names(
    ("model.word_embeddings", "model.norm", "lm_head"),
    "model.layers",
    {
        "attention_norm.weight": ("input_layernorm.weight",),
        "attention.qkv.weight": ("attention.query_key_value.weight",),
        "attention.query_gain": ("attention.query_layernorm.weight",),
        "attention.key_gain": ("attention.key_layernorm.weight",),
        "attention.out.weight": ("attention.dense.weight",),
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
class ExpertLayout:
    """The experts of a family: settings of its config.json, and facts that it leaves out."""

    router: str
    # field of the backbone -> setting of config.json
    settings: dict[str, str]
    normalized: str | None = None  # setting that says so; None: the weights are normalised
    bias: bool = False


_MOE = {
    "experts": "num_experts",
    "active_experts": "num_experts_per_tok",
    "expert_inner": "moe_intermediate_size",
}
_LLADA2: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "use_bias": (False,),
    "use_qkv_bias": (False,),
    "use_qk_norm": (True,),
    "use_sliding_window": (False,),
    "norm_head": (False,),
}


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
    experts: ExpertLayout | None = None


_SDAR_DECODING = {
    "sampler": "blocks:inner=(confidence:counts=even,threshold=0.85,drawn=true,sharpened=true)"
}
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
        defaults=_SDAR_DECODING,
    ),
    "sdar_moe": DecoderLayout(
        "SDARMoeForCausalLM",
        "block_diffusion",
        required=_QWEN3 | {"decoder_sparse_step": (1,), "mlp_only_layers": ([],)},
        qk_norm=True,
        mask_id=151669,
        block=("block_size", 4),
        defaults=_SDAR_DECODING,
        experts=ExpertLayout("softmax", _MOE, "norm_topk_prob"),
    ),
    "llada2_moe": DecoderLayout(
        "LLaDA2MoeModelLM",
        "block_diffusion",
        names=_LLADA2_NAMES,
        required=_LLADA2,
        qk_norm=True,
        mask_id=156895,
        block=("block_size", 32),
        defaults={
            "sampler": "blocks:inner=(confidence:counts=even,threshold=0.95)",
            "temperature": 0.0,
        },
        experts=ExpertLayout(
            "sigmoid",
            _MOE
            | {
                "expert_groups": "n_group",
                "active_groups": "topk_group",
                "dense_layers": "first_k_dense_replace",
            },
            bias=True,
        ),
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
