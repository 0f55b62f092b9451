"""Names and settings of decoders by family, from their own to those of the backbone `llama`."""

from dataclasses import dataclass, field
from typing import Any

# field of the backbone -> setting of config.json
_SETTINGS = {
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "inner": "intermediate_size",
    "positions": "max_position_embeddings",
}
# parameter here -> those of transformers, stacked in this order; {} is the number of a layer
_NAMES = {
    "embedding.weight": ("model.embed_tokens.weight",),
    "norm.weight": ("model.norm.weight",),
    "head.weight": ("lm_head.weight",),
    **{
        f"blocks.{{}}.{here}": tuple(f"model.layers.{{}}.{name}" for name in there)
        for here, there in {
            "attention_norm.weight": ("input_layernorm.weight",),
            "attention.qkv.weight": tuple(f"self_attn.{part}_proj.weight" for part in "qkv"),
            "attention.qkv.bias": tuple(f"self_attn.{part}_proj.bias" for part in "qkv"),
            "attention.query_gain": ("self_attn.q_norm.weight",),
            "attention.key_gain": ("self_attn.k_norm.weight",),
            "attention.out.weight": ("self_attn.o_proj.weight",),
            "mlp_norm.weight": ("post_attention_layernorm.weight",),
            "mlp.0.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
            "mlp.2.weight": ("mlp.down_proj.weight",),
        }.items()
    },
}


@dataclass(frozen=True)
class DecoderLayout:
    """One family: names of its settings and parameters, and facts that its config.json leaves out."""

    architecture: str  # class in transformers, or in the family's own code
    settings: dict[str, str] = field(default_factory=lambda: dict(_SETTINGS))
    names: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(_NAMES))
    qkv_bias: bool = False
    qk_norm: bool = False
    # values that other settings must have if they are there; other values mean another network
    required: dict[str, tuple[Any, ...]] = field(
        default_factory=lambda: {"attention_bias": (False,), "mlp_bias": (False,)}
    )


LAYOUTS = {
    "llama": DecoderLayout("LlamaForCausalLM"),
    "mistral": DecoderLayout("MistralForCausalLM"),
    "qwen2": DecoderLayout("Qwen2ForCausalLM", qkv_bias=True),
    "qwen3": DecoderLayout("Qwen3ForCausalLM", qk_norm=True),
}
