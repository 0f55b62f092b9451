"""The transformer of Llama, Qwen and Mistral, and of the diffusion models that are built on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.causal import Causal
from unmask.backbones.layers.attention import Call, Features
from unmask.backbones.layers.ops import taken
from unmask.backbones.layers.rotary import SCALINGS, Rotary
from unmask.backbones.layers.transformer_block import Block, TransformerConfig
from unmask.errors import UnmaskError
from unmask.options import option
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
        shift: bool = False  # the network was trained to predict the next token: see `compute`
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
            width = self.head_width or self.width // self.heads
            numbers = (self.factor, self.trained, self.slow, self.fast, self.attention_factor)
            return Rotary(width, self.theta, self.scaling, *numbers)

        def block(self) -> dict[str, Any]:
            """The arguments of a block."""
            names = ("width", "heads", "dropout", "qk_norm", "inner", "kv_heads", "head_width")
            form = {"norm": "rms", "mlp": "swiglu", "eps": self.epsilon, "mlp_bias": False}
            form |= {"bias": self.qkv_bias, "gains": self.qk_norm}
            return {name: getattr(self, name) for name in names} | form

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        Backbone.__init__(self, config, vocabulary)
        self.causal, self.longest = config.causal, config.positions or None
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.blocks = nn.ModuleList(Block(**config.block()) for _ in range(config.depth))
        self.norm = nn.RMSNorm(config.width, config.epsilon)
        self.head = nn.Linear(config.width, vocabulary.size, bias=False)
        self.apply(_init_weights)
        nn.init.zeros_(self.head.weight)
        if config.tied_head:
            self.head.weight = self.embedding.weight

    def compute(self, call: Call) -> Float[Tensor, "*tokens width"]:
        """Features of the inputs.

        With `shift`, the features of a token are those of the token before it, which was trained to
        predict it; the first token has its own.
        """
        if not self.config.shift:
            return super().compute(call)
        if call.state is not None:
            raise UnmaskError(
                "a network with backbone.shift has no cache: set backbone.shift false, or use a sampler "
                "that computes all tokens"
            )
        return self._shifted(super().compute(call._replace(at=None)), call.at)

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        if not self.config.shift:
            return super().together(calls)
        found = super().together([call._replace(at=None) for call in calls])
        return [self._shifted(h, call.at) for h, call in zip(found, calls, strict=True)]

    def _shifted(
        self, h: Features, at: Int[Tensor, "tokens"] | None
    ) -> Float[Tensor, "*tokens width"]:
        """Features moved by one token to the right."""
        h = torch.cat([h[:, :1], h[:, :-1]], 1)
        return h if at is None else taken(h, at)


def _init_weights(module: nn.Module) -> None:
    """Initial weights of Llama: normal, biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
