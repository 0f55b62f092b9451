"""GPT-2's network."""

from dataclasses import dataclass

from unmask.backbones.base import BACKBONES
from unmask.backbones.classic import Classic, ClassicConfig


@BACKBONES.register("gpt2")
class GPT2(Classic):
    """GPT-2's network: causal, learned positions, a KV cache."""

    causal = True
    norm_first, activation = True, "tanh"

    @dataclass(frozen=True)
    class Config(ClassicConfig):
        pass
