"""Duo (arXiv 2506.10892): a curriculum of Gaussian latents for UDLM, and its distillation (DCD)."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.backbone import Backbone
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.time_sampler import RowNoise, Stratified
from unmask.errors import UnmaskError
from unmask.extensions.uniform.diffusion.duality import (
    distinct_numbers,
    largest_normals,
    signal_ratio,
    tempered_softmax,
)
from unmask.extensions.uniform.methods.udlm import UDLM
from unmask.extensions.uniform.methods.uniform_diffusion import UniformNoise
from unmask.methods.compute.chunked_loss import projection_loss
from unmask.methods.compute.token_tensors import spread, token_tensors
from unmask.methods.method import METHODS, Losses
from unmask.options import option
from unmask.randomness import (
    Keys,
    RowStream,
    keyed_integers,
    keyed_normals,
    keyed_uniforms,
    stream_keys,
)
from unmask.shapes import Batch, Inputs, Tensors, Tokens, Valid

CHOSEN = 8  # largest coordinates of a Gaussian latent that are drawn, beside that of the true token
WARMEST = 0.01  # temperature at which the other coordinates have a mass of 1e-4
OWN, OTHERS, IDS = 0, 2, 3  # sites of random numbers; normals take two
DIVERGENCES = ("reverse", "forward")


@dataclass(frozen=True)
class GaussianLatents(UniformNoise):
    """Keys of the noise of one-hot vectors, and their ratio of signal to noise, at time t."""

    by_token = ("open",)

    ratio: Float64[Tensor, "rows"]
    keys: Keys
    open: Bool[Tensor, "rows length"]  # True at tokens that get noise


class MixedEmbedding(nn.Embedding):
    """The embedding of a network, which also passes vectors on."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__(table.num_embeddings, table.embedding_dim, _weight=table.weight)
        self.weight = table.weight  # one parameter, perhaps also the head's

    def forward(self, inputs: Inputs) -> Float[Tensor, "rows length width"]:
        return inputs if inputs.is_floating_point() else super().forward(inputs)

    def mixed(
        self, ids: Tensor, weights: Float[Tensor, "rows length chosen"]
    ) -> Float[Tensor, "rows length width"]:
        """Weighted sums of embeddings, without a copy of each of them."""
        bags = F.embedding_bag(
            ids.flatten(0, 1), self.weight, per_sample_weights=weights.flatten(0, 1), mode="sum"
        )
        return bags.unflatten(0, ids.shape[:2])


@METHODS.register("duo")
class Duo(UDLM):
    """UDLM with Duo's curriculum: at first the network reads softmax(w_t / temperature) of Gaussian latents."""

    @dataclass(frozen=True)
    class Config(UDLM.Config):
        # training steps with it; later steps are those of udlm
        curriculum: int = option(500, ge=0)
        temperature: float = option(1e-3, gt=0, le=WARMEST)  # of the softmax
        # the curriculum trains alpha between cut and 1 - cut
        cut: float = option(0.05, gt=0, lt=0.5)

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        if not config.curriculum:
            return
        if self.backbone.tokens_only:
            raise UnmaskError(
                "the curriculum of duo mixes embeddings, but the network reads tokens: set "
                "method.curriculum 0, or backbone dit"
            )
        assert isinstance(self.backbone.embedding, nn.Embedding)
        self.backbone.embedding = MixedEmbedding(self.backbone.embedding)

    def training_noise(self, stream: RowStream, valid: Valid) -> UniformNoise:
        """Gaussian latents in the steps of the curriculum, and replaced tokens afterwards."""
        if stream.step >= self.config.curriculum:
            return super().training_noise(stream, valid)
        cut = self.config.cut
        first, last = self.schedule.inverse(torch.tensor([1 - cut, cut], dtype=torch.float64))
        share = (stream.strata() + 1 - stream.uniform("time", 1)[:, 0]) / stream.total
        t = first + (last - first) * share
        return GaussianLatents(
            t=t,
            importance=(last - first).expand(len(t)),
            ratio=signal_ratio(self.schedule.alpha(t), self.process.states),
            keys=stream_keys(stream, "latent"),
            open=valid,
        )

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        if not isinstance(noise, GaussianLatents):
            return super().tensors_of(batch, noise, full_bound)
        tensors = self.uniform_tensors(batch, batch.x, noise)
        del tensors["z_t"]  # the device computes it
        return tensors | {"ratio": noise.ratio, "keys": noise.keys, "open": noise.open}

    def loss_of(self, tensors: Tensors) -> Losses:
        """In the curriculum, the network reads mixed embeddings in place of z_t."""
        if "ratio" not in tensors:
            return super().loss_of(tensors)
        latents = (tensors[name] for name in ("x", "ratio", "keys", "open"))
        return self.divergence(tensors, *self.latents(*latents))

    def latents(
        self, x: Tokens, ratio: Float[Tensor, "rows"], keys: Keys, open: Valid
    ) -> tuple[Tokens, Inputs]:
        """argmax w_t, and the embeddings mixed by softmax(w_t / temperature).

        Only the largest coordinates of w_t are drawn, with their exact distribution: the others
        have no weight at low temperatures. Other tokens are equally likely to have them.

        Args:
            x: Token ids, on the device.
            ratio: Ratio of signal to noise of each row.
            keys: Keys of the noise.
            open: True at tokens that get noise.

        Returns:
            z_t, and the inputs of the network.
        """
        table, states, mask_id = self.backbone.embedding, self.process.states, self.process.mask_id
        assert isinstance(table, MixedEmbedding)
        length, dtype, others = x.shape[1], table.weight.dtype, min(CHOSEN, states - 1)
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            own = keyed_normals(keys, OWN, length, 1, dtype)
            top = largest_normals(keyed_uniforms(keys, OTHERS, length, others, dtype), states - 1)
            weights = tempered_softmax(own, top, ratio.to(dtype), self.config.temperature)
            weights = torch.where(
                open[..., None], weights, F.pad(torch.ones_like(own), (0, others))
            )
            away = distinct_numbers(keyed_integers(keys, IDS, length, others), states - 1)
            state = (x - (x > mask_id).long())[..., None]
            state = (state + F.pad(1 + away, (1, 0))) % states  # that of x first
            ids = state + (state >= mask_id)
            z_t = ids.gather(-1, weights.argmax(-1, keepdim=True))[..., 0]
        return z_t, table.mixed(ids, weights)


