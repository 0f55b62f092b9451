"""Masked diffusion: noise, loss at masked tokens, and the prior and reconstruction terms of the bound."""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.nn import functional as F

from unmask.backbones.backbone import Backbone
from unmask.backbones.layers.state import SourceState, State
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.process import q_sample
from unmask.diffusion.schedule import Learned, Schedule
from unmask.diffusion.time_sampler import Noise, RowNoise, TimeSampler
from unmask.methods.compute.chunked_loss import TokenLoss, projection_loss
from unmask.methods.compute.graph_denoiser import GraphDenoiser
from unmask.methods.compute.source_denoiser import SourceDenoiser
from unmask.methods.compute.token_tensors import spread, token_tensors
from unmask.methods.method import Capabilities, Losses, Method, check_lengths
from unmask.randomness import RowStream
from unmask.runtime.cuda_graphs import CudaGraphs
from unmask.runtime.device import to_device
from unmask.shapes import At, Batch, LogProbabilities, Tensors, Tokens, Valid, last_of
from unmask.vocabulary import Vocabulary

LARGEST_SIGMA = 20.0  # alpha = 2e-9; without the limit sigma(1) can be infinite
ENDS = ("prior", "reconstruction")  # terms of the full bound at the ends of time


def cross_entropy(total: Tensor, chosen: Tensor, weight: Tensor) -> Tensor:
    """weight * -log <x_theta, x>."""
    return weight * (total - chosen[:, 0])


def length_nats(state: SourceState, lengths: Int[Tensor, "rows"]) -> Float[Tensor, "rows"]:
    """-log p(length | source) of targets with this many tokens; 0 for a row without a target."""
    log_p = state.source.lengths.log_softmax(-1)
    chosen = log_p.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]
    return torch.where(lengths > 0, -chosen, 0.0)


