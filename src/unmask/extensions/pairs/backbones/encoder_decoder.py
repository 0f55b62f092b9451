"""Encoder and decoder for pairs: the source is encoded once, and the decoder attends to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.dit import DiT
from unmask.backbones.layers.attention import (
    Call,
    CrossAttentionInputs,
    attention_inputs,
)
from unmask.backbones.layers.attention_rules import causal_rule
from unmask.backbones.layers.state import GraphKVState, KVState, Source, SourceState
from unmask.backbones.layers.transformer_block import NORMS, Block, zero_linear
from unmask.errors import UnmaskError
from unmask.extensions.pairs.backbones.cross_attention import CrossBlock
from unmask.options import option
from unmask.vocabulary import Vocabulary

_LARGEST = 2**20  # limit for untrusted files


@BACKBONES.register("encoder_decoder")
class EncoderDecoder(DiT):
    """A bidirectional encoder of the source, and a decoder with cross-attention.

    A row is a source up to its first EOS, then a target. The decoder starts with that EOS. Its blocks
    are those of the DiT. Tokens after `target_positions` have no features of their own.
    """

    pairs = tokens_only = True
    rules = False
    onnx = False

    @dataclass(frozen=True)
    class Config(DiT.Config):
        encoder_depth: int = option(0, ge=0, le=_LARGEST)  # blocks of the encoder; 0 takes depth
        causal: bool = False  # True: the decoder is autoregressive
        # most tokens of a source with BOS and EOS, and of a target with its EOS; 0 takes the row
        source_positions: int = option(0, ge=0, le=_LARGEST)
        target_positions: int = option(0, ge=0, le=_LARGEST)
        length_head: bool = False  # True: the encoder predicts the length of the target

        def __post_init__(self) -> None:
            DiT.Config.__post_init__(self)
            if self.length_head and self.causal:
                raise UnmaskError(
                    "length_head is for a bidirectional decoder, since a causal one ends its text by "
                    "EOS: set length_head false"
                )
            if self.length_head and not self.target_positions:
                raise UnmaskError(
                    "length_head needs the largest length of a target: set target_positions"
                )

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.causal, self.eos_id = config.causal, vocabulary.eos_id
        self.longest_source = config.source_positions or None
        self.longest_target = config.target_positions or None
        self.blocks = nn.ModuleList(
            CrossBlock(
                **config.block(layer),
                condition_width=config.condition_width,
                gate=config.gate,
                by_row=config.time_conditioning,
            )
            for layer in range(config.depth)
        )
        fields = [config.block(layer) for layer in range(config.encoder_depth or config.depth)]
        self.encoder = nn.ModuleList(Block(**each) for each in fields)
        self.encoder_norm = NORMS[config.norm](config.width)
        lengths = config.target_positions if config.length_head else 0
        self.length_head = zero_linear(config.width, lengths) if lengths else None

    @property
    def predicts_length(self) -> bool:
        """True if the encoder predicts the length of the target."""
        return self.length_head is not None

    def encode(
        self, inputs: Int[Tensor, "rows length"], valid: Bool[Tensor, "rows length"] | None = None
    ) -> SourceState:
        """Encodes the sources of rows, for `features`.

        Args:
            inputs: Token ids. The source of a row ends with its first EOS.
            valid: False at padding.

        Returns:
            A state with the encoded sources.
        """
        return SourceState(self._encoded(inputs, valid)[0])

    def compute(self, call: Call) -> Float[Tensor, "*tokens width"]:
        """Features of the inputs: those of the decoder, and those of the encoder at the source.

        A state holds the encoded sources. Without it the call encodes them. With a state, only the
        features of the target are defined. A causal decoder also has its KV cache in the state.
        """
        inputs, valid, state = call.inputs, call.valid, call.state
        if call.rule is not None or inputs.ndim != 2:
            raise UnmaskError(
                "an encoder with a decoder reads tokens, without an attention rule: set backbone dit"
            )
        condition = self._noise(call)
        if isinstance(state, KVState):
            return self._next(inputs, condition, call.positions, state, call.at)
        memory = None
        if isinstance(state, SourceState):
            source, columns = state.source, state.columns
        else:
            (source, memory), columns = self._encoded(inputs, valid), None
        length = inputs.shape[1]
        width = min(length, 1 + (columns or self.longest_target or length))
        place = torch.arange(width, device=inputs.device)
        column = source.start[:, None] + place  # column of each token of the decoder
        inside = column < length
        column = column.clamp(max=length - 1)
        tokens = inputs.gather(1, column)
        seen = inside if valid is None else inside & valid.gather(1, column)
        if self.predicts_length:  # tokens after the target's EOS fill the row
            ends = (tokens == self.eos_id) & (place > 0)
            seen = seen & (ends.cumsum(1) - ends.long() == 0)
        seen = (seen | (place == 0))[:, None, None]
        attention = attention_inputs(
            width, self.config.rotary, inputs.device, None, None, None, None
        )
        if self.causal:
            seen = seen & causal_rule(place[:, None], place)
        cross = CrossAttentionInputs(source, attention.rotation)
        attention = attention._replace(mask=seen, cross=cross)
        h = self.trunk(tokens, condition, attention, self.keys(inputs), at=None)
        return _by_column(memory, h, source.start, length, call.at)

    def _encoded(self, inputs: Tensor, valid: Tensor | None) -> tuple[Source, Tensor]:
        """The encoded sources of rows, and the output of the encoder."""
        rows, length = inputs.shape
        ends = torch.zeros_like(inputs, dtype=torch.bool)
        if self.eos_id is not None:
            ends = inputs == self.eos_id
            ends = ends if valid is None else ends & valid
        start = ends.int().argmax(1)  # 0 without EOS: the first token is the source
        # the input of a causal method has one token before the row
        longest = length if self.longest_source is None else self.longest_source + self.causal
        width = min(length, longest)
        place = torch.arange(width, device=inputs.device)
        seen = place <= start[:, None]
        if valid is not None:
            seen = seen & (valid[:, :width] | (place == start[:, None]))
        attention = attention_inputs(
            width, self.config.rotary, inputs.device, seen, None, None, None
        )
        x, first, keys = self.embedding(inputs[:, :width]), None, self.keys(inputs)
        for layer, block in enumerate(self.encoder, len(self.blocks)):
            x, v = block(x, layer, attention, None, keys, None, first)
            first = v if self.config.value_residual and first is None else first
        memory = self.encoder_norm(x)
        blocks: Any = self.blocks
        kv = torch.stack([each.cross.encode(memory, attention.rotation) for each in blocks], 1)
        if self.length_head is None:
            return Source(kv, seen, start, memory.new_zeros(rows, 0)), memory
        weight = seen[..., None].to(memory)
        pooled = (memory * weight).sum(1) / weight.sum(1).clamp(min=1)
        return Source(kv, seen, start, self.length_head(pooled).float()), memory

    def _next(
        self,
        inputs: Int[Tensor, "rows new"],
        condition: Tensor | None,
        positions: Tensor | None,
        state: KVState,
        at: Tensor | None,
    ) -> Float[Tensor, "*tokens width"]:
        """Features of the next columns of a causal decoder; columns of the source have no meaning."""
        source = state.source
        assert source is not None, "the state has no encoded source"
        rotary = self.config.rotary
        new, device = inputs.shape[1], inputs.device
        attention = attention_inputs(new, rotary, device, None, positions, causal_rule, state)
        if positions is None:
            positions = torch.arange(state.length, state.length + new, device=device)
        assert attention.mask is not None
        key = torch.arange(attention.mask.shape[-1], device=device)
        # a token before the target attends to itself: without any key its features were NaN
        own = key == positions[:, None]
        mask = (attention.mask & (key >= source.start[:, None, None, None])) | own
        rotation = rotary.at(positions - source.start[:, None], len(key))
        attention = attention._replace(mask=mask, cross=CrossAttentionInputs(source, rotation))
        # uncompiled, as in `Causal.compute`
        grows = not isinstance(state, GraphKVState)
        trunk = partial(DiT.trunk, self) if grows else self.trunk
        h = trunk(inputs, condition, attention, self.keys(inputs), at=at)
        state.advance(new)
        return h

    def together(self, calls: Sequence[Call]) -> list[Tensor]:
        """Features of several calls, one after the other."""
        return Backbone.together(self, calls)

    @torch.no_grad()
    def freeze(self, dtype: torch.dtype) -> None:
        super().freeze(dtype)
        if self.frozen is None:
            return
        for block in self.encoder:
            assert isinstance(block, Block)
            block.freeze(None, dtype)


def _by_column(
    memory: Float[Tensor, "rows source width"] | None,
    h: Float[Tensor, "rows target width"],
    start: Int[Tensor, "rows"],
    length: int,
    at: Int[Tensor, "tokens"] | None,
) -> Float[Tensor, "*tokens width"]:
    """Features of the encoder and the decoder in the columns of the rows, or of the tokens `at`."""
    column = torch.arange(length, device=h.device).expand(len(h), length)
    index = (column - start[:, None]).clamp(0, h.shape[1] - 1)
    if memory is not None:
        ahead = memory.shape[1]
        index = torch.where(column < start[:, None], column.clamp(max=ahead - 1), ahead + index)
        h = torch.cat([memory, h.to(memory.dtype)], 1)
    flat = index + torch.arange(len(h), device=h.device)[:, None] * h.shape[1]
    chosen = flat if at is None else flat.flatten()[at]
    return h.flatten(0, 1).index_select(0, chosen.flatten()).unflatten(0, chosen.shape)
