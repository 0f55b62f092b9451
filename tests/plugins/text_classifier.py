"""A task head: the class of a text, by any network."""

from dataclasses import dataclass

import torch
from torch import nn

from unmask.methods.method import METHODS, Capabilities, Losses, Method


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

    def log_p(self, x, valid):
        """log p(class | text) of each row. The class token of the row is masked."""
        text, real = x.clone(), valid[..., None]
        text[:, 0] = self.vocabulary.mask_id
        h = self.backbone.features(text, valid=valid)
        return self.classes((h * real).sum(1) / real.sum(1).clamp(min=1)).log_softmax(-1)

    def tensors_of(self, batch, noise, full_bound=False):
        chosen = batch.x[:, :1] == torch.tensor(self.vocabulary.label_ids)
        return {"x": batch.x, "valid": batch.valid, "chosen": chosen}

    def loss_of(self, tensors):
        log_p = self.log_p(tensors["x"], tensors["valid"])
        nats = -log_p.where(tensors["chosen"], 0.0).sum(1)  # 0 if a row has no class
        terms = torch.zeros(tensors["x"].shape, device=nats.device)
        terms[:, 0] = nats.detach()
        return Losses(nats.sum(), {"class": terms})

    def denoiser(self):
        raise NotImplementedError("Capabilities.generate is False")
