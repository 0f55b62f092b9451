"""Networks: each is `features` plus a linear head."""

from unmask.backbones.base import BACKBONES, Backbone
from unmask.backbones.cache import KVCache
from unmask.backbones.causal import Causal
from unmask.backbones.compiling import compile_backbone, compile_blocks, recompute_blocks
from unmask.backbones.dit import DiT

__all__ = [
    "BACKBONES",
    "Backbone",
    "Causal",
    "DiT",
    "KVCache",
    "compile_backbone",
    "compile_blocks",
    "recompute_blocks",
]