@METHODS.register("duo_distilled")
class DuoDistilled(UDLM):
    """Discrete consistency distillation: predictions at z_t learn those of a teacher at z_s, for fewer steps.

    z_s and z_t are argmax w_s and argmax w_t of the same noise. Tokens that are replaced at time s are
    replaced by the same tokens at time t: shared uniforms of `Replacements` have this joint distribution.
    """

    capabilities = replace(UDLM.capabilities, distills="runs/demo-duo")
    loss_weight = "distillation"

    @dataclass(frozen=True)
    class Config(UDLM.Config):
        # a round begins with the student as the teacher and doubles the step size
        rounds: int = option(5, ge=1, le=32)
        # training steps of a round; the last round does not end
        round_steps: int = option(200, ge=1)
        step_size: float = option(1 / 512, ge=0, le=1)  # t - s in the first round
        # reverse: KL(student || teacher) | forward: KL(teacher || student)
        divergence: str = option("reverse", among=DIVERGENCES)

    def begin_training(self) -> None:
        """Copies the network as the first teacher. It is no submodule: models are saved without it."""
        teacher = copy.deepcopy(self.backbone).requires_grad_(False).eval()
        self._training: tuple[Backbone, Tensor] = teacher, torch.zeros((), dtype=torch.long)

    @property
    def teacher(self) -> Backbone:
        """The frozen network of the present round."""
        return self._training[0]

    def training_tensors(self) -> dict[str, Tensor]:
        tensors = {f"teacher.{name}": value for name, value in self.teacher.state_dict().items()}
        return tensors | {"round": self._training[1]}

    def loss_tensors(self, batch: Batch, stream: RowStream) -> dict[str, Tensor]:
        number = self._begin_round(stream.step)
        noise = self._draw(stream, batch.scored, Stratified(self.config.t_min))
        s = (noise.t - self.config.step_size * 2**number).clamp(min=0)
        chance = (1 - self.schedule.alpha(s))[:, None]
        kept = stream.uniform("mask", batch.x.shape[1]) < chance
        earlier = replace(noise, t=s, replaced=noise.replaced & kept)
        z_t, z_s = self.z_t(batch.x, noise), self.z_t(batch.x, earlier)
        sigma_t, sigma_s = (self.condition(time, z_t.device) for time in (noise.t, s))
        assert sigma_s is not None
        one = [torch.ones_like(s)]
        tensors = token_tensors(self, batch, z_t, batch.scored, one, sigma_t)
        return tensors | {"z_s": z_s, "sigma_s": sigma_s}

    def loss_of(self, tensors: Tensors) -> Losses:
        """In training, the divergence of the student's predictions at z_t from the teacher's at z_s."""
        if "z_s" not in tensors:
            return super().loss_of(tensors)
        at, valid, mask_id = tensors["at"], tensors.get("valid"), self.vocabulary.mask_id
        teacher, forward, x = self.teacher, self.config.divergence == "forward", tensors["x"]
        with torch.no_grad():
            known = teacher.features(tensors["z_s"], tensors["sigma_s"], valid=valid, at=at)
        h = self.backbone.features(tensors["z_t"], tensors["sigma"], valid=valid, at=at)

        def divergence(p: Tensor, weight: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
            log_q = subs_log_probs(teacher.logits(known), mask_id, p.dtype)
            log_q = F.pad(log_q, (0, p.shape[1] - log_q.shape[1]), value=-torch.inf)
            log_q, log_p = log_q.clamp(min=-1e30), p.clamp(min=1e-37).log()  # 0 log 0 = 0
            if forward:
                q = log_q.exp()
                return (q * (log_q - log_p)).sum(1), -q
            value = p * (log_p - log_q)
            return value.sum(1), value + p

        def loss(found: Tensor, chosen: Tensor, weight: Tensor, known: Tensor) -> Tensor:
            return weight * found

        ids, weight = x.flatten()[at][:, None], tensors["by_token"][0]
        total, values = projection_loss(
            *(self.backbone.head, mask_id, h, ids, loss, weight, known), statistic=divergence
        )
        return Losses(total, {"divergence": spread(values, at, x)})

    @torch.no_grad()
    def _begin_round(self, step: int) -> int:
        """The round of a step. At the start of a round the student becomes the teacher."""
        teacher, present = self._training
        if next(teacher.parameters()).device != self.device:
            teacher.to(self.device)
        number = min(step // self.config.round_steps, self.config.rounds - 1)
        if number > int(present):
            present.fill_(number)
            for old, new in zip(teacher.parameters(), self.backbone.parameters(), strict=True):
                old.copy_(new.full_tensor() if hasattr(new, "full_tensor") else new)
        return int(present)
