"""Training of an MDLM with a teacher (arXiv 1503.02531)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from unmask.backbones.backbone import Backbone
from unmask.backbones.layers.state import State
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.schedule import Learned
from unmask.errors import UnmaskError
from unmask.methods.compute.chunked_loss import TokenLoss, projection_loss
from unmask.methods.compute.token_tensors import spread
from unmask.methods.mdlm import MDLM
from unmask.methods.method import Method, check_lengths
from unmask.randomness import RowStream
from unmask.shapes import Batch, Tensors


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

    def loss_tensors(self, batch: Batch, stream: RowStream) -> dict[str, Tensor]:
        if self.teacher.device != self.device:
            self.teacher.to(self.device)
        check_lengths(self.teacher.backbone, batch.valid, batch.given)
        tensors = super().loss_tensors(batch, stream)
        share = torch.full_like(tensors["by_token"][:1], self.config.teacher_share)
        return tensors | {"by_token": torch.cat([tensors["by_token"], share])}

    def loss_at(
        self, tensors: Tensors, token_loss: TokenLoss, state: State | None = None
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "rows length"]]:
        """The mixture's loss in training, whose tensors have a share of the teacher."""
        if len(tensors["by_token"]) == 1:
            return super().loss_at(tensors, token_loss, state)
        teacher, mask_id = self.teacher, self.vocabulary.mask_id
        x, z_t, at = (tensors[name] for name in ("x", "z_t", "at"))
        sigma, valid = tensors.get("sigma"), tensors.get("valid")
        with torch.no_grad():
            theirs = teacher._encoded(x, valid)
            known = teacher.backbone.features(z_t, sigma, valid=valid, state=theirs, at=at)
        h = self.backbone.features(z_t, sigma, valid=valid, state=state, at=at)

        def from_teacher(p: Tensor, weight: Tensor, share: Tensor, known: Tensor) -> Any:
            q = subs_log_probs(teacher.backbone.logits(known), mask_id, p.dtype).exp()
            q = F.pad(q, (0, p.shape[1] - q.shape[1]))
            return -(q * p.clamp(min=1e-37).log()).sum(1), -q

        def mixed(
            theirs: Tensor, chosen: Tensor, weight: Tensor, share: Tensor, known: Tensor
        ) -> Tensor:
            return weight * (share * theirs - (1 - share) * chosen[:, 0])

        ids, by_token, head = (
            x.flatten()[at][:, None],
            tensors["by_token"].unbind(),
            self.backbone.head,
        )
        total, values = projection_loss(
            head, mask_id, h, ids, mixed, *by_token, known, statistic=from_teacher
        )
        return total, spread(values, at, x)


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
