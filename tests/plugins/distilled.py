"""Distillation: the loss of an MDLM together with its distance to a teacher's predictions."""

from dataclasses import dataclass

import torch
from torch.nn.functional import kl_div

import unmask
from unmask.diffusion.process import q_sample
from unmask.errors import UnmaskError
from unmask.methods.mdlm import MDLM
from unmask.methods.method import METHODS, padding, targets
from unmask.runtime.device import to_device

IMPOSSIBLE = -1e4  # log-probability of MASK, which both models exclude


@METHODS.register("distilled")
class Distilled(MDLM):
    """MDLM that also learns the predictions of another model at masked tokens; its bound is MDLM's."""

    @dataclass(frozen=True)
    class Config(MDLM.Config):
        teacher: str = ""  # a model with the same tokenizer
        weight: float = 1.0  # of the teacher's part of the loss

    def __init__(self, *parts):
        super().__init__(*parts)
        self._teacher = []  # a list hides it from the weights that are trained and saved

    def forward(self, x, valid, given, stream):
        loss = super().forward(x, valid, given, stream)
        noise, real = self.noise(stream, targets(valid, given)), padding(valid, self.device)
        at = tuple(to_device(part, self.device) for part in noise.masked.nonzero(as_tuple=True))
        z_t = to_device(q_sample(x, noise.masked, self.vocabulary.mask_id), self.device)
        with torch.no_grad():
            wanted = predicted(self.teacher(), z_t, noise.t, real, at)
        own = predicted(self, z_t, noise.t, real, at)
        return loss + self.config.weight * kl_div(own, wanted, reduction="sum", log_target=True)

    def teacher(self):
        """The teacher, read when training begins."""
        if not self._teacher:
            method = unmask.load(self.config.teacher, device=str(self.device)).method
            if method.vocabulary != self.vocabulary:
                raise UnmaskError(f"the teacher {self.config.teacher} has another tokenizer")
            self._teacher.append(method)
        return self._teacher[0]


def predicted(method, z_t, t, valid, at):
    """log x_theta at masked tokens."""
    h = method.backbone.features(z_t, method.condition(t, z_t.device), valid=valid)
    return method.log_mean(h[at]).clamp(min=IMPOSSIBLE)
