"""Names and settings of encoders in transformers, by family."""

from dataclasses import dataclass, field

_BERT_LAYER = {
    "attention.output.dense": "out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "mlp_norm",
}
_BERT_HEAD = {
    "cls.predictions.transform.dense": "dense",
    "cls.predictions.transform.LayerNorm": "dense_norm",
    "cls.predictions.decoder": "head",
}
_ROBERTA_HEAD = {
    "lm_head.dense": "dense",
    "lm_head.layer_norm": "dense_norm",
    "lm_head.decoder": "head",
}


@dataclass(frozen=True)
class EncoderLayout:
    """Names of one family: transformers' name -> name here."""

    prefix: str  # of the names of the encoder
    backbone: str = "bert"
    qkv: tuple[str, ...] = tuple(f"attention.self.{part}" for part in ("query", "key", "value"))
    layer: dict[str, str] = field(default_factory=lambda: dict(_BERT_LAYER))
    head: dict[str, str] = field(default_factory=lambda: dict(_BERT_HEAD))
    head_bias: str = "cls.predictions.bias"
    others: dict[str, str] = field(default_factory=dict)  # encoder-wide parameters
    old_names: dict[str, str] = field(default_factory=dict)  # beginning of an old name -> new one
    dropped: tuple[str, ...] = ()  # beginnings of names of other heads
    first_position: int | None = 0  # row of position 0; None: pad_token_id + 1
    positions: bool = True  # True if tokens have embeddings of absolute positions


_OTHER_HEADS = ("cls.seq_relationship.", "classifier.", "qa_outputs.", "pooler.")

LAYOUTS = {
    "bert": EncoderLayout("bert", dropped=(*_OTHER_HEADS, "bert.pooler.")),
    "roberta": EncoderLayout(
        "roberta",
        head=_ROBERTA_HEAD,
        head_bias="lm_head.bias",
        dropped=(*_OTHER_HEADS, "roberta.pooler."),
        first_position=None,
    ),
    "mpnet": EncoderLayout(
        "mpnet",
        backbone="mpnet",
        qkv=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
        layer={
            **{old: new for old, new in _BERT_LAYER.items() if not old.startswith("attention.")},
            "attention.attn.o": "out",
            "attention.LayerNorm": "attention_norm",
        },
        head=_ROBERTA_HEAD,
        head_bias="lm_head.bias",
        others={"encoder.relative_attention_bias.weight": "distances.weight"},
        dropped=(*_OTHER_HEADS, "mpnet.pooler."),
        first_position=2,
    ),
    "deberta-v2": EncoderLayout(
        "deberta",
        backbone="deberta",
        qkv=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj"),
        others={
            "encoder.rel_embeddings.weight": "relative.weight",
            "encoder.LayerNorm.weight": "relative_norm.weight",
            "encoder.LayerNorm.bias": "relative_norm.bias",
        },
        old_names={
            "lm_predictions.lm_head.dense.": "cls.predictions.transform.dense.",
            "lm_predictions.lm_head.LayerNorm.": "cls.predictions.transform.LayerNorm.",
            "lm_predictions.lm_head.bias": "cls.predictions.bias",
        },
        # the discriminator of DeBERTa-v3
        dropped=(*_OTHER_HEADS, "mask_predictions."),
        positions=False,
    ),
}
