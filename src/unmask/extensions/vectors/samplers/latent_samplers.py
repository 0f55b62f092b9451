"""Samplers of methods that diffuse vectors: steps from noise to code vectors, then tokens.

Known tokens are noised like the others at each step, and the network gets their codes as a certain guess.
The gradient of their log-probabilities moves the estimates of the others.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.cancellation import raise_if_cancelled
from unmask.diffusion.denoiser import Denoiser
from unmask.extensions.vectors.diffusion.gaussian import ddim_step, noised, posterior_step
from unmask.extensions.vectors.diffusion.vector_denoiser import BlockwiseDenoiser, VectorDenoiser
from unmask.options import option
from unmask.randomness import keyed_normals, row_keys
from unmask.runtime.device import to_device
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.time_grid import check_steps
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import At, Places

Vectors = Float[Tensor, "rows length width"]
Level = Float[Tensor, "rows 1 1"]


class _Latents:
    """Vectors of the rows during sampling, with the codes of their known tokens."""

    def __init__(self, denoiser: VectorDenoiser, canvas: Canvas, task: SamplingTask) -> None:
        self.denoiser, codes = denoiser, denoiser.codes
        self.known = (~canvas.open)[..., None]
        self.tokens = canvas.tokens
        self.informative = denoiser.informative(canvas.tokens, ~canvas.open)
        self.conditioned = bool(self.informative.any())
        self.fixed = torch.where(self.known, codes[canvas.tokens], 0.0)
        self.guess = self.fixed
        self._keys = to_device(row_keys(task.seeds, "latent"), codes.device)
        self.z = self.normal(0)

    def normal(self, site: int) -> Vectors:
        """Normal numbers for one use."""
        _, length, width = self.fixed.shape
        return keyed_normals(self._keys, site, length, width, self.fixed.dtype)

    def gamma(self, t: float) -> Float[Tensor, "rows"]:
        """The noise level at a time, for each row."""
        return self.denoiser.gamma(torch.full((len(self.fixed),), t, dtype=torch.float64))

    def replace_known(self, gamma: Level, site: int) -> None:
        """Noises known tokens to the level of the others."""
        self.z = torch.where(self.known, noised(self.fixed, gamma, self.normal(site)), self.z)

    def condition(self, estimate: Vectors, gamma: Float[Tensor, "rows"]) -> Vectors:
        """The estimate given the known tokens."""
        parts = (self.z, gamma, self.guess, self.tokens, self.informative)
        return self.denoiser.condition(estimate, *parts)

    def remember(self, estimate: Vectors) -> None:
        """Keeps an estimate for the next call, if the network reads it."""
        if self.denoiser.remembers:
            self.guess = torch.where(self.known, self.fixed, estimate)


@dataclass(frozen=True)
class _LatentSampler(Sampler):
    """Steps of equal length in time, from noise at t = 1 to code vectors at t = 0."""

    states = "vectors"
    steps: int = option(256, help="denoising steps")

    def __post_init__(self) -> None:
        check_steps(self.steps)

    @abstractmethod
    def step(
        self, z: Vectors, estimate: Vectors, gamma_s: Level, gamma_t: Level, noise: Vectors
    ) -> Vectors:
        """z_s from z_t and the estimate of the code vectors."""

    def clamped(self, estimate: Vectors, codes: Float[Tensor, "vocabulary width"]) -> Vectors:
        """The estimate that a step uses."""
        return estimate

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text: the likeliest reading of the estimate, and at the end of z_0."""
        state = SamplerState(denoiser, canvas, task)
        vectors = cast(VectorDenoiser, denoiser)
        latents = _Latents(vectors, canvas, task)
        rows = torch.arange(len(canvas.tokens))
        at, uniforms = _at(canvas.open), state.uniforms("token")
        for step in range(self.steps):
            raise_if_cancelled()
            t, s = 1 - step / self.steps, 1 - (step + 1) / self.steps
            gamma_t, gamma_s = latents.gamma(t), latents.gamma(s)
            levels = gamma_s[:, None, None], gamma_t[:, None, None]
            latents.replace_known(levels[1], 2 * step + 1)
            prediction = vectors.predict(latents.z, gamma_t, latents.guess)
            state.count(rows, torch.full((len(rows),), t, dtype=torch.float64))
            estimate = vectors.estimate(prediction)
            if latents.conditioned:
                estimate = latents.condition(estimate, gamma_t)
                state.calls += 1
            estimate = vectors.steer(estimate, latents.z, gamma_t, latents.guess)
            estimate = self.clamped(estimate, vectors.codes)
            latents.remember(estimate)
            noise = latents.normal(2 * step + 2)
            latents.z = self.step(latents.z, estimate, *levels, noise)
            if task.watched and s > 0:
                state.hide(canvas.open)
                state.write(state.seen(at, vectors.log_tokens(prediction)[at]), uniforms)
                yield state.frame()
        yield self._last(state, vectors, latents, uniforms)

    def _last(
        self, state: SamplerState, vectors: VectorDenoiser, latents: _Latents, uniforms: Tensor
    ) -> Frame:
        """The tokens read off z_0."""
        gamma_0, at = latents.gamma(0.0), _at(state.canvas.open)
        read = vectors.read(latents.z, gamma_0)
        if read is None:
            latents.replace_known(gamma_0[:, None, None], 2 * self.steps + 1)
            read = vectors.log_tokens(vectors.predict(latents.z, gamma_0, latents.guess))
            rows = torch.arange(len(latents.z))
            state.count(rows, torch.zeros(len(rows), dtype=torch.float64))
        state.hide(state.canvas.open)
        state.write(state.seen(at, read[at]), uniforms)
        return state.frame()