class MaskedDiffusion(Method):
    """A method that predicts masked tokens; `steps` is T of its bound, 0 for continuous time."""

    certificate = "upper"
    capabilities = Capabilities(time_bound=True, any_order=True, shared_head=True)
    zero_masking: bool = True

    def __init__(
        self,
        config: Any,
        backbone: Backbone,
        vocabulary: Vocabulary,
        schedule: Schedule,
        time_sampler: TimeSampler,
    ) -> None:
        super().__init__(config, backbone, vocabulary, schedule, time_sampler)
        self.steps: int = getattr(config, "steps", 0)
        self._graph_denoiser: GraphDenoiser | None = None
        self._source_graphs: tuple[Any, CudaGraphs] | None = None

    @abstractmethod
    def token_loss(self, total: Tensor, chosen: Tensor, weight: Tensor, *inputs: Tensor) -> Tensor:
        """The loss of masked tokens from the logsumexp of the logits, logits of `read`, and `loss_inputs`."""

    def read(self, x: Int[Tensor, "tokens"]) -> Int[Tensor, "tokens chosen"]:
        """The ids whose logits the loss reads, the true token first."""
        return x[:, None]

    @abstractmethod
    def loss_inputs(self, t: Float64[Tensor, "rows"]) -> list[Float64[Tensor, "rows"]]:
        """Inputs of `token_loss` that depend on the time, by row; the first is the weight of the loss."""

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> Noise:
        if self.backbone.predicts_length:
            valid = valid & ~last_of(valid)  # the length gives the place of the EOS
        return (time_sampler or self.time_sampler).draw(stream, valid, self.schedule, self.steps)

    def noise_key(self, noise: RowNoise) -> Float64[Tensor, "rows columns"]:
        """Numbers that determine the loss of a text: draws with equal numbers have equal losses.

        Args:
            noise: Randomness from `noise`.

        Returns:
            Numbers of each row.
        """
        assert isinstance(noise, Noise)
        weight, *inputs = self.loss_inputs(noise.t)
        if self.backbone.time_conditioning:
            inputs.append(noise.t)
        by_row = torch.stack([weight * noise.importance, *inputs], 1).detach()
        # fp32 as in the loss: in fp64, equal weights at different times differ by rounding
        return torch.cat([noise.masked, noise.unfinished, by_row.float()], 1).double()

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        assert isinstance(noise, Noise)
        check_lengths(self.backbone, batch.valid, batch.given)
        weight, *inputs = self.loss_inputs(noise.t)
        inputs = [weight * noise.importance, *inputs]
        tensors = self.masked_tensors(batch, noise.masked, noise.t, inputs)
        if self.backbone.predicts_length:
            tensors |= {"lengths": batch.scored.sum(1), "last": last_of(batch.scored)}
        if isinstance(self.schedule, Learned) and self.training:
            drawn = {"t": noise.t, "importance": noise.importance}
            tensors |= {"lengths": batch.scored.sum(1), **drawn}
        return tensors | self._end_tensors(batch, noise) if full_bound else tensors

    def masked_tensors(
        self, batch: Batch, masked: Valid, t: Tensor, inputs: list[Tensor]
    ) -> dict[str, Tensor]:
        """Inputs of `loss_at` for a loss at masked tokens; only these reach the head."""
        z_t = q_sample(batch.x, masked, self.vocabulary.mask_id)
        return token_tensors(self, batch, z_t, masked, inputs, self.condition(t, z_t.device))

    def _end_tensors(self, batch: Batch, noise: Noise) -> dict[str, Tensor]:
        """Inputs of the prior term at t = 1, weighted by alpha(1), and of the reconstruction term at t_min."""
        free = batch.scored
        if self.backbone.predicts_length:
            free = free & ~last_of(free)
        ends: dict[str, tuple[Valid, float, float]] = {}
        if noise.unstarted > 0:
            ends["prior"] = free, 1.0, noise.unstarted
        if noise.unfinished.any():
            ends["reconstruction"] = noise.unfinished, noise.t_min, 1.0
        tensors: dict[str, Tensor] = {}
        for name, (masked, time, weight) in ends.items():
            t = torch.full((len(free),), time, dtype=torch.float64)
            end = self.masked_tensors(batch, masked, t, [torch.full_like(t, weight)])
            tensors |= prefixed(name, end)
        return tensors

    def loss_of(self, tensors: Tensors) -> Losses:
        state, rows = self._encoded(tensors["x"], tensors.get("valid")), len(tensors["x"])
        total, values = self.loss_at(tensors, self.token_loss, state)
        losses = Losses(total, {"diffusion": values})
        if state is not None:  # -log p(length of the target | source), at the EOS of each target
            nats = length_nats(state, tensors["lengths"])
            losses = losses.plus("length", nats.sum(), nats.detach()[:, None] * tensors["last"])
        if "importance" in tensors:
            losses = self._with_schedule_gradient(losses, tensors)
        for name in ENDS:
            if end := without_prefix(name, tensors):
                total, values = self.loss_at(end, cross_entropy)
                losses = losses.plus(name, total, F.pad(values, (0, 0, 0, rows - len(values))))
        return losses

    def loss_at(
        self, tensors: Tensors, token_loss: TokenLoss, state: State | None = None
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "rows length"]]:
        """Sum and values of a loss at the tokens of `token_tensors`."""
        x, at = tensors["x"], tensors["at"]
        tokens, about = self.network_inputs(tensors)
        h = self.backbone.features(tokens, **about, state=state)
        mask_id = self.vocabulary.mask_id if self.zero_masking else None
        ids, by_token = self.read(x.flatten()[at]), tensors["by_token"].unbind()
        total, values = projection_loss(self.backbone.head, mask_id, h, ids, token_loss, *by_token)
        return total, spread(values, at, x)

    def network_inputs(self, tensors: Tensors) -> tuple[Tokens, dict[str, Any]]:
        """z_t and further arguments of `Backbone.features`, from the tensors of `token_tensors`."""
        about = {"condition": tensors.get("sigma"), "valid": tensors.get("valid")}
        return tensors["z_t"], about | {"rule": self.rule, "at": tensors["at"]}

    def log_x_theta(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """log x_theta at chosen positions of z_t; MASK has probability 0."""
        with self.arithmetic():
            # features of all tokens: rounding depends on the number of tokens computed, and a text
            # must not depend on the other texts of its batch
            h = self.backbone.features(z_t, self.condition(t, z_t.device), rule=self.rule)
            return self.log_mean(h[at])

    def log_mean(self, h_at: Float[Tensor, "tokens width"]) -> LogProbabilities:
        """log x_theta of masked tokens from their features; MASK has probability 0."""
        return subs_log_probs(self.backbone.logits(h_at), self.vocabulary.mask_id, torch.float32)

    def denoiser(self) -> Denoiser:
        if self.backbone.pairs:
            if self._source_graphs is None or self._source_graphs[0] != self.edition:
                self._source_graphs = self.edition, CudaGraphs()
            return SourceDenoiser(self, self._source_graphs[1])
        if not self.serving.fixed:
            return self.log_x_theta
        if self._graph_denoiser is None or self._graph_denoiser.edition != self.edition:
            self._graph_denoiser = GraphDenoiser(self)
        return self._graph_denoiser

    def condition(self, t: Float[Tensor, "rows"], device: torch.device) -> Tensor | None:
        """sigma(t), the noise level; None for a network without time conditioning."""
        if not self.backbone.time_conditioning:
            return None
        sigma = self.schedule.sigma(t.double().cpu()).detach()
        return to_device(sigma.clamp(max=LARGEST_SIGMA), device, torch.float32)

    def _encoded(self, x: Tokens, valid: Valid | None) -> SourceState | None:
        """The encoded sources, if their loss needs them: without a length head, `features` encodes."""
        return self.backbone.encode(x, valid) if self.backbone.predicts_length else None

    def _with_schedule_gradient(self, losses: Losses, tensors: Tensors) -> Losses:
        """Adds 0 with a gradient that lowers the variance of the bound under a learned schedule."""
        assert isinstance(self.schedule, Learned)
        t, importance = tensors["t"], tensors["importance"]
        lengths = tensors["lengths"].to(t).clamp(min=1)  # a row may be all padding
        by_row = losses.per_token().sum(1).to(t) / lengths / importance
        moments = self.schedule.second_moment(t, by_row, importance)
        moment = (moments * lengths).sum()  # a sum over rows, as the loss: micro-batches add up
        return losses._replace(total=losses.total + (moment - moment.detach()).to(losses.total))


def prefixed(name: str, tensors: Tensors) -> dict[str, Tensor]:
    """Tensors of a term, with the name of the term before their own."""
    return {f"{name} {key}": value for key, value in tensors.items()}


def without_prefix(name: str, tensors: Tensors) -> dict[str, Tensor]:
    """The tensors of a term from `prefixed`; none if the loss lacks the term."""
    begin = f"{name} "
    return {key.removeprefix(begin): v for key, v in tensors.items() if key.startswith(begin)}
