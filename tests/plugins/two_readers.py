"""A network for pairs: an encoder reads the source, and a decoder reads the target and the encoded source."""

from dataclasses import dataclass

import torch
from torch import nn

from unmask.backbones.backbone import BACKBONES, Backbone


@BACKBONES.register("two_readers")
class TwoReaders(Backbone):
    """A row is a source up to its EOS, then a target."""

    @dataclass(frozen=True)
    class Config:
        width: int = 64
        depth: int = 2
        heads: int = 4
        positions: int = 256

    def __init__(self, config, vocabulary):
        super().__init__(config, vocabulary)
        self.longest, self.eos_id = config.positions, vocabulary.eos_id
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.places = nn.Embedding(config.positions, config.width)
        shape = (config.width, config.heads, 4 * config.width, 0.0)
        style = {"batch_first": True, "norm_first": True}
        reads, writes = nn.TransformerEncoderLayer, nn.TransformerDecoderLayer
        self.encoder = nn.ModuleList(reads(*shape, **style) for _ in range(config.depth))
        self.decoder = nn.ModuleList(writes(*shape, **style) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, vocabulary.size)

    def compute(self, call):
        inputs, valid = call.inputs, call.valid
        place = torch.arange(inputs.shape[1], device=inputs.device)
        memory = x = self.embedding(inputs) + self.places(place)
        ends = (inputs == self.eos_id).long()
        source = (ends.cumsum(1) - ends == 0) & ends.any(1, keepdim=True)
        source[:, 0] = True  # BOS, if a row has no source
        target = ~source if valid is None else ~source & valid
        target |= ~target.any(1, keepdim=True)  # attention needs at least one position
        for layer in self.encoder:
            memory = layer(memory, src_key_padding_mask=~source)
        for layer in self.decoder:
            x = layer(x, memory, tgt_key_padding_mask=~target, memory_key_padding_mask=~source)
        x = self.norm(x)
        return x if call.at is None else x.flatten(0, 1)[call.at]
