"""Masked diffusion: noise, loss at masked tokens, and the prior and reconstruction terms of the bound."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from unmask.backbones.backbone import Backbone
from unmask.backbones.layers.state import SourceState, State
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.process import last_of, q_sample
from unmask.diffusion.schedule import Learned, Schedule
from unmask.diffusion.time_sampler import Noise, RowNoise, TimeSampler
from unmask.methods.compute.chunked_loss import RowLoss, projection_loss
from unmask.methods.compute.graph_denoiser import GraphDenoiser
from unmask.methods.compute.source_denoiser import SourceDenoiser
from unmask.methods.method import (
    Capabilities,
    Losses,
    Method,
    check_lengths,
    padding,
    spread,
    targets,
)
from unmask.randomness import RowStream
from unmask.runtime.cuda_graphs import CudaGraphs
from unmask.runtime.device import to_device
from unmask.shapes import At, LogProbabilities, Tokens, Valid
from unmask.vocabulary import Vocabulary

LARGEST_SIGMA = 20.0  # alpha = 2e-9; without the limit sigma(1) can be infinite
COUNTS = 32  # numbers of masked tokens that `masked_first` rounds up to


def masked_first(masked: Valid) -> tuple[Int[Tensor, "tokens"], int]:
    """Indices of the masked tokens, then of some others, so that few different numbers occur.

    Args:
        masked: True at masked tokens.

    Returns:
        Distinct indices into the flattened batch, and the number of masked tokens among them.

    Example:
        >>> masked_first(torch.tensor([[False, True], [True, False]]))
        (tensor([1, 2]), 2)
    """
    flat = masked.flatten()
    at = flat.nonzero()[:, 0]
    count, step = len(at), max(1, len(flat) // COUNTS)
    missing = max(1, -(-count // step)) * step - count
    others = (~flat).nonzero()[:missing, 0]
    return torch.cat([at, others]), count


def token_tensors(
    x: Tokens,
    z_t: Tokens,
    chosen: Valid,
    inputs: Sequence[Float64[Tensor, "rows"]],
    valid: Valid,
    sigma: Tensor | None,
) -> dict[str, Tensor]:
    """Inputs of `loss_of` for a loss at chosen tokens, whose numbers are rounded up to few.

    Args:
        x: Token ids.
        z_t: Token ids with noise, which the network reads.
        chosen: True at the tokens of the loss.
        inputs: Inputs of the loss by row, the weight first. It is 0 at the tokens that fill up.
        valid: True at tokens that are not padding.
        sigma: Noise levels; None for a network without time conditioning.

    Returns:
        Tensors by name, on the CPU.
    """
    at, count = masked_first(chosen)
    by_token = torch.stack(list(inputs)).detach().float()[:, at // x.shape[1]]
    by_token[0, count:] = 0.0
    tensors = {"x": x, "z_t": z_t, "at": at, "by_token": by_token}
    if sigma is not None:
        tensors["sigma"] = sigma
    return tensors if bool(valid.all()) else tensors | {"valid": valid}


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
    def row_loss(self) -> RowLoss:
        """A function (logsumexp of the logits, logits of `read`, *loss_inputs) -> loss of each masked token."""

    def read(self, x: Int[Tensor, "tokens"]) -> Int[Tensor, "tokens chosen"]:
        """The ids whose logits the loss reads, the true token first."""
        return x[:, None]

    @abstractmethod
    def loss_inputs(self, t: Float64[Tensor, "rows"]) -> list[Float64[Tensor, "rows"]]:
        """Inputs of `row_loss` that depend on the time, by row; the first is the weight of the loss."""

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> Noise:
        if self.backbone.predicts_length:
            valid = valid & ~last_of(valid)  # the length gives the place of the EOS
        return (time_sampler or self.time_sampler).draw(stream, valid, self.schedule, self.steps)

    def noise_key(self, noise: RowNoise) -> Float64[Tensor, "rows columns"]:
        assert isinstance(noise, Noise)
        weight, *inputs = self.loss_inputs(noise.t)
        if self.backbone.time_conditioning:
            inputs.append(noise.t)
        by_row = torch.stack([weight * noise.importance, *inputs], 1).detach()
        # fp32 as in the loss: in fp64, equal weights at different times differ by rounding
        return torch.cat([noise.masked, noise.unfinished, by_row.float()], 1).double()

    def nll(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        full_bound: bool = False,
        given: Valid | None = None,
    ) -> Losses:
        assert isinstance(noise, Noise)
        check_lengths(self.backbone, valid, given)
        weight, *inputs = self.loss_inputs(noise.t)
        inputs = [weight * noise.importance, *inputs]
        state = self._encoded(x, padding(valid, x.device))
        total, diffusion = self._masked_loss(
            *(x, valid, noise.masked, noise.t, self.row_loss()),
            [part.detach() for part in inputs],
            state=state,
        )
        losses = Losses(total, {"diffusion": diffusion})
        if state is not None:
            losses = self._with_length(losses, state, targets(valid, given))
        if isinstance(self.schedule, Learned) and self.training:
            scored = targets(valid, given)
            losses = self._with_schedule_gradient(self.schedule, losses, scored, noise)
        return self._with_ends(losses, x, valid, noise, given) if full_bound else losses

    def loss_tensors(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> dict[str, Tensor] | None:
        if isinstance(self.schedule, Learned):
            return None  # its gradient reads the losses on the host
        check_lengths(self.backbone, valid, given)
        scored = targets(valid, given)
        tensors = self.noise_tensors(x, valid, scored, self.training_noise(stream, scored))
        return tensors | ({"lengths": scored.sum(1)} if self.backbone.predicts_length else {})

    def noise_tensors(
        self, x: Tokens, valid: Valid, scored: Valid, noise: RowNoise | None
    ) -> dict[str, Tensor]:
        """Inputs of `loss_of` for a draw of the noise.

        Args:
            x: Token ids, on the CPU.
            valid: True at tokens that are not padding.
            scored: True at tokens that count in the loss.
            noise: Randomness from `training_noise`.

        Returns:
            Tensors by name, on the CPU.
        """
        assert isinstance(noise, Noise)
        weight, *inputs = self.loss_inputs(noise.t)
        z_t, sigma = (
            q_sample(x, noise.masked, self.vocabulary.mask_id),
            self.condition(noise.t, x.device),
        )
        return token_tensors(
            x, z_t, noise.masked, [weight * noise.importance, *inputs], valid, sigma
        )

    def loss_of(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        state = self._encoded(tensors["x"], tensors.get("valid"))
        total = self._loss_of(tensors, self.row_loss(), state)
        return total if state is None else total + length_nats(state, tensors["lengths"]).sum()

    def _loss_of(
        self, tensors: Mapping[str, Tensor], row_loss: RowLoss, state: State | None = None
    ) -> Float[Tensor, ""]:
        """The sum of a loss at the tokens of `token_tensors`."""
        x, at, valid = tensors["x"], tensors["at"], tensors.get("valid")
        sigma = tensors.get("sigma")
        h = self.backbone.features(tensors["z_t"], sigma, valid=valid, state=state, at=at)
        return self._head_loss(h, x.flatten()[at], row_loss, tensors["by_token"].unbind())[0]

    def log_x_theta(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """log x_theta at chosen positions of z_t; MASK has probability 0."""
        with self.arithmetic():
            # features of all tokens: rounding depends on the number of tokens computed, and a text
            # must not depend on the other texts of its batch
            h = self.backbone.features(z_t, self.condition(t, z_t.device))
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

    def _masked_loss(
        self,
        x: Tokens,
        valid: Valid,
        masked: Valid,
        t: Tensor,
        row_loss: RowLoss,
        inputs: list[Tensor],
        z_t: Tokens | None = None,
        state: State | None = None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "rows length"]]:
        """Sum and per-token values of a loss at masked tokens; only these reach the head.

        `masked` is on the CPU, where the noise was drawn, so that `nonzero` does not wait for a GPU.
        """
        if z_t is None:
            z_t = q_sample(x, to_device(masked, x.device), self.vocabulary.mask_id)
        rows, columns = masked.nonzero(as_tuple=True)
        at = to_device(rows * x.shape[1] + columns, x.device)
        by_token = [
            to_device(part.to(rows.device)[rows], x.device, torch.float32) for part in inputs
        ]
        sigma = self.condition(t, x.device)
        real = padding(valid, x.device)
        h = self.backbone.features(z_t, sigma, valid=real, state=state, at=at)
        total, losses = self._head_loss(h, x.flatten()[at], row_loss, by_token)
        return total, spread(losses, at, x)

    def _head_loss(
        self,
        h: Float[Tensor, "tokens width"],
        x: Int[Tensor, "tokens"],
        row_loss: RowLoss,
        by_token: Sequence[Tensor],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "tokens"]]:
        """Sum and values of a loss of tokens x with features h."""
        mask_id = self.vocabulary.mask_id if self.zero_masking else None
        return projection_loss(self.backbone.head, mask_id, h, self.read(x), row_loss, *by_token)

    def _with_ends(
        self, losses: Losses, x: Tokens, valid: Valid, noise: Noise, given: Valid | None
    ) -> Losses:
        """Adds the prior term at t = 1, weighted by alpha(1), and the reconstruction term at t_min."""
        terms = dict(losses.terms)
        ends: list[tuple[str, Valid, float, float]] = []
        if noise.unstarted > 0:
            masked = targets(valid, given)
            if self.backbone.predicts_length:
                masked = masked & ~last_of(masked)
            ends.append(("prior", masked, 1.0, noise.unstarted))
        if noise.unfinished.any():
            ends.append(("reconstruction", noise.unfinished, noise.t_min, 1.0))
        total = losses.total
        for name, masked, t, weight in ends:
            rows = torch.full((len(x),), t, dtype=torch.float64)
            weights = torch.full_like(rows, weight)
            extra, values = self._masked_loss(x, valid, masked, rows, cross_entropy, [weights])
            total = total + extra
            terms[name] = terms[name] + values if name in terms else values
        return replace(losses, total=total, terms=terms)

    def _encoded(self, x: Tokens, valid: Valid | None) -> SourceState | None:
        """The encoded sources, if their loss needs them: without a length head, `features` encodes."""
        return self.backbone.encode(x, valid) if self.backbone.predicts_length else None

    def _with_length(self, losses: Losses, state: SourceState, scored: Valid) -> Losses:
        """Adds -log p(length of the target | source), at the EOS of each target."""
        nats = length_nats(state, to_device(scored.sum(1), state.source.start.device))
        end = to_device(last_of(scored), nats.device)
        terms = {**losses.terms, "length": nats[:, None] * end}
        return replace(losses, total=losses.total + nats.sum(), terms=terms)

    def _with_schedule_gradient(
        self, schedule: Learned, losses: Losses, scored: Valid, noise: Noise
    ) -> Losses:
        """Adds a term of value 0 whose gradient lowers the variance of the bound under a learned schedule."""
        lengths = scored.sum(1).cpu().double().clamp(min=1)  # a row may be all padding
        by_row = losses.per_token().sum(1).cpu().double() / lengths / noise.importance
        moments = schedule.second_moment(noise.t, by_row, noise.importance)
        moment = (moments * lengths).sum()  # a sum over rows, as the loss: micro-batches add up
        return replace(losses, total=losses.total + (moment - moment.detach()).to(losses.total))
