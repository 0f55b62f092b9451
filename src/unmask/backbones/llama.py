"""The transformer of Llama, Qwen and Mistral, and of the diffusion models that are built on them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.causal import Causal
from unmask.backbones.layers.attention import AttentionInputs, Features
from unmask.backbones.layers.dropout import Keys
from unmask.backbones.layers.experts import ROUTERS, Experts, Routing
from unmask.backbones.layers.ops import taken
from unmask.backbones.layers.packed_batch import PackedBatch
from unmask.backbones.layers.rotary import SCALINGS, Rotary
from unmask.backbones.layers.state import GraphKVState, KVState
from unmask.backbones.layers.transformer_block import Block, TransformerConfig
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary

_STD = 0.02  # of initial weights


@BACKBONES.register("llama")
class Llama(Causal):
    """Llama's transformer: RMS norms, SwiGLU, rotary positions, and heads that share keys and values.

    Attention is bidirectional, or causal with `causal`; a rule given at the call overrides both.
    """

    causal = False

    @dataclass(frozen=True)
    class Config(TransformerConfig):
        value_residual: ClassVar[bool] = False
        dropout: float = option(0.0, ge=0, lt=1)
        causal: bool = False  # True: a token attends to earlier tokens only
        kv_heads: int = option(0, ge=0, le=2**10)  # heads of keys and values; 0: as many as heads
        head_width: int = option(0, ge=0, le=2**13)  # 0: width / heads
        inner: int = option(0, ge=0)  # hidden values of the MLP; 0: about 8 / 3 width
        epsilon: float = option(1e-5, gt=0, lt=1)  # of the RMS norms
        qkv_bias: bool = False  # biases of queries, keys and values
        qk_norm: bool = False  # RMS norms of the queries and keys of each head, with gains
        tied_head: bool = False  # the head's matrix is the embedding's
        shift: bool = False  # the network was trained to predict the next token: see `trunk`
        positions: int = option(0, ge=0, le=2**24)  # most tokens of a row; 0: no limit
        theta: float = option(10_000.0, gt=1)  # base of the rotary frequencies
        scaling: str = option("none", among=SCALINGS)  # of rotary positions, for longer texts
        factor: float = option(1.0, ge=1)  # of the scaling
        trained: int = option(0, ge=0, le=2**24)  # positions before the scaling
        # frequencies that turn less often than `slow` in the trained length are scaled, and those
        # that turn more often than `fast` are not (llama3, yarn)
        slow: float = option(1.0, gt=0)
        fast: float = option(32.0, gt=0)
        attention_factor: float = option(1.0, gt=0)  # of cos and sin (yarn)
        rotary_width: int = option(0, ge=0)  # rotated values of a head, from the first; 0: all
        experts: int = option(0, ge=0, le=2**12)  # in place of the MLP; 0: none
        active_experts: int = option(1, ge=1)  # experts of a token
        expert_inner: int = option(0, ge=0)  # hidden values of an expert
        shared_inner: int = option(0, ge=0)  # of one more expert, for all tokens; 0: none
        dense_layers: int = option(0, ge=0)  # first layers, which have an MLP
        router: str = option("softmax", among=ROUTERS)  # scores of the experts
        expert_bias: bool = False  # biases of the experts count in their choice
        expert_groups: int = option(1, ge=1)  # experts are chosen from the best groups
        active_groups: int = option(1, ge=1)
        expert_norm: bool = True  # the weights of a token's experts sum to expert_scale
        expert_scale: float = option(1.0, gt=0)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.inner > 64 * self.width:
                raise UnmaskError(f"inner must be {64 * self.width:,} at most, not {self.inner}")
            if self.scaling not in ("none", "linear") and not self.trained:
                raise UnmaskError(
                    f"scaling {self.scaling} needs the number of positions before it: set trained"
                )
            if self.fast <= self.slow:
                raise UnmaskError(f"fast must be above slow ({self.slow}), not {self.fast}")
            if self.experts:
                self._check_experts()

        def _check_experts(self) -> None:
            if not self.expert_inner:
                raise UnmaskError("experts need hidden values: set expert_inner")
            group = self.experts // self.expert_groups
            grouped = self.expert_groups > 1
            if self.experts % self.expert_groups or (grouped and group < 2):
                raise UnmaskError(
                    f"{self.experts} experts have no {self.expert_groups} groups of equal size, 2 or more"
                )
            if self.active_groups > self.expert_groups:
                raise UnmaskError(f"active_groups must be {self.expert_groups} at most")
            if self.active_experts > group * self.active_groups:
                raise UnmaskError(
                    f"active_experts must be {group * self.active_groups} at most, not {self.active_experts}"
                )

        def check_heads(self) -> None:
            if not self.head_width:
                super().check_heads()
            if self.head_width % 2:
                raise UnmaskError(f"head_width must be even, not {self.head_width}")
            if self.kv_heads and self.heads % self.kv_heads:
                raise UnmaskError(
                    f"{self.heads} heads cannot share {self.kv_heads} kv_heads evenly: "
                    "choose a divisor of heads"
                )

        @cached_property
        def rotary(self) -> Rotary:
            """The rotary positions of a head, with their scaling."""
            width = self.rotary_width or self.head_width or self.width // self.heads
            numbers = (self.factor, self.trained, self.slow, self.fast, self.attention_factor)
            return Rotary(width, self.theta, self.scaling, *numbers)

        @property
        def routing(self) -> Routing:
            """The choice of experts."""
            return Routing(
                self.experts,
                self.active_experts,
                self.router,
                self.expert_groups,
                self.active_groups,
                self.expert_bias,
                self.expert_norm,
                self.expert_scale,
            )

        def block(self, layer: int) -> dict[str, Any]:
            """The arguments of the block of a layer."""
            names = ("width", "heads", "dropout", "qk_norm", "inner", "kv_heads", "head_width")
            form = {"norm": "rms", "mlp": "swiglu", "eps": self.epsilon, "mlp_bias": False}
            form |= {"bias": self.qkv_bias, "gains": self.qk_norm}
            if self.experts and layer >= self.dense_layers:
                inner, shared = self.expert_inner, self.shared_inner
                form["experts"] = Experts(self.width, inner, shared, self.routing)
            return {name: getattr(self, name) for name in names} | form

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        Backbone.__init__(self, config, vocabulary)
        self.static = not config.experts
        self.causal, self.longest = config.causal, config.positions or None
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.blocks = nn.ModuleList(Block(**config.block(layer)) for layer in range(config.depth))
        self.norm = nn.RMSNorm(config.width, config.epsilon)
        self.head = nn.Linear(config.width, vocabulary.size, bias=False)
        self.apply(_init_weights)
        nn.init.zeros_(self.head.weight)
        if config.tied_head:
            self.head.weight = self.embedding.weight

    def trunk(
        self,
        inputs: Inputs,
        attention: AttentionInputs | PackedBatch,
        keys: Keys | None,
        at: Int[Tensor, "tokens"] | None,
    ) -> Float[Tensor, "*tokens width"]:
        """Embedding, blocks and final norm.

        With `shift`, the features of a token are those of the token before it, which was trained to
        predict it; the first token of a text has its own. A cache holds the features too.

        Args:
            inputs: Token ids.
            attention: Rotation, mask and cache of attention.
            keys: Dropout keys of the rows; None for no dropout.
            at: Indices of the tokens to compute, into the flattened batch; None for all.

        Returns:
            Features [rows, length, width], or [tokens, width] with `at`.
        """
        if not self.config.shift:
            return super().trunk(inputs, attention, keys, at)
        h = super().trunk(inputs, attention, keys, None)
        if isinstance(attention, AttentionInputs):
            h = self._before(h, attention.cache)
        else:
            parts = zip(attention.split(h), attention.parts, strict=True)
            h = attention.join([self._before(part, inputs.cache) for part, inputs in parts])
        return h if at is None else taken(h, at)

    @torch.no_grad()
    def freeze(self, dtype: torch.dtype) -> None:
        """Prepares for inference. Weights of this precision are read as they are, without copies."""
        kept = self.embedding.weight.dtype == dtype
        for block in self.blocks:
            assert isinstance(block, Block)
            block.kept = kept
        if not kept:
            super().freeze(dtype)
            return
        self.thaw()
        Backbone.freeze(self, dtype)

    def _before(self, h: Features, cache: KVState | None) -> Features:
        """The features of the token before each token."""
        start = 0 if cache is None else cache.length
        if cache is not None:
            if isinstance(cache, GraphKVState):
                raise UnmaskError(
                    "a network with backbone.shift predicts no single next token: choose a method of diffusion"
                )
            by_head = h[:, None]
            past = cache.append(len(self.blocks), by_head, by_head)[0][:, 0]
            if start:
                return past[:, start - 1 : start - 1 + h.shape[1]]
        return torch.cat([h[:, :1], h[:, :-1]], 1)


def _init_weights(module: nn.Module) -> None:
    """Initial weights of Llama: normal, biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, Experts):
        module.initialize(_STD)
