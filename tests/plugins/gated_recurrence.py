"""A gated recurrence (minGRU): a network without attention, causal or bidirectional."""

from dataclasses import dataclass

import torch
from torch import nn

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.layers.state import RecurrentState


@BACKBONES.register("gated_recurrence")
class GatedRecurrence(Backbone):
    """h_t = (1 - z_t) h_(t-1) + z_t c_t in each layer, in one or both directions."""

    @dataclass(frozen=True)
    class Config:
        width: int = 64
        depth: int = 2
        causal: bool = False

    def __init__(self, config, vocabulary):
        super().__init__(config, vocabulary)
        self.causal = config.causal
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.blocks = nn.ModuleList(
            nn.Linear(config.width, 2 * config.width) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, vocabulary.size)

    def new_state(self, rows, capacity):
        return RecurrentState()  # one vector for each layer and row, at any length of the text

    def compute(self, call):
        x, valid, state = self.embedding(call.inputs), call.valid, call.state
        memory = {} if state is None else state.layers
        for layer, block in enumerate(self.blocks):
            gate, candidate = block(x).chunk(2, -1)
            gate = gate.sigmoid() if valid is None else gate.sigmoid() * valid[..., None]
            y = scan(gate, candidate, memory, layer)
            if not self.causal:
                y = y + scan(gate.flip(1), candidate.flip(1), {}, layer).flip(1)
            x = x + y
        if state is not None:
            state.advance(x.shape[1])
        x = self.norm(x)
        return x if call.at is None else x.flatten(0, 1)[call.at]


def scan(gate, candidate, memory, layer):
    """The recurrence over the positions of a row, from the state in `memory`."""
    h = memory.get(layer, torch.zeros_like(candidate[:, 0]))
    found = []
    for z, c in zip(gate.unbind(1), candidate.unbind(1), strict=True):
        h = (1 - z) * h + z * c
        found.append(h)
    memory[layer] = h
    return torch.stack(found, 1)
