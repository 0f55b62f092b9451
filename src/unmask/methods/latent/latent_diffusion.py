"""Gaussian diffusion of code vectors: noise, bound and network of the methods that configure it.

A token x has a code vector E[x]. The forward process is z_t = alpha E[x] + sigma noise. The bound has three
terms: the prior at t = 1, the divergences of the reverse steps, and the tokens read off z_0.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.backbones.backbone import Backbone
from unmask.backbones.layers.transformer_block import zero_linear
from unmask.diffusion.gaussian import (
    GammaSchedule,
    GaussianNoise,
    Variance,
    noised,
    prior_divergence,
    signal,
    step_divergence,
)
from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.errors import UnmaskError
from unmask.methods.method import Capabilities, Losses, Method, padding, targets
from unmask.randomness import RowStream, stream_keys
from unmask.runtime.device import to_device
from unmask.shapes import At, LogProbabilities, Times, Tokens, Valid
from unmask.vocabulary import Vocabulary

Vectors = Float[Tensor, "rows length width"]
Outputs = Float[Tensor, "rows length outputs"]  # of the head
TokenLogProbs = Float[Tensor, "rows length vocabulary"]
Terms = dict[str, Float[Tensor, "rows length"]]
GUESS_SIZES = 4  # numbers of rows of a self-conditioning pass, for compiled networks
LARGEST_GAMMA = 30.0  # SNR 1e-13: a schedule that reaches it has exploded
LARGEST_CODE = 1e4  # norm
SMALLEST_SPREAD = 1e-4  # of the codes, relative to their norm


class FixedCodes(nn.Module):
    """Code vectors that are not learned, and not saved with the weights."""

    weight: Tensor

    def __init__(self, codes: Float[Tensor, "vocabulary width"]) -> None:
        super().__init__()
        self.register_buffer("weight", codes, persistent=False)


@dataclass(frozen=True)
class LatentBatch:
    """Rows of a loss on the device, with the randomness of each row."""

    x: Tokens
    codes: Vectors
    noise: GaussianNoise  # on the CPU or on the device
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


class LatentDiffusion(Method):
    """Gaussian diffusion of code vectors; a method chooses codes, schedule, head and training loss."""

    certificate: ClassVar[Literal["exact", "upper", "none"]] = "upper"
    capabilities = Capabilities(latent=True, noise_level=True)
    sampler = "latent_ancestral"
    steps: int = 0  # T of the bound; 0 is continuous time
    variance: Variance = "posterior"  # of the steps of the bound
    self_conditioning: float = (
        0.0  # share of the training rows whose network input has a first estimate
    )

    def __init__(
        self,
        config: Any,
        backbone: Backbone,
        vocabulary: Vocabulary,
        schedule: Schedule,
        time_sampler: TimeSampler,
    ) -> None:
        super().__init__(config, backbone, vocabulary, schedule, time_sampler)
        self.steps = getattr(config, "steps", 0)
        self.self_conditioning = getattr(config, "self_conditioning", 0.0)
        self.gammas = self.gamma_schedule()
        self.codebook = self.build_codes()
        width = self.codes.shape[1]
        backbone.embedding = self.adapter(width, backbone.width)
        backbone.head = zero_linear(backbone.width, self.outputs(width))

    # Choices of a method

    @abstractmethod
    def gamma_schedule(self) -> GammaSchedule:
        """The noise schedule; a learned one is a module."""

    @abstractmethod
    def build_codes(self) -> nn.Module:
        """The code vectors, as the `weight` of a module; `FixedCodes` if they are not learned."""

    @property
    def codes(self) -> Float[Tensor, "vocabulary width"]:
        """The code vector of each token."""
        codes = self.codebook.weight
        assert isinstance(codes, Tensor)
        return codes

    def adapter(self, width: int, features: int) -> nn.Module:
        """The first layer of the network: vectors and a guess -> features."""
        adapter = nn.Linear(2 * width, features)
        with torch.no_grad():  # a network that never sees a guess must ignore that input
            adapter.weight[:, width:] = 0.0
        return adapter

    def outputs(self, width: int) -> int:
        """Number of outputs of the head: by default an estimate of the code vector."""
        return width

    def predict(
        self,
        z: Vectors,
        gamma: Float[Tensor, "rows"],
        guess: Vectors,
        valid: Valid | None = None,
    ) -> Outputs:
        """The network's prediction from z_t.

        Args:
            z: Vectors at the noise levels.
            gamma: Noise level of each row.
            guess: Estimate of the code vectors, 0 where there is none. At known tokens it is their code.
            valid: False at padding.

        Returns:
            The prediction, which `estimate` and `log_tokens` read.
        """
        return self.network(z, gamma, guess, valid)

    def estimate(self, prediction: Outputs) -> Vectors:
        """The estimate of the code vectors in a prediction."""
        return prediction

    def step_estimate(self, prediction: Outputs, batch: LatentBatch) -> Vectors:
        """The estimate of the code vectors in the reverse steps of the bound: by default `estimate`."""
        return self.estimate(prediction)

    @abstractmethod
    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        """log p(token | z_t) in a prediction; MASK has probability 0."""

    def read(self, z_0: Vectors, gamma_0: Float[Tensor, "rows"]) -> TokenLogProbs | None:
        """log p(token | z_0) without the network: the tokens of sampling, and the last term of the bound.

        None if the network reads z_0 as it reads any z_t.
        """
        return None

    @abstractmethod
    def training_terms(self, batch: LatentBatch) -> Terms:
        """Terms of the training loss at each token."""

    # The network

    def clean_inputs(self, x: Tokens) -> Float[Tensor, "rows length inputs"]:
        """The codes of tokens in place of z_t and of the guess, as at gamma = -infinity."""
        codes = nn.functional.embedding(x, self.codes / self.codes.square().mean().sqrt())
        return torch.cat([codes, codes], -1)

    def network(
        self, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors, valid: Valid | None
    ) -> Outputs:
        """Outputs of the head for vectors and a guess, both scaled to a variance of about 1."""
        size = self.codes.detach().square().mean().to(z.dtype)
        alpha, sigma = signal(_by_row(gamma))
        scaled = [z / (alpha**2 * size + sigma**2).sqrt(), guess / size.sqrt()]
        return self.run_trunk(torch.cat(scaled, -1), gamma, valid, z.dtype)

    def run_trunk(
        self,
        inputs: Float[Tensor, "rows length inputs"],
        gamma: Float[Tensor, "rows"],
        valid: Valid | None,
        dtype: torch.dtype,
    ) -> Outputs:
        """Adapter, trunk and head; the outputs have the given dtype."""
        own = self.backbone.head.weight.dtype
        with self.arithmetic():
            h = self.backbone.features(inputs.to(own), gamma.to(own), valid=valid)
            return self.backbone.logits(h).to(dtype)

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
    ) -> GaussianNoise:
        """Noise of the bound. In T steps, a step has a probability proportional to its range of gamma."""
        u = (stream.strata() + stream.uniform("time", 1)[:, 0]) / stream.total
        if not self.steps:
            return self._noise(stream, u, u, torch.ones_like(u), guessed=1.0)
        grid = torch.arange(self.steps + 1, dtype=torch.float64) / self.steps
        gamma = self.gammas.gamma(grid)
        share = (gamma - gamma[0]) / (gamma[-1] - gamma[0])
        step = torch.searchsorted(share[1:], u, right=True).clamp(max=self.steps - 1)
        chance = share[step + 1] - share[step]
        return self._noise(stream, grid[step + 1], grid[step], 1 / chance, guessed=1.0)

    def uniform_noise(self, stream: RowStream) -> GaussianNoise:
        """Noise with uniform times, for training losses that weigh all times alike."""
        u = (stream.strata() + stream.uniform("time", 1)[:, 0]) / stream.total
        t = torch.ceil((1 - u) * self.steps) / self.steps if self.steps else u
        s = t - 1 / self.steps if self.steps else t
        return self._noise(stream, t, s, torch.ones_like(u), self.self_conditioning)

    def _noise(
        self, stream: RowStream, t: Tensor, s: Tensor, importance: Tensor, guessed: float
    ) -> GaussianNoise:
        share = guessed if self.self_conditioning else 0.0
        chosen = stream.uniform("guess", 1)[:, 0] < share
        start, keys = torch.zeros_like(chosen), stream_keys(stream, "gaussian")
        return GaussianNoise(t, s, importance, start, chosen, keys)

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
        assert isinstance(noise, GaussianNoise)
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
        if type(noise) is not GaussianNoise:
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
        noise = GaussianNoise(
            **{field.name: tensors[field.name] for field in fields(GaussianNoise)}
        )
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
        noise: GaussianNoise,
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
        return noised(batch.codes, _by_row(gamma), batch.noise.normal(0, batch.codes))

    def prior(self, batch: LatentBatch) -> Float[Tensor, "rows length"]:
        """KL(q(z_1 | x) || N(0, 1)) of each token."""
        return prior_divergence(batch.codes, self.gammas.gamma(batch.codes.new_ones(1))[0])

    def reconstruction(self, batch: LatentBatch) -> Float[Tensor, "rows length"]:
        """-log p(x | z_0) of each token."""
        gamma_0 = self.gammas.gamma(batch.codes.new_zeros(len(batch.x)))
        z_0 = noised(batch.codes, _by_row(gamma_0), batch.noise.normal(1, batch.codes))
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

    # Sampling

    def denoiser(self) -> "LatentDenoiser":
        return LatentDenoiser(self)


@dataclass(frozen=True)
class LatentDenoiser:
    """The method as samplers of vectors call it; as a function, it predicts masked tokens of a text."""

    method: LatentDiffusion

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """log p(token) at chosen positions, where masks have no signal and other tokens are known."""
        codes = self.codes
        known = (z_t != self.method.vocabulary.mask_id)[..., None]
        guess = torch.where(known, codes[z_t], 0.0)
        gamma = self.gamma(torch.ones(len(z_t), dtype=torch.float64)).to(codes.dtype)
        alpha, _ = signal(_by_row(gamma))
        return self.log_tokens(self.predict(alpha * guess, gamma, guess))[at].float()

    @property
    def codes(self) -> Float[Tensor, "vocabulary width"]:
        """The code vector of each token, in the precision of the sampler."""
        codes = self.method.codes.detach()
        # rounding would add up over thousands of steps; Apple's GPUs have no float64
        return codes if codes.device.type == "mps" else codes.double()

    @property
    def remembers(self) -> bool:
        """True if the network reads its last estimate."""
        return self.method.self_conditioning > 0

    def gamma(self, t: Times) -> Float[Tensor, "rows"]:
        """The noise level at each time, on the device."""
        codes = self.codes
        return self.method.gammas.gamma(to_device(t, codes.device, codes.dtype)).detach()

    def predict(
        self, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors, valid: Valid | None = None
    ) -> Outputs:
        """The network's prediction from z_t."""
        return self.method.predict(z, gamma, guess, valid)

    def estimate(self, prediction: Outputs) -> Vectors:
        """The estimate of the code vectors in a prediction."""
        return self.method.estimate(prediction)

    def informative(self, tokens: Tokens, known: Valid) -> Valid:
        """True at known tokens other than BOS, EOS and padding, which begin and end every text."""
        v = self.method.vocabulary
        special = [i for i in (v.bos_id, v.eos_id, v.pad_id) if i is not None]
        return known & ~torch.isin(tokens, tokens.new_tensor(special))

    def condition(
        self,
        estimate: Vectors,
        z: Vectors,
        gamma: Float[Tensor, "rows"],
        guess: Vectors,
        tokens: Tokens,
        known: Valid,
    ) -> Vectors:
        """The estimate given known tokens, by the gradient of their log-probabilities.

        A network that trained with given tokens is certain of them, so its gradient is 0. The sum over
        tokens is exact for one known token, or if known tokens are independent given z_t.
        """

        def log_p(prediction: Outputs) -> Tensor:
            return chosen(self.log_tokens(prediction), tokens.clone()).where(known.clone(), 0.0)

        return self.moved(estimate, z, gamma, guess, log_p)

    def moved(
        self,
        estimate: Vectors,
        z: Vectors,
        gamma: Float[Tensor, "rows"],
        guess: Vectors,
        log_p: Callable[[Outputs], Tensor],
        weight: float = 1.0,
    ) -> Vectors:
        """The estimate after Bayes' rule, which adds weight * gradient of log p to the score of z_t.

        The estimate of the codes moves by sigma^2 / alpha times that.
        """
        # samplers run in inference mode, whose tensors carry no gradient: hence the clones
        with torch.inference_mode(False), torch.enable_grad():
            inputs = z.clone().requires_grad_()
            prediction = self.predict(inputs, gamma.clone(), guess.clone())
            (gradient,) = torch.autograd.grad(log_p(prediction).sum(), inputs)
        alpha, sigma = signal(_by_row(gamma))
        return estimate + weight * sigma**2 / alpha * gradient

    def steer(
        self, estimate: Vectors, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors
    ) -> Vectors:
        """The estimate after guidance; this denoiser has none."""
        return estimate

    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        """log p(token | z_t) in a prediction."""
        return self.method.log_tokens(prediction)

    def read(self, z_0: Vectors, gamma_0: Float[Tensor, "rows"]) -> TokenLogProbs | None:
        """log p(token | z_0) without the network; None if the network reads z_0 as it reads any z_t."""
        return self.method.read(z_0, gamma_0)


def chosen(log_probs: TokenLogProbs, x: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length"]:
    """The log-probability of each token."""
    return log_probs.gather(-1, x[..., None])[..., 0]


def full_precision(like: Tensor) -> AbstractContextManager[None]:
    """A context without autocast: products of codes and vectors lose too much in bfloat16."""
    return torch.autocast(like.device.type, enabled=False)


def check_share(name: str, value: float) -> None:
    """Raises an error if a share is not in [0, 1]."""
    if not 0 <= value <= 1:
        raise UnmaskError(f"{name} must lie in [0, 1], not {value}")


def _by_row(gamma: Float[Tensor, "rows"]) -> Float[Tensor, "rows 1 1"]:
    """A value of each row, as it multiplies vectors."""
    return gamma[:, None, None]
