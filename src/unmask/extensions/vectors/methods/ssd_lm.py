"""SSD-LM (arXiv 2210.17432): diffusion on the simplex of tokens, block by block after a context."""

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from unmask.diffusion.parameterization import subs_log_probs
from unmask.diffusion.time_sampler import RowNoise, TimeSampler
from unmask.extensions.vectors.diffusion.gaussian import (
    CosineSignal,
    GaussianNoise,
    noised,
    uniform_times,
)
from unmask.extensions.vectors.methods.vector_method import (
    FixedCodes,
    LatentDenoiser,
    Outputs,
    TokenLogProbs,
    VectorMethod,
    Vectors,
)
from unmask.methods.compute.chunked_loss import projection_loss
from unmask.methods.compute.token_tensors import spread
from unmask.methods.masked_diffusion import cross_entropy
from unmask.methods.method import METHODS, Losses
from unmask.options import Checked, option
from unmask.randomness import RowStream, stream_keys
from unmask.shapes import Batch, Tensors, Tokens, Valid


@dataclass(frozen=True)
class BlockNoise(GaussianNoise):
    """Noise of one block of each row; its importance is the number of targets per target of the block."""

    block: Int64[Tensor, "rows"]  # first column


@METHODS.register("ssd_lm")
class SSDLM(VectorMethod):
    """Diffusion of simplex codes in blocks after a context, trained with a cross-entropy."""

    certificate = "none"
    capabilities = replace(VectorMethod.capabilities, infill=False, states="blocks", score=False)
    noise_schedule = "cosine"
    loss_weight = "cross-entropy"
    sampler = "simplex_blocks"

    @dataclass(frozen=True)
    class Config(Checked):
        block: int = option(25, ge=1)  # tokens of a block
        # K of the codes K (2 one-hot - 1); a larger vocabulary needs a larger one
        scale: float = option(5.0, gt=0)

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
        logits = self.run_trunk(self._simplex(z, guess, context), gamma, valid, z.dtype)
        return subs_log_probs(logits, self.vocabulary.mask_id)

    def _simplex(self, z: Vectors, codes: Vectors, known: Bool[Tensor, "rows length 1"]) -> Vectors:
        """softmax(K z), and one-hot vectors of known tokens."""
        return torch.where(known, (codes + 1) / 2, (self.config.scale * z).softmax(-1))

    def estimate(self, prediction: Outputs) -> Vectors:
        return 2 * prediction.exp() - 1

    def log_tokens(self, prediction: Outputs) -> TokenLogProbs:
        return prediction

    def noise(
        self, stream: RowStream, valid: Valid, time_sampler: TimeSampler | None = None
    ) -> BlockNoise:
        """Uniform times, and a block of each row that begins at a random target."""
        count, rank = valid.sum(1), valid.cumsum(1)
        first = (stream.uniform("block", 1)[:, 0] * count).long() + 1
        block = (rank == first[:, None]).int().argmax(1)
        columns = torch.arange(valid.shape[1])
        window = (columns >= block[:, None]) & (columns < block[:, None] + self.config.block)
        importance = count.double() / (window & valid).sum(1).clamp(min=1)
        return BlockNoise(uniform_times(stream), importance, stream_keys(stream, "gaussian"), block)

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        """True at tokens that the network sees, at known ones, and at those of the loss, which has no bound."""
        assert isinstance(noise, BlockNoise)
        columns, block = torch.arange(batch.x.shape[1]), noise.block[:, None]
        known = columns < block
        known = known if batch.given is None else batch.given | known
        seen = batch.valid & (columns < block + self.config.block)
        drawn = {"x": batch.x, **vars(noise)}
        return {**drawn, "seen": seen, "known": known, "scored": seen & ~known}

    def loss_of(self, tensors: Tensors) -> Losses:
        """The cross-entropy at the tokens of the blocks. The network sees no token behind a block.

        Vectors [rows, block, vocabulary] are large, so only those of the block are computed.
        """
        noise = BlockNoise(**{field.name: tensors[field.name] for field in fields(BlockNoise)})
        x, seen, known, scored = (tensors[name] for name in ("x", "seen", "known", "scored"))
        (rows, length), vocabulary = x.shape, self.vocabulary.size
        size = min(self.config.block, length)
        first = noise.block.clamp(max=length - size)  # a block at the end begins in its context
        columns = first[:, None] + torch.arange(size, device=x.device)
        at = (columns + length * torch.arange(rows, device=x.device)[:, None]).flatten()
        codes = nn.functional.embedding(x.gather(1, columns), self.codes)
        gamma = self.gammas.gamma(noise.t.to(codes.dtype))
        z = noised(codes, gamma[:, None, None], noise.normal(0, codes, first))
        block = self._simplex(z, codes, known.gather(1, columns)[..., None])
        context = torch.zeros(rows * length, vocabulary, dtype=z.dtype, device=z.device)
        context.scatter_(1, x.view(-1, 1), known.view(-1, 1).to(z.dtype))
        inputs = context.index_copy_(0, at, block.flatten(0, 1)).view(rows, length, -1)
        weight = noise.importance[:, None] * scored.gather(1, columns)
        own = self.backbone.head.weight.dtype
        with self.arithmetic():
            h = self.backbone.features(inputs.to(own), gamma.to(own), valid=seen, at=at)
            total, values = projection_loss(
                *(self.backbone.head, self.vocabulary.mask_id, h, x.flatten()[at][:, None]),
                *(cross_entropy, weight.flatten().to(codes.dtype)),
            )
        return Losses(total, {"diffusion": spread(values, at, x)})

    def denoiser(self) -> "BlockDenoiser":
        return BlockDenoiser(self)


@dataclass(frozen=True)
class BlockDenoiser(LatentDenoiser):
    """A denoiser of vectors with the length of a block."""

    @property
    def block(self) -> int:
        """Number of tokens of a block."""
        return int(self.method.config.block)
