"""SSD-LM (arXiv 2210.17432): diffusion on the simplex of tokens, block by block after a context."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from unmask.diffusion.gaussian import CosineSignal, GaussianNoise
from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.errors import UnmaskError
from unmask.methods.latent.latent_diffusion import (
    FixedCodes,
    LatentBatch,
    LatentDenoiser,
    LatentDiffusion,
    Outputs,
    Terms,
    TokenLogProbs,
    Vectors,
    chosen,
)
from unmask.methods.method import METHODS, Losses
from unmask.randomness import RowStream
from unmask.shapes import Tokens, Valid


@dataclass(frozen=True)
class BlockNoise(GaussianNoise):
    """Noise of one block of each row; its importance is the number of targets per target of the block."""

    block: Int64[Tensor, "rows"]  # first column


@METHODS.register("ssd_lm")
class SSDLM(LatentDiffusion):
    """Diffusion of simplex codes in blocks after a context, trained with a cross-entropy."""

    certificate = "none"
    capabilities = replace(LatentDiffusion.capabilities, infill=False, blocks=True, score=False)
    noise_schedule = "cosine"
    loss_weight = "cross-entropy"
    sampler = "simplex_blocks"

    @dataclass(frozen=True)
    class Config:
        block: int = 25  # tokens of a block
        scale: float = (
            5.0  # K of the codes K (2 one-hot - 1); a larger vocabulary needs a larger one
        )

        def __post_init__(self) -> None:
            if self.block < 1:
                raise UnmaskError(f"block must be 1 or more, not {self.block}")
            if not self.scale > 0:
                raise UnmaskError(f"scale must be positive, not {self.scale}")

    def gamma_schedule(self) -> CosineSignal:
        return CosineSignal()

    def build_codes(self) -> FixedCodes:
        """Codes 2 one-hot - 1. K scales codes and noise alike, so only the network's input needs it."""
        return FixedCodes(2 * torch.eye(self.vocabulary.size) - 1)

    def adapter(self, width: int, features: int) -> nn.Module:
        return nn.Linear(width, features)

    def clean_inputs(self, x: Tokens) -> Float[Tensor, "rows length vocabulary"]:
        """One-hot vectors of tokens."""
        return (nn.functional.embedding(x, self.codes) + 1) / 2

    def predict(
        self, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors, valid: Valid | None = None
    ) -> Outputs:
        """log p(token | z_t, context). The network reads softmax(K z), and one-hot vectors of the context."""
        context = (guess != 0).any(-1, keepdim=True)
        simplex = torch.where(context, (guess + 1) / 2, (self.config.scale * z).softmax(-1))
        logits = self.run_trunk(simplex, gamma, valid, z.dtype)
        return subs_log_probs(logits, self.vocabulary.mask_id)

    def estimate(self, prediction: Outputs) -> Vectors:
        return 2 * prediction.exp() - 1

    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        return prediction

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> BlockNoise:
        """Uniform times, and a block of each row that begins at a random target."""
        parts = vars(self.uniform_noise(stream))
        count, rank = valid.sum(1), valid.cumsum(1)
        first = (stream.uniform("block", 1)[:, 0] * count).long() + 1
        block = (rank == first[:, None]).int().argmax(1)
        targets = (self._window(valid, block) & valid).sum(1)
        importance = count.double() / targets.clamp(min=1)
        return BlockNoise(**{**parts, "importance": importance}, block=block)

    def nll(
        self,
        x: Tokens,
        valid: Valid,
        noise: RowNoise | None,
        full_bound: bool = False,
        given: Valid | None = None,
    ) -> Losses:
        """The loss at the tokens of a block. The network sees the tokens before it, and none behind it."""
        assert isinstance(noise, BlockNoise)
        columns, block = torch.arange(x.shape[1]), noise.block[:, None]
        context = (columns < block).to(valid.device)
        seen = valid & (columns < block + self.config.block).to(valid.device)
        return super().nll(
            x, seen, noise, full_bound, context if given is None else given | context
        )

    def training_terms(self, batch: LatentBatch) -> Terms:
        """Cross-entropy at the tokens of the block."""
        gamma = batch.gamma_of(self.gammas, batch.noise.t)
        prediction = self.predict(self.noised(batch, gamma), gamma, batch.guess, batch.valid)
        return {"diffusion": -batch.by_row(batch.noise.importance) * chosen(prediction, batch.x)}

    def bound_terms(self, batch: LatentBatch) -> Terms:
        """The training loss: this method has no bound."""
        return self.training_terms(batch)

    def denoiser(self) -> "BlockDenoiser":
        return BlockDenoiser(self)

    def _window(self, valid: Valid, block: Int64[Tensor, "rows"]) -> Valid:
        columns = torch.arange(valid.shape[1])
        return (columns >= block[:, None]) & (columns < block[:, None] + self.config.block)


@dataclass(frozen=True)
class BlockDenoiser(LatentDenoiser):
    """A denoiser of vectors with the length of a block."""

    @property
    def block(self) -> int:
        """Number of tokens of a block."""
        return int(self.method.config.block)
