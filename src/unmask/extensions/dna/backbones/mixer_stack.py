"""Base of the networks without attention: embedding, blocks, norm and head."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from unmask.backbones.backbone import Backbone
from unmask.backbones.dit import NoiseLevel
from unmask.backbones.layers.attention import Call, Features
from unmask.backbones.layers.attention_rules import AttentionRule
from unmask.backbones.layers.inference_weights import Compilable
from unmask.backbones.layers.ops import modulate, taken
from unmask.backbones.layers.state import RecurrentState, State
from unmask.backbones.layers.transformer_block import head, zero_linear
from unmask.errors import UnmaskError
from unmask.options import Checked, option
from unmask.shapes import Inputs
from unmask.vocabulary import Vocabulary

Memory = MutableMapping[Any, Tensor]  # the state of each layer
Mask = Bool[Tensor, "rows length 1"]  # False at padding


@dataclass(frozen=True)
class MixerConfig(Checked):
    """Shape of a network without attention."""

    width: int = option(128, ge=1, le=2**17)  # a limit for untrusted files, as those below
    depth: int = option(4, ge=1, le=2**10)
    tied_head: bool = True  # the head's matrix is the embedding's
    time_conditioning: bool = False
    condition_width: int = option(128, ge=1, le=2**17)


class MixerBlock(Compilable, ABC):
    """A block with residual connections; with time conditioning, adaLN-Zero modulates its parts."""

    recomputed: bool = False  # activation checkpointing: the backward pass reruns the block
    parts: ClassVar[int]  # residual connections of the block

    def __init__(self, config: MixerConfig) -> None:
        super().__init__()
        self.modulation: nn.Linear | None = None
        if config.time_conditioning:
            self.modulation = zero_linear(config.condition_width, 3 * self.parts * config.width)

    def forward(
        self,
        x: Features,
        layer: int,
        valid: Mask | None,
        c: Float[Tensor, "#rows condition"] | None,
        memory: Memory | None,
    ) -> Features:
        """The features after the block.

        Args:
            x: Features before the block.
            layer: Number of the block, the key of its state.
            valid: False at padding.
            c: The condition of each row, for a block with adaLN.
            memory: The states after earlier tokens, which the call replaces; None for no state.

        Returns:
            The features of all tokens.
        """
        if not self.recomputed or not torch.is_grad_enabled():
            return self.mixed(x, layer, valid, c, memory)
        args = (x, layer, valid, c, memory)
        return checkpoint(self.mixed, *args, use_reentrant=False, preserve_rng_state=False)

    @abstractmethod
    def mixed(
        self, x: Features, layer: int, valid: Mask | None, c: Tensor | None, memory: Memory | None
    ) -> Features:
        """The block itself; `forward` recomputes it in the backward pass if wanted."""

    def condition(self, c: Tensor | None) -> tuple[Any, ...]:
        """Shift, scale and gate of each part; those that change nothing without adaLN."""
        if self.modulation is None or c is None:
            return (0, 0, 1) * self.parts
        return self.modulation(c)[:, None].chunk(3 * self.parts, -1)


class MixerStack(Backbone):
    """Embedding, blocks, norm and head; a subclass makes the blocks and the norm."""

    compiled = "trunk"
    onnx = False  # a file for any length has neither loops over positions nor FFTs

    def __init__(self, config: MixerConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.time_conditioning = config.time_conditioning
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(self.block() for _ in range(config.depth))
        self.norm = self.last_norm()
        if config.time_conditioning:
            self.noise_level = NoiseLevel(config.condition_width)
            self.modulation = zero_linear(config.condition_width, 2 * config.width)
        self.head = head(config, self.embedding)

    @abstractmethod
    def block(self) -> MixerBlock:
        """A new block."""

    @abstractmethod
    def last_norm(self) -> nn.Module:
        """The norm before the head."""

    def adapted(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of an initial network; one without time conditioning gets adaLN that changes nothing."""
        found = dict(tensors)
        if self.time_conditioning and "modulation.weight" not in found:
            for name, own in self.state_dict().items():
                if "modulation." in name or name.startswith("noise_level."):
                    found[name] = torch.zeros_like(own) if "modulation." in name else own
            for layer in range(len(self.blocks)):
                bias = found[f"blocks.{layer}.modulation.bias"]
                bias.view(-1, 3, self.config.width)[:, 2] = 1  # shift, scale and gate of each part
        return found

    def compute(self, call: Call) -> Float[Tensor, "*tokens width"]:
        """Features of the inputs. Positions have no effect: the order of the inputs counts."""
        self.refuse(call.rule)
        h = self.run(call.inputs, call.condition, call.valid, call.state)
        return h if call.at is None else taken(h, call.at)

    def refuse(self, rule: AttentionRule | None) -> None:
        """Raises an error if a bidirectional network gets an attention rule, which it cannot obey."""
        if rule is not None and not self.causal:
            raise UnmaskError(
                "this network has no attention, so it cannot obey an attention rule: set backbone dit"
            )

    def run(
        self, inputs: Inputs, condition: Tensor | None, valid: Tensor | None, state: State | None
    ) -> Features:
        """Features of all tokens. With a state, `inputs` are the tokens after those that it has read."""
        if not self.time_conditioning:
            condition = None
        elif condition is None:
            condition = torch.zeros(1, device=inputs.device)
        mask = None if valid is None else valid[..., None]
        if state is None:
            return self.trunk(inputs, condition, mask, None)
        assert isinstance(state, RecurrentState), "a recurrent network needs a RecurrentState"
        # uncompiled: the first call has no states and another length
        h = partial(MixerStack.trunk, self)(inputs, condition, mask, state.layers)
        state.advance(inputs.shape[1])
        return h

    def trunk(
        self,
        inputs: Inputs,
        condition: Float[Tensor, "#rows"] | None,
        valid: Mask | None,
        memory: Memory | None,
    ) -> Features:
        """The network without its head.

        Args:
            inputs: Token ids, or vectors if the method diffuses vectors.
            condition: The noise level of each row, or one for all; None without time conditioning.
            valid: False at padding.
            memory: The states of the layers after earlier tokens, which the call replaces.

        Returns:
            Features of all tokens.
        """
        c = None if condition is None else F.silu(self.noise_level(condition))
        x = self.embedding(inputs)
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, valid, c, memory)
        x = self.norm(x)
        if c is None:
            return x
        shift, scale = self.modulation(c)[:, None].chunk(2, -1)
        return modulate(x, shift, scale)
