"""Gaussian diffusion with a bound: noise, self-conditioning and the terms of the bound.

The bound has three terms: the prior at t = 1, the divergences of the reverse steps, and the tokens read off z_0.
"""

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.extensions.vectors.diffusion.gaussian import (
    GammaSchedule,
    StepNoise,
    Variance,
    bound_noise,
    noised,
    prior_divergence,
    signal,
    step_divergence,
    uniform_noise,
)
from unmask.extensions.vectors.methods.code_faults import REASONS, faults
from unmask.extensions.vectors.methods.vector_method import (
    Outputs,
    VectorMethod,
    Vectors,
    by_row,
    chosen,
)
from unmask.methods.method import Losses
from unmask.randomness import RowStream
from unmask.shapes import Batch, Tensors, Times, Tokens, Valid

Terms = dict[str, Float[Tensor, "rows length"]]
GUESS_SIZES = 4  # numbers of rows of a self-conditioning pass, for compiled networks


@dataclass(frozen=True)
class LatentBatch:
    """Rows of a loss on the device, with the randomness of each row."""

    x: Tokens
    codes: Vectors
    noise: StepNoise
    guess: Vectors  # codes at given tokens, 0 elsewhere
    known: Bool[Tensor, "rows length 1"]  # True at given tokens
    valid: Valid | None  # False at padding
    scored: Valid  # True at tokens that count in the loss
    drafted: Int[Tensor, "drafts"] | None  # rows of the first pass of self-conditioning

    @classmethod
    def of(cls, tensors: Tensors, codes: Vectors) -> "LatentBatch":
        """The batch of the tensors of a loss, and the codes of its tokens."""
        x, drawn = tensors["x"], {"s": tensors["t"], **tensors}
        noise = StepNoise(**{field.name: drawn[field.name] for field in fields(StepNoise)})
        every = torch.ones_like(x, dtype=torch.bool)
        known = tensors.get("given", ~every)[..., None]
        return cls(
            x=x,
            codes=codes,
            noise=noise,
            guess=torch.where(known, codes.detach(), 0.0),
            known=known,
            valid=tensors.get("valid"),
            scored=tensors.get("scored", every),
            drafted=tensors.get("drafted"),
        )

    def gamma_of(self, schedule: GammaSchedule, t: Times) -> Float[Tensor, "rows"]:
        """The noise level at the time of each row."""
        return schedule.gamma(t.to(self.codes.dtype))

    def by_row(self, values: Float[Tensor, "rows"]) -> Float[Tensor, "rows 1"]:
        """Values of the rows, as they multiply values of tokens."""
        return values.to(self.codes.dtype)[:, None]

    def noised(self, gamma: Float[Tensor, "rows"], site: int = 0) -> Vectors:
        """z_t of each token at a noise level of each row."""
        return noised(self.codes, by_row(gamma), self.noise.normal(site, self.codes))


