"""Backbones: networks that map tokens to features, each with a linear head."""

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.causal import Causal
from unmask.backbones.compile import compile_backbone, compile_blocks, recompute_blocks
from unmask.backbones.dit import DiT
from unmask.backbones.layers.state import KVState
from unmask.backbones.llama import Llama
from unmask.backbones.pretrained import GPT2, Bert

__all__ = [
    "BACKBONES",
    "GPT2",
    "Backbone",
    "Bert",
    "Causal",
    "DiT",
    "KVState",
    "Llama",
    "compile_backbone",
    "compile_blocks",
    "recompute_blocks",
]
