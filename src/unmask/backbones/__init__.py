"""Networks: each is `features` plus a linear head."""

from unmask.backbones.base import BACKBONES, Backbone
from unmask.backbones.bert import Bert
from unmask.backbones.cache import KVCache
from unmask.backbones.causal import Causal
from unmask.backbones.compiling import compile_backbone, compile_blocks, recompute_blocks
from unmask.backbones.dit import DiT
from unmask.backbones.gpt2 import GPT2

__all__ = [
    "BACKBONES",
    "GPT2",
    "Backbone",
    "Bert",
    "Causal",
    "DiT",
    "KVCache",
    "compile_backbone",
    "compile_blocks",
    "recompute_blocks",
]