@SAMPLERS.register("latent_ancestral")
@dataclass(frozen=True)
class LatentAncestral(_LatentSampler):
    """The reverse process of Gaussian diffusion, in float64: z_s is drawn given z_t and the estimate."""

    def step(
        self, z: Vectors, estimate: Vectors, gamma_s: Level, gamma_t: Level, noise: Vectors
    ) -> Vectors:
        return posterior_step(z, estimate, gamma_s, gamma_t, noise)


@SAMPLERS.register("latent_clamped")
@dataclass(frozen=True)
class LatentClamped(LatentAncestral):
    """The reverse process with Diffusion-LM's clamping: each step uses the code nearest to the estimate."""

    def clamped(self, estimate: Vectors, codes: Float[Tensor, "vocabulary width"]) -> Vectors:
        near = estimate @ codes.t() - codes.square().sum(-1) / 2
        return codes[near.argmax(-1)]


@SAMPLERS.register("latent_ddim")
@dataclass(frozen=True)
class LatentDDIM(_LatentSampler):
    """Deterministic steps (DDIM): the first noise determines the text."""

    def step(
        self, z: Vectors, estimate: Vectors, gamma_s: Level, gamma_t: Level, noise: Vectors
    ) -> Vectors:
        return ddim_step(z, estimate, gamma_s, gamma_t)


@SAMPLERS.register("simplex_blocks")
@dataclass(frozen=True)
class SimplexBlocks(Sampler):
    """SSD-LM's sampler: blocks from left to right, each step with drawn tokens and fresh noise."""

    states = "blocks"
    steps: int = option(256, help="denoising steps of a block")

    def __post_init__(self) -> None:
        check_steps(self.steps)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text after each step of a block."""
        state = SamplerState(denoiser, canvas, task)
        vectors = cast(BlockwiseDenoiser, denoiser)
        length = canvas.tokens.shape[1]
        for start in range(0, length, vectors.block):  # the same blocks in every batch
            stop = min(start + vectors.block, length)
            columns = torch.arange(length, device=canvas.tokens.device)
            places = canvas.open & (columns >= start) & (columns < stop)
            if places.any():
                yield from self._block(state, vectors, places, stop, start)

    def _block(
        self,
        state: SamplerState,
        vectors: BlockwiseDenoiser,
        places: Places,
        stop: int,
        start: int,
    ) -> Iterator[Frame]:
        """The frames of one block; the network reads the columns before `stop`."""
        codes, places = vectors.codes, places[:, :stop]
        rows = places.any(1).nonzero()[:, 0].cpu()
        context = (~places)[..., None]
        fixed = torch.where(context, codes[state.z[:, :stop]], 0.0)
        keys = to_device(row_keys(state.task.seeds, f"block {start}"), codes.device)
        at = _at(places)
        width = fixed.shape[2]
        z = keyed_normals(keys, 0, stop, width, fixed.dtype)
        for step in range(self.steps):
            t, s = (torch.full((len(z),), 1 - i / self.steps).double() for i in (step, step + 1))
            prediction = vectors.predict(z, vectors.gamma(t), fixed)
            state.count(rows, t[rows])
            whole = torch.zeros_like(state.canvas.open)
            whole[:, :stop] = places
            state.hide(whole)
            uniforms = state.uniforms(f"block {start}", step)
            state.write(state.seen(at, vectors.log_tokens(prediction)[at]), uniforms)
            noise = keyed_normals(keys, step + 1, stop, width, fixed.dtype)
            z = noised(codes[state.z[:, :stop]], vectors.gamma(s)[:, None, None], noise)
            yield state.frame()


def _at(places: Places) -> At:
    """Rows and columns of chosen positions."""
    rows, columns = places.nonzero(as_tuple=True)
    return rows, columns