class LatentDiffusion(VectorMethod):
    """Gaussian diffusion of code vectors; a method chooses codes, schedule, head and training loss."""

    certificate: ClassVar[Literal["exact", "upper", "none"]] = "upper"
    sampler = "latent_ancestral"
    steps: int = 0  # T of the bound; 0 is continuous time
    variance: Variance = "posterior"  # of the steps of the bound

    def __init__(self, config: Any, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.steps = getattr(config, "steps", 0)
        self.self_conditioning = getattr(config, "self_conditioning", 0.0)

    # Choices of a method

    def adapter(self, width: int, features: int) -> nn.Module:
        """The first layer of the network: vectors and a guess -> features."""
        adapter = nn.Linear(2 * width, features)
        with torch.no_grad():  # a network that never sees a guess must ignore that input
            adapter.weight[:, width:] = 0.0
        return adapter

    def estimate(self, prediction: Outputs) -> Vectors:
        return prediction

    def step_estimate(self, prediction: Outputs, batch: LatentBatch) -> Vectors:
        """The estimate of the code vectors in the reverse steps of the bound: by default `estimate`."""
        return self.estimate(prediction)

    @abstractmethod
    def training_terms(self, batch: LatentBatch) -> Terms:
        """Terms of the training loss at each token."""

    # The network

    def clean_inputs(self, x: Tokens) -> Float[Tensor, "rows length inputs"]:
        """The codes of tokens in place of z_t and of the guess, as at gamma = -infinity."""
        codes = nn.functional.embedding(x, self.codes / self.codes.square().mean().sqrt())
        return torch.cat([codes, codes], -1)

    def predict(
        self, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors, valid: Valid | None = None
    ) -> Outputs:
        """Outputs of the head for vectors and a guess, both scaled to a variance of about 1."""
        size = self.codes.detach().square().mean().to(z.dtype)
        alpha, sigma = signal(by_row(gamma))
        scaled = [z / (alpha**2 * size + sigma**2).sqrt(), guess / size.sqrt()]
        return self.run_trunk(torch.cat(scaled, -1), gamma, valid, z.dtype)

    def self_conditioned(
        self, z: Vectors, gamma: Float[Tensor, "rows"], batch: LatentBatch
    ) -> Outputs:
        """The prediction from z_t, and from a first estimate in the rows that are `guessed`.

        The first pass has no gradient.
        """
        guess, valid, rows = batch.guess, batch.valid, batch.drafted
        if rows is None:
            return self.predict(z, gamma, guess, valid)
        some = None if valid is None else valid[rows]
        keys = self.backbone.dropout_keys
        try:
            self.backbone.dropout_keys = None if keys is None else keys[rows]
            with torch.no_grad():
                found = self.estimate(self.predict(z[rows], gamma[rows], guess[rows], some))
        finally:
            self.backbone.dropout_keys = keys
        guessed = batch.noise.guessed[rows, None, None]
        found = torch.where(batch.known[rows] | ~guessed, guess[rows], found)
        return self.predict(z, gamma, guess.index_copy(0, rows, found), valid)

    def draft_rows(self, guessed: Bool[Tensor, "rows"]) -> Int[Tensor, "drafts"] | None:
        """Rows of the first pass: those that are `guessed`, and others, so that few numbers occur."""
        if not self.self_conditioning:
            return None
        # at least one row, since FSDP needs the same passes in every process
        count, step = max(1, int(guessed.sum())), max(1, len(guessed) // GUESS_SIZES)
        order = guessed.int().argsort(descending=True, stable=True)
        return order[: min(-(-count // step) * step, len(guessed))]

    def passes(self, rows: int) -> set[int]:
        if not self.self_conditioning:
            return {rows}
        step = max(1, rows // GUESS_SIZES)
        return {*range(step, rows, step), rows}

    # Noise and bound

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> StepNoise:
        """Noise of the bound. In T steps, a step has a probability proportional to its range of gamma."""
        return bound_noise(stream, self.gammas, self.steps, float(self.self_conditioning > 0))

    def uniform_noise(self, stream: RowStream) -> StepNoise:
        """Noise with uniform times, for training losses that weigh all times alike."""
        return uniform_noise(stream, self.steps, self.self_conditioning)

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        assert isinstance(noise, StepNoise)
        drawn = dict(vars(noise))
        if not full_bound:
            del drawn["s"]  # no training loss reads the earlier times
        whole = batch.given is None and batch.padding is None
        optional = {
            "drafted": self.draft_rows(noise.guessed),
            "given": batch.given,
            "valid": batch.padding,
            "scored": None if whole else batch.scored,
        }
        given = {name: value for name, value in optional.items() if value is not None}
        return {"x": batch.x, **drawn, **given}

    def loss_of(self, tensors: Tensors) -> Losses:
        """Terms of the bound if the tensors have the earlier times, else of the training loss.

        Given tokens are noised like the others, and the network also gets their codes as a certain guess.
        """
        batch = LatentBatch.of(tensors, nn.functional.embedding(tensors["x"], self.codes))
        terms = self.bound_terms(batch) if "s" in tensors else self.training_terms(batch)
        terms = {name: values.where(batch.scored, 0.0) for name, values in terms.items()}
        total = torch.stack([values.sum() for values in terms.values()]).sum()
        if self.training:  # NaN is skipped like any step that is not finite
            total = torch.where(self.failed(), torch.nan, total)
        return Losses(total, {name: values.detach() for name, values in terms.items()})

    def bound_terms(self, batch: LatentBatch) -> Terms:
        """Terms of the bound at each token: prior, diffusion, reconstruction."""
        return {
            "diffusion": self.divergence(batch),
            "prior": self.prior(batch),
            "reconstruction": self.reconstruction(batch),
        }

    def divergence(self, batch: LatentBatch) -> Float[Tensor, "rows length"]:
        """An estimate of the sum of the divergences of all T steps, from one step of each row."""
        gamma_s, gamma_t = (batch.gamma_of(self.gammas, t) for t in (batch.noise.s, batch.noise.t))
        prediction = self.self_conditioned(batch.noised(gamma_t), gamma_t, batch)
        error = (batch.codes - self.step_estimate(prediction, batch)).square().sum(-1)
        width = batch.codes.shape[-1]
        per_step = step_divergence(error, width, gamma_s[:, None], gamma_t[:, None], self.variance)
        return batch.by_row(batch.noise.importance) * per_step

    def squared_error(
        self, batch: LatentBatch, gamma: Float[Tensor, "rows"]
    ) -> Float[Tensor, "rows length"]:
        """|E[x] - estimate|^2 of each token at a noise level of each row."""
        estimate = self.estimate(self.self_conditioned(batch.noised(gamma), gamma, batch))
        return (batch.codes - estimate).square().sum(-1)

    def prior(self, batch: LatentBatch) -> Float[Tensor, "rows length"]:
        """KL(q(z_1 | x) || N(0, 1)) of each token."""
        return prior_divergence(batch.codes, self.gammas.gamma(batch.codes.new_ones(1))[0])

    def reconstruction(self, batch: LatentBatch) -> Float[Tensor, "rows length"]:
        """-log p(x | z_0) of each token."""
        gamma_0 = self.gammas.gamma(batch.codes.new_zeros(len(batch.x)))
        z_0 = batch.noised(gamma_0, site=1)
        read = self.read(z_0, gamma_0)
        if read is None:
            read = self.log_tokens(self.self_conditioned(z_0, gamma_0, batch))
        return -chosen(read, batch.x)

    def failed(self) -> Bool[Tensor, ""]:
        """True if the codes have collapsed or exploded, or the schedule has; it stays on the device."""
        return torch.stack([*faults(self.codes, self.gammas).values()]).any()

    def diagnosis(self) -> str:
        return "; ".join(
            REASONS[name] for name, bad in faults(self.codes, self.gammas).items() if bad
        )
