"""A network that treats a strand of DNA and its reverse complement alike."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.errors import UnmaskError


@BACKBONES.register("both_strands")
class BothStrands(Backbone):
    """Convolutions over both strands. The reverse complement of a row has the reverse complement of its predictions."""

    @dataclass(frozen=True)
    class Config:
        width: int = 64
        reach: int = 4

    def __init__(self, config, vocabulary):
        super().__init__(config, vocabulary)
        if vocabulary.complement_ids is None:
            raise UnmaskError(
                "both_strands needs a tokenizer with complements: set data.tokenizer.kind dna"
            )
        self.partner = torch.tensor(vocabulary.complement_ids, device="cpu")
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        size = 2 * config.reach + 1
        self.mix = nn.Conv1d(config.width, config.width, size, padding=config.reach)
        self.head = nn.Linear(2 * config.width, vocabulary.size)
        for name in ("weight", "bias"):
            register_parametrization(self.head, name, Paired(self.partner), unsafe=True)

    def compute(self, call):
        inputs, valid = call.inputs, call.valid
        mirrored = self.partner.to(inputs.device)[inputs].flip(1)
        other = self.strand(mirrored, None if valid is None else valid.flip(1))
        x = torch.cat([self.strand(inputs, valid), other.flip(1)], -1)
        return x if call.at is None else x.flatten(0, 1)[call.at]

    def strand(self, ids, valid):
        """Features of one strand."""
        x = self.embedding(ids)
        x = x if valid is None else x * valid[..., None]
        return x + nn.functional.gelu(self.mix(x.transpose(1, 2))).transpose(1, 2)


class Paired(nn.Module):
    """A head with the weights of one half. It scores a token on one strand and its partner on the other."""

    def __init__(self, partner):
        super().__init__()
        self.partner = partner

    def forward(self, half):
        other = half[self.partner.to(half.device)]
        return torch.cat([half, other], 1) if half.ndim == 2 else half + other

    def right_inverse(self, whole):
        return whole[:, : whole.shape[1] // 2] if whole.ndim == 2 else whole / 2
