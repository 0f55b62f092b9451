"""A task head: the class of a text, by any network."""

from dataclasses import dataclass

import torch
from torch import nn

from unmask.methods.method import METHODS, Capabilities, Losses, Method, padding
from unmask.runtime.device import to_device


@METHODS.register("text_classifier")
class TextClassifier(Method):
    """p(class | text): a linear layer on the mean of the features; a row begins with its class."""

    certificate = "exact"
    capabilities = Capabilities(any_network=True, generate=False, infill=False, per_row=True)

    @dataclass(frozen=True)
    class Config:
        pass

    def __init__(self, config, backbone, *parts):
        super().__init__(config, backbone, *parts)
        self.classes = nn.Linear(backbone.width, len(self.vocabulary.label_ids))

    def noise(self, stream, valid, time_sampler=None):
        return None

    def log_p(self, x, valid):
        """log p(class | text) of each row. The class token of the row is masked."""
        text = x.clone()
        text[:, 0] = self.vocabulary.mask_id
        h = self.backbone.features(text, valid=padding(valid, x.device))
        real = to_device(valid, x.device)[..., None]
        return self.classes((h * real).sum(1) / real.sum(1).clamp(min=1)).log_softmax(-1)

    def nll(self, x, valid, noise, full_bound=False, given=None):
        labels = torch.tensor(self.vocabulary.label_ids, device=x.device)
        chosen = x[:, :1] == labels  # all False if a row has no class
        nats = -torch.where(chosen, self.log_p(x, valid), 0.0).sum(1)
        terms = torch.zeros(x.shape, device=x.device)
        terms[:, 0] = nats.detach()
        return Losses(nats.sum(), {"class": terms})

    def denoiser(self):
        raise NotImplementedError("Capabilities.generate is False")
