"""BERT's encoder (arXiv 1810.04805) with its masked-language-model head, and GPT-2's decoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.layers.attention import (
    AttentionInputs,
    Call,
    Features,
)
from unmask.backbones.layers.dropout import Keys, dropout
from unmask.backbones.layers.inference_weights import Compilable
from unmask.backbones.layers.ops import taken
from unmask.backbones.layers.rotary import Rotary
from unmask.backbones.layers.transformer_block import TransformerConfig, zero_linear
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary

_UNUSED = Rotary(2)  # positions are learned


@dataclass(frozen=True)
class PretrainedConfig(TransformerConfig):
    """Shape of a network with learned positions."""

    positions: int = option(1024, ge=1, le=2**20)  # most tokens of a row
    inner: int = option(0, ge=0)  # width of the MLP; 0 is four times the width
    epsilon: float = option(1e-5, gt=0, lt=1)  # of the layer norms

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner > 64 * self.width:
            raise UnmaskError(f"inner must be {64 * self.width:,} at most, not {self.inner}")


class Layer(Compilable):
    """Attention and MLP, with layer norms before them (GPT-2) or after the residual sums (BERT)."""

    recomputed: bool = False  # activation checkpointing: the backward pass reruns the layer
    matrices: ClassVar = {"qkv": 3, "out": 1, "up": 1, "down": 1}  # as in `Block.matrices`

    def __init__(self, config: PretrainedConfig, norm_first: bool, activation: str) -> None:
        super().__init__()
        width, inner = config.width, config.inner or 4 * config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.norm_first, self.activation = norm_first, activation
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, config.epsilon)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.mlp_norm = nn.LayerNorm(width, config.epsilon)

    def forward(
        self, x: Features, layer: int, attention: AttentionInputs, keys: Keys | None
    ) -> Features:
        if not self.recomputed or not torch.is_grad_enabled():
            return self._features(x, layer, attention, keys)
        # dropout is a function of its keys, so no generator state is saved
        args = (x, layer, attention, keys)
        return checkpoint(self._features, *args, use_reentrant=False, preserve_rng_state=False)

    def _features(
        self, x: Features, layer: int, attention: AttentionInputs, keys: Keys | None
    ) -> Features:
        if self.norm_first:
            x = x + self._attention(self.attention_norm(x), layer, attention, keys)
            return x + self._mlp(self.mlp_norm(x), layer, keys)
        x = self.attention_norm(x + self._attention(x, layer, attention, keys))
        return self.mlp_norm(x + self._mlp(x, layer, keys))

    def _attention(
        self, h: Features, layer: int, attention: AttentionInputs, keys: Keys | None
    ) -> Features:
        qkv = self.qkv(h).unflatten(-1, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        if attention.cache is not None:
            k, v = attention.cache.append(layer, k, v)
        y = attention.attend(q, k, v)
        return dropout(self.out(y.transpose(1, 2).flatten(2)), self.dropout, keys, 2 * layer)

    def _mlp(self, h: Features, layer: int, keys: Keys | None) -> Features:
        h = F.gelu(self.up(h), approximate=self.activation)
        return dropout(self.down(h), self.dropout, keys, 2 * layer + 1)


class PretrainedTransformer(Backbone):
    """Transformer with learned positions, for BERT's and GPT-2's weights.

    Unlike the published networks, it applies no dropout to attention probabilities.
    """

    norm_first: ClassVar[bool]
    activation: ClassVar[str]  # `approximate` of torch's GELU, as in the published network
    layer: ClassVar[type[Layer]] = Layer
    embedding: nn.Embedding

    def __init__(self, config: PretrainedConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.longest = config.positions
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.positions = nn.Embedding(config.positions, config.width)
        self.blocks = nn.ModuleList(
            self.layer(config, self.norm_first, self.activation) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width, config.epsilon)
        self.apply(_init_weights)
        self.head = zero_linear(config.width, vocabulary.size)

    def compute(self, call: Call) -> Float[Tensor, "*tokens width"]:
        """Features of the inputs. This network ignores `condition`, the noise level."""
        x = self.encoded(call)
        return self.last(x if call.at is None else taken(x, call.at))

    def encoded(self, call: Call, segments: Tensor | None = None) -> Features:
        """Output of the last block for all tokens."""
        inputs, state, position_ids = call.inputs, call.state, call.positions
        length, start = inputs.shape[1], state.length if state else 0
        if position_ids is None:
            if start + length > self.config.positions:
                raise UnmaskError(
                    f"a text has {start + length} tokens, more than the network's "
                    f"{self.config.positions} positions: shorten it"
                )
            position_ids = torch.arange(start, start + length, device=inputs.device)
        attention, keys = self.attention(call), self.keys(inputs)
        x = self.embedded(self.table(inputs, position_ids, segments), keys)
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, attention, keys)
        if state is not None:
            state.advance(length)
        return x

    def attention(self, call: Call) -> AttentionInputs:
        """Arguments of attention, for all layers."""
        return call.attention(_UNUSED, causal=self.causal)

    def table(self, inputs: Inputs, position_ids: Tensor, segments: Tensor | None) -> Features:
        """Sum of the embeddings of tokens and positions."""
        return self.embedding(inputs) + self.positions(position_ids)

    def embedded(self, x: Features, keys: Keys | None) -> Features:
        """Input of the first block: embeddings after dropout."""
        return dropout(x, self.config.dropout, keys, 2 * self.config.depth)

    def last(self, x: Float[Tensor, "*tokens width"]) -> Float[Tensor, "*tokens width"]:
        """Input of the head, from the output of the last block."""
        return self.norm(x)


@BACKBONES.register("bert")
class Bert(PretrainedTransformer):
    """BERT's encoder: bidirectional, with learned positions. It starts MDLM from published weights."""

    norm_first, activation = False, "none"

    @dataclass(frozen=True)
    class Config(PretrainedConfig):
        positions: int = option(512, ge=1, le=2**20)
        epsilon: float = option(1e-12, gt=0, lt=1)
        # token types of segments; 0 if the position embeddings contain type 0
        types: int = option(0, ge=0, le=1024)
        tied_head: bool = False  # the head's matrix is the embedding's

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.types = nn.Embedding(config.types, config.width) if config.types else None
        if self.types is not None:
            nn.init.normal_(self.types.weight, std=0.02)
        if config.tied_head:
            self.head.weight = self.embedding.weight
        self.dense: nn.Linear | None = nn.Linear(config.width, config.width)
        self.dense_norm: nn.LayerNorm | None = nn.LayerNorm(config.width, config.epsilon)

    def table(self, inputs: Inputs, position_ids: Tensor, segments: Tensor | None) -> Features:
        x = super().table(inputs, position_ids, segments)
        return x if self.types is None else x + self._type_embedding(segments)

    def _type_embedding(self, segments: Tensor | None) -> Tensor:
        """Embedding of the token type of each segment; of type 0 without segments."""
        assert self.types is not None
        if segments is None:
            return self.types.weight[0]
        return self.types(segments.clamp(max=self.config.types - 1))

    def embedded(self, x: Features, keys: Keys | None) -> Features:
        return super().embedded(self.norm(x), keys)

    def hidden(
        self,
        inputs: Inputs,
        condition: Tensor | None = None,
        *,
        valid: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Features:
        """Output of the encoder, before the layer of the masked-LM head."""
        return self.encoded(Call(inputs, valid=valid), segments)

    def adapted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of an initial network; without `types`, its token type 0 joins the positions."""
        found = dict(tensors)
        if self.types is None and {"types.weight", "positions.weight"} <= found.keys():
            found["positions.weight"] = found["positions.weight"] + found.pop("types.weight")[:1]
        return found

    def replace_head(self, outputs: int) -> None:
        super().replace_head(outputs)
        self.dense = self.dense_norm = None

    def last(self, x: Float[Tensor, "*tokens width"]) -> Float[Tensor, "*tokens width"]:
        if self.dense is None or self.dense_norm is None:
            return x
        return self.dense_norm(F.gelu(self.dense(x)))


def _init_weights(module: nn.Module) -> None:
    """Initial weights of BERT and GPT-2: normal with standard deviation 0.02, biases 0."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


@BACKBONES.register("gpt2")
class GPT2(PretrainedTransformer):
    """GPT-2's decoder: causal, with learned positions and a KV cache."""

    causal = rules = True
    norm_first, activation = True, "tanh"

    @dataclass(frozen=True)
    class Config(PretrainedConfig):
        pass
