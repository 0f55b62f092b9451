"""Gaussian diffusion with a bound: noise, self-conditioning and the terms of the bound.

The bound has three terms: the prior at t = 1, the divergences of the reverse steps, and the tokens read off z_0.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.diffusion.gaussian import (
    GammaSchedule,
    StepNoise,
    Variance,
    noised,
    prior_divergence,
    signal,
    step_divergence,
)
from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.errors import UnmaskError
from unmask.methods.latent.vector_method import (
    Outputs,
    VectorMethod,
    Vectors,
    by_row,
    chosen,
    uniform_times,
)
from unmask.methods.method import Losses, padding, targets
from unmask.randomness import RowStream, stream_keys
from unmask.runtime.device import to_device
from unmask.shapes import Times, Tokens, Valid

Terms = dict[str, Float[Tensor, "rows length"]]
GUESS_SIZES = 4  # numbers of rows of a self-conditioning pass, for compiled networks
LARGEST_GAMMA = 30.0  # SNR 1e-13: a schedule that reaches it has exploded
LARGEST_CODE = 1e4  # norm
SMALLEST_SPREAD = 1e-4  # of the codes, relative to their norm


@dataclass(frozen=True)
class LatentBatch:
    """Rows of a loss on the device, with the randomness of each row."""

    x: Tokens
    codes: Vectors
    noise: StepNoise  # on the CPU or on the device
    guess: Vectors  # codes at given tokens, 0 elsewhere
    known: Bool[Tensor, "rows length 1"]  # True at given tokens
    valid: Valid | None  # False at padding
    scored: Valid  # True at tokens that count in the loss
    drafted: Int[Tensor, "drafts"] | None  # rows of the first pass of self-conditioning

    def gamma_of(self, schedule: GammaSchedule, t: Times) -> Float[Tensor, "rows"]:
        """The noise level at the time of each row."""
        return schedule.gamma(to_device(t, self.codes.device, self.codes.dtype))

    def by_row(self, values: Float[Tensor, "rows"]) -> Float[Tensor, "rows 1"]:
        """Values of the rows, as they multiply values of tokens."""
        return to_device(values, self.codes.device, self.codes.dtype)[:, None]


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
        guessed = to_device(batch.noise.guessed, z.device)[rows, None, None]
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

    @torch.no_grad()
    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> StepNoise:
        """Noise of the bound. In T steps, a step has a probability proportional to its range of gamma."""
        u = uniform_times(stream)
        if not self.steps:
            return self._noise(stream, u, u, torch.ones_like(u), guessed=1.0)
        grid = torch.arange(self.steps + 1, dtype=torch.float64) / self.steps
        gamma = self.gammas.gamma(grid)
        share = (gamma - gamma[0]) / (gamma[-1] - gamma[0])
        step = torch.searchsorted(share[1:], u, right=True).clamp(max=self.steps - 1)
        chance = share[step + 1] - share[step]
        return self._noise(stream, grid[step + 1], grid[step], 1 / chance, guessed=1.0)

    def uniform_noise(self, stream: RowStream) -> StepNoise:
        """Noise with uniform times, for training losses that weigh all times alike."""
        u = uniform_times(stream)
        t = torch.ceil((1 - u) * self.steps) / self.steps if self.steps else u
        s = t - 1 / self.steps if self.steps else t
        return self._noise(stream, t, s, torch.ones_like(u), self.self_conditioning)

    def _noise(
        self, stream: RowStream, t: Tensor, s: Tensor, importance: Tensor, guessed: float
    ) -> StepNoise:
        share = guessed if self.self_conditioning else 0.0
        chosen = stream.uniform("guess", 1)[:, 0] < share
        start, keys = torch.zeros_like(chosen), stream_keys(stream, "gaussian")
        return StepNoise(t, importance, keys, s, start, chosen)

    def nll(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        full_bound: bool = False,
        given: Valid | None = None,
    ) -> Losses:
        """Terms of the bound, or of the training loss.

        Given tokens are noised like the others, and the network also gets their codes as a certain guess.
        """
        assert isinstance(noise, StepNoise)
        drafted, known = self.draft_rows(noise.guessed), given
        drafted, known = (
            None if part is None else to_device(part, x.device) for part in (drafted, known)
        )
        scored, seen = to_device(targets(valid, given), x.device), padding(valid, x.device)
        batch = self._batch(x, noise, known, seen, scored, drafted)
        terms = self.bound_terms(batch) if full_bound else self.training_terms(batch)
        terms = {name: values.where(scored, 0.0) for name, values in terms.items()}
        return Losses(self._total(terms), {name: values.detach() for name, values in terms.items()})

    def loss_tensors(
        self, x: Tokens, valid: Valid, given: Valid | None, stream: RowStream
    ) -> dict[str, Tensor] | None:
        noise = self.training_noise(stream, targets(valid, given))
        if type(noise) is not StepNoise:
            return None  # a method with other noise defines its own tensors
        whole = given is None and bool(valid.all())
        tensors = {
            "x": x,
            **vars(noise),
            "drafted": self.draft_rows(noise.guessed),
            "given": given,
            "valid": None if bool(valid.all()) else valid,
            "scored": None if whole else targets(valid, given),
        }
        return {name: value for name, value in tensors.items() if value is not None}

    def loss_of(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        x = tensors["x"]
        noise = StepNoise(**{field.name: tensors[field.name] for field in fields(StepNoise)})
        given, seen, scored, drafted = (
            tensors.get(name) for name in ("given", "valid", "scored", "drafted")
        )
        if scored is None:
            scored = torch.ones_like(x, dtype=torch.bool)
        terms = self.training_terms(self._batch(x, noise, given, seen, scored, drafted))
        return self._total({name: values.where(scored, 0.0) for name, values in terms.items()})

    def _batch(
        self,
        x: Tokens,
        noise: StepNoise,
        given: Valid | None,
        valid: Valid | None,
        scored: Valid,
        drafted: Int[Tensor, "drafts"] | None,
    ) -> LatentBatch:
        """The batch of a loss, from tensors on the device."""
        known = (torch.zeros_like(x, dtype=torch.bool) if given is None else given)[..., None]
        codes = nn.functional.embedding(x, self.codes)
        guess = torch.where(known, codes.detach(), 0.0)
        return LatentBatch(x, codes, noise, guess, known, valid, scored, drafted)

    def _total(self, terms: Terms) -> Float[Tensor, ""]:
        """The sum of all terms. In training it is NaN if the parameters have failed."""
        total = torch.stack([values.sum() for values in terms.values()]).sum()
        # skipped like any step that is not finite
        return torch.where(self.failed(), torch.nan, total) if self.training else total

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
        prediction = self.self_conditioned(self.noised(batch, gamma_t), gamma_t, batch)
        error = (batch.codes - self.step_estimate(prediction, batch)).square().sum(-1)
        width = batch.codes.shape[-1]
        per_step = step_divergence(error, width, gamma_s[:, None], gamma_t[:, None], self.variance)
        return batch.by_row(batch.noise.importance) * per_step

    def squared_error(
        self, batch: LatentBatch, gamma: Float[Tensor, "rows"]
    ) -> Float[Tensor, "rows length"]:
        """|E[x] - estimate|^2 of each token at a noise level of each row."""
        estimate = self.estimate(self.self_conditioned(self.noised(batch, gamma), gamma, batch))
        return (batch.codes - estimate).square().sum(-1)

    def noised(self, batch: LatentBatch, gamma: Float[Tensor, "rows"]) -> Vectors:
        """z_t of each token at a noise level of each row."""
        return noised(batch.codes, by_row(gamma), batch.noise.normal(0, batch.codes))

    def prior(self, batch: LatentBatch) -> Float[Tensor, "rows length"]:
        """KL(q(z_1 | x) || N(0, 1)) of each token."""
        return prior_divergence(batch.codes, self.gammas.gamma(batch.codes.new_ones(1))[0])

    def reconstruction(self, batch: LatentBatch) -> Float[Tensor, "rows length"]:
        """-log p(x | z_0) of each token."""
        gamma_0 = self.gammas.gamma(batch.codes.new_zeros(len(batch.x)))
        z_0 = noised(batch.codes, by_row(gamma_0), batch.noise.normal(1, batch.codes))
        read = self.read(z_0, gamma_0)
        if read is None:
            read = self.log_tokens(self.self_conditioned(z_0, gamma_0, batch))
        return -chosen(read, batch.x)

    # Health

    def failed(self) -> Bool[Tensor, ""]:
        """True if the codes have collapsed or exploded, or the schedule has; it stays on the device."""
        return torch.stack([*self._faults().values()]).any()

    def diagnosis(self) -> str:
        messages = {
            "collapsed": "the codes of all tokens are equal: lower method.code_lr or training.lr",
            "exploded": "the norm of the codes has exploded: lower method.code_lr or training.lr",
            "schedule": "the noise schedule has left its range: lower training.lr",
        }
        return "; ".join(messages[name] for name, bad in self._faults().items() if bad)

    @torch.no_grad()
    def _faults(self) -> dict[str, Bool[Tensor, ""]]:
        codes = self.codes
        norm = codes.norm(dim=-1).mean()
        spread = (codes - codes.mean(0)).norm(dim=-1).mean()
        ends = self.gammas.gamma(torch.arange(2, dtype=torch.float32, device=codes.device))
        bad = (ends.abs() > LARGEST_GAMMA).any() | (ends[1] <= ends[0])
        return {
            "collapsed": ~(spread > SMALLEST_SPREAD * norm),
            "exploded": ~(norm < LARGEST_CODE),
            "schedule": bad,
        }


def check_share(name: str, value: float) -> None:
    """Raises an error if a share is not in [0, 1]."""
    if not 0 <= value <= 1:
        raise UnmaskError(f"{name} must lie in [0, 1], not {value}")
