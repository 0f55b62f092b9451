"""BERT's encoder (arXiv 1810.04805), with the head of its masked language model."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.base import BACKBONES, Features
from unmask.backbones.classic import Classic, ClassicConfig
from unmask.backbones.dropout import Keys


@BACKBONES.register("bert")
class Bert(Classic):
    """BERT's encoder: bidirectional, learned positions; a start for MDLM from published weights."""

    norm_first, activation = False, "none"

    @dataclass(frozen=True)
    class Config(ClassicConfig):
        positions: int = 512
        epsilon: float = 1e-12

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__(config, vocabulary)
        self.dense = nn.Linear(config.width, config.width)
        self.dense_norm = nn.LayerNorm(config.width, config.epsilon)

    def embedded(self, x: Features, keys: Keys | None) -> Features:
        return super().embedded(self.norm(x), keys)

    def last(self, x: Float[Tensor, "*tokens width"]) -> Float[Tensor, "*tokens width"]:
        return self.dense_norm(F.gelu(self.dense(x)))
