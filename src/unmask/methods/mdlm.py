"""MDLM (arXiv 2406.07524): SUBS parameterization and a weighted masked-language-model loss."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.backbones.backbone import Backbone
from unmask.diffusion.nelbo import clipped_share, continuous_weight, discrete_weight
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.schedule import Learned
from unmask.diffusion.time_sampler import Noise
from unmask.errors import UnmaskError, unknown
from unmask.methods.compute.chunked_loss import RowLoss, projection_loss
from unmask.methods.masked_diffusion import MaskedDiffusion, cross_entropy
from unmask.methods.method import METHODS, Method, check_lengths
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.shapes import Tokens, Valid

LOSS_WEIGHTS = ("elbo", "uniform", "clipped")


@METHODS.register("mdlm")
class MDLM(MaskedDiffusion):
    """Masked diffusion with SUBS; its bound is a weighted mean of masked-language-model losses.

    With a teacher, the training loss is the cross-entropy with a mixture of the true token and the
    teacher's prediction at the same z_t (arXiv 1503.02531). The bound stays that of the text.
    """

    @dataclass(frozen=True)
    class Config:
        steps: int = 0  # T of the bound; 0 is continuous time
        loss_weight: str = "elbo"  # in training: elbo | uniform (all masked tokens alike) | clipped
        largest_weight: float = 10.0  # of a masked token, if clipped
        teacher_share: float = 0.5  # of a teacher's predictions in the targets of training

        def __post_init__(self) -> None:
            if self.steps < 0:
                raise UnmaskError(f"steps must be 0 (continuous time) or more, not {self.steps}")
            if self.loss_weight not in LOSS_WEIGHTS:
                raise unknown("loss_weight", self.loss_weight, LOSS_WEIGHTS)
            if not 1 <= self.largest_weight < math.inf:
                raise UnmaskError(
                    f"largest_weight must be finite and at least 1, not {self.largest_weight}"
                )
            if not 0 <= self.teacher_share <= 1:
                raise UnmaskError(f"teacher_share must lie in [0, 1], not {self.teacher_share}")

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        self._teacher: tuple[MDLM, ...] = ()  # no submodule: it is neither trained nor saved
        if config.loss_weight == "elbo":
            return
        self.loss_weight = config.loss_weight
        if isinstance(self.schedule, Learned):
            raise UnmaskError(
                f"a learned schedule minimises the variance of the bound: set method.loss_weight "
                f"elbo, not {config.loss_weight}"
            )

    def training_noise(self, stream: RowStream, valid: Valid) -> Noise:
        """Noise whose importance includes the training weights, which have mean 1 over mask ratios."""
        noise, weight = self.noise(stream, valid), self.config.loss_weight
        if weight == "elbo":
            return noise
        limit = self.config.largest_weight if weight == "clipped" else 1.0
        share = clipped_share(1 - self.schedule.alpha(noise.t), limit)
        return replace(noise, importance=noise.importance * share)

    def row_loss(self) -> RowLoss:
        return cross_entropy

    def loss_inputs(self, t: Tensor) -> list[Tensor]:
        if self.steps:
            return [discrete_weight(self.schedule, t, self.steps)]
        return [continuous_weight(self.schedule, t)]

    # a teacher

    def set_teacher(self, teacher: Method) -> None:
        """Makes the training loss a cross-entropy with a mixture of the text and the teacher's predictions.

        Args:
            teacher: A trained MDLM for the same vocabulary.
        """
        if not isinstance(teacher, MDLM):
            raise UnmaskError(f"the teacher is of {type(teacher).__name__}: give a model of mdlm")
        if isinstance(self.schedule, Learned):
            raise UnmaskError(
                "a learned schedule minimises the variance of the bound: train it without a teacher"
            )
        ours, theirs = (
            (net.pairs, net.predicts_length) for net in (self.backbone, teacher.backbone)
        )
        if ours != theirs:
            raise UnmaskError(
                "the teacher and this network do not read the same rows: only one of them is an "
                "encoder_decoder or has a length head"
            )
        if teacher.backbone.time_conditioning and not self.backbone.time_conditioning:
            raise UnmaskError(
                "the teacher reads the noise level: set backbone.time_conditioning true"
            )
        self._teacher = (teacher.eval().requires_grad_(False),)
        self.loss_weight = f"{self.config.loss_weight} with a teacher"

    @property
    def networks(self) -> list[Backbone]:
        return [self.backbone, *(teacher.backbone for teacher in self._teacher)]

    def forward(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> Float[Tensor, ""]:
        if not self._teacher:
            return super().forward(x, valid, given, stream)
        with torch.autocast(self.device.type, enabled=False):  # times need precision
            tensors = self.loss_tensors(x, valid, given, stream)
        assert tensors is not None
        return self.loss_of({name: to_device(part, self.device) for name, part in tensors.items()})

    def loss_tensors(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> dict[str, Tensor] | None:
        for teacher in self._teacher:
            if teacher.device != self.device:
                teacher.to(self.device)
            check_lengths(teacher.backbone, valid, given)
        return super().loss_tensors(x, valid, given, stream)

    def _loss_of(
        self, tensors: Mapping[str, Tensor], row_loss: RowLoss, state: Any = None
    ) -> Float[Tensor, ""]:
        if not self._teacher:
            return super()._loss_of(tensors, row_loss, state)
        [teacher], share = self._teacher, self.config.teacher_share
        x, z_t, at = (tensors[name] for name in ("x", "z_t", "at"))
        sigma, valid = tensors.get("sigma"), tensors.get("valid")
        with torch.no_grad():
            theirs = teacher._encoded(x, valid)
            known = teacher.backbone.features(z_t, sigma, valid=valid, state=theirs, at=at)
        h = self.backbone.features(z_t, sigma, valid=valid, state=state, at=at)
        mask_id = self.vocabulary.mask_id

        def from_teacher(p: Tensor, weight: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
            q = subs_log_probs(teacher.backbone.logits(known), mask_id, p.dtype).exp()
            q = F.pad(q, (0, p.shape[1] - q.shape[1]))
            return -(q * p.clamp(min=1e-37).log()).sum(1), -q

        def mixed(theirs: Tensor, chosen: Tensor, weight: Tensor, known: Tensor) -> Tensor:
            return weight * (share * theirs - (1 - share) * chosen[:, 0])

        ids, [weight] = x.flatten()[at][:, None], tensors["by_token"].unbind()
        return projection_loss(
            *(self.backbone.head, mask_id, h, ids, mixed, weight, known), statistic=from_teacher
        )[0]
