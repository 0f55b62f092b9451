"""Training of an MDLM with a teacher (arXiv 1503.02531)."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.backbones.backbone import Backbone
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.schedule import Learned
from unmask.errors import UnmaskError
from unmask.methods.compute.chunked_loss import RowLoss, projection_loss
from unmask.methods.mdlm import MDLM
from unmask.methods.method import Method, check_lengths
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.shapes import Tokens, Valid


class DistilledMDLM(MDLM):
    """An MDLM in training whose targets are a mixture of the text and of a teacher's predictions.

    It shares its network with the student. Its bound is that of the student. The teacher is no
    submodule, so it is neither trained nor saved.

    Args:
        student: The MDLM to train.
        teacher: A trained MDLM for the same vocabulary.
    """

    def __init__(self, student: MDLM, teacher: MDLM) -> None:
        super().__init__(
            *(student.config, student.backbone, student.vocabulary),
            *(student.schedule, student.time_sampler),
        )
        self.loss_weight = f"{student.config.loss_weight} with a teacher"
        self._teacher = (teacher.eval().requires_grad_(False),)

    @property
    def teacher(self) -> MDLM:
        """The frozen teacher."""
        return self._teacher[0]

    @property
    def networks(self) -> list[Backbone]:
        return [self.backbone, self.teacher.backbone]

    def forward(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> Float[Tensor, ""]:
        with torch.autocast(self.device.type, enabled=False):  # times need precision
            tensors = self.loss_tensors(x, valid, given, stream)
        assert tensors is not None
        return self.loss_of({name: to_device(part, self.device) for name, part in tensors.items()})

    def loss_tensors(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> dict[str, Tensor] | None:
        if self.teacher.device != self.device:
            self.teacher.to(self.device)
        check_lengths(self.teacher.backbone, valid, given)
        return super().loss_tensors(x, valid, given, stream)

    def _loss_of(
        self, tensors: Mapping[str, Tensor], row_loss: RowLoss, state: Any = None
    ) -> Float[Tensor, ""]:
        teacher, share, mask_id = self.teacher, self.config.teacher_share, self.vocabulary.mask_id
        x, z_t, at = (tensors[name] for name in ("x", "z_t", "at"))
        sigma, valid = tensors.get("sigma"), tensors.get("valid")
        with torch.no_grad():
            theirs = teacher._encoded(x, valid)
            known = teacher.backbone.features(z_t, sigma, valid=valid, state=theirs, at=at)
        h = self.backbone.features(z_t, sigma, valid=valid, state=state, at=at)

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


def with_teacher(student: Method, teacher: Method) -> DistilledMDLM:
    """The training form of an MDLM that learns from a teacher.

    Args:
        student: The method to train.
        teacher: A method with its trained network, for the same vocabulary.

    Returns:
        A method with the student's network.
    """
    if not isinstance(student, MDLM):
        raise UnmaskError(f"{type(student).__name__} learns from no teacher: set method mdlm")
    if not isinstance(teacher, MDLM):
        raise UnmaskError(f"the teacher is of {type(teacher).__name__}: give a model of mdlm")
    if isinstance(student.schedule, Learned):
        raise UnmaskError(
            "a learned schedule minimises the variance of the bound: train it without a teacher"
        )
    ours, theirs = (
        (net.pairs, net.predicts_length) for net in (student.backbone, teacher.backbone)
    )
    if ours != theirs:
        raise UnmaskError(
            "the teacher and this network do not read the same rows: only one of them is an "
            "encoder_decoder or has a length head"
        )
    if teacher.backbone.time_conditioning and not student.backbone.time_conditioning:
        raise UnmaskError("the teacher reads the noise level: set backbone.time_conditioning true")
    return DistilledMDLM(student, teacher)
