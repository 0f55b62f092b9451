"""MDLM in plain torch: eager, adaLN unfolded, logits of every token, torch's cross-entropy.

It has the same parameters and mathematics as the package's form, without its optimisations. `curve.py` compares the
two.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.dit import DiT
from unmask.backbones.layers.dropout import dropout
from unmask.diffusion.nelbo import continuous_weight
from unmask.diffusion.time_sampler import Noise, RowNoise
from unmask.methods.mdlm import MDLM
from unmask.methods.method import Losses
from unmask.shapes import Batch, Tensors
from unmask.training.ema import decay_at
from unmask.training.optimizer import learning_rate
from unmask.training.training_config import TrainingConfig


class PlainMDLM(MDLM):
    """MDLM with a dense loss. Dropout has the package's masks, which are functions of (row's key, site, position)."""

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        assert isinstance(noise, Noise) and not (full_bound and noise.unstarted)
        assert batch.given is None
        weight = continuous_weight(self.schedule, noise.t) * noise.importance
        return {"x": batch.x, "masked": noise.masked, "weight": weight.float()}

    def loss_of(self, tensors: Tensors) -> Losses:
        """-alpha' / (1 - alpha) · -log <x_theta, x> at masked tokens, with logits at every token."""
        x, masked = tensors["x"], tensors["masked"]
        z_t = torch.where(masked, self.vocabulary.mask_id, x)
        h = features(self.backbone, z_t, self.backbone.keys(z_t))
        logits = self.backbone.head(h)
        ids = torch.arange(logits.shape[-1], device=x.device)
        logits = logits.masked_fill(ids == self.vocabulary.mask_id, -torch.inf)
        nll = F.cross_entropy(logits.flatten(0, 1), x.flatten(), reduction="none").view_as(x)
        values = nll * masked * tensors["weight"][:, None]
        return Losses(values.sum(), {"diffusion": values.detach()})


def features(net: DiT, tokens: Tensor, keys: Tensor | None) -> Tensor:
    """The transformer, block by block. Without time conditioning its condition is sigma = 0."""
    waves = torch.cat([torch.ones(1, 128), torch.zeros(1, 128)], 1).to(
        tokens.device
    )  # cos 0, sin 0
    c = F.silu(net.noise_level.mlp(waves))
    x = net.embedding(tokens)
    for layer, block in enumerate(net.blocks):
        parts = block.modulation(c).chunk(6, -1)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = parts
        h = block.attention_norm(x) * (1 + scale) + shift
        x = x + gate * dropout(attention(block.attention, h), net.config.dropout, keys, 2 * layer)
        h = block.mlp_norm(x) * (1 + mlp_scale) + mlp_shift
        x = x + mlp_gate * dropout(block.mlp(h), net.config.dropout, keys, 2 * layer + 1)
    shift, scale = net.modulation(c).chunk(2, -1)
    return net.norm(x) * (1 + scale) + shift


def attention(layer: nn.Module, h: Tensor) -> Tensor:
    """Softmax attention with rotary positions. All scores are kept in memory."""
    rows, length, width = h.shape
    qkv = layer.qkv(h).view(rows, length, 3, layer.heads, width // layer.heads)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    q, k = rotated(q), rotated(k)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    y = scores.softmax(-1).to(v.dtype) @ v
    return layer.out(y.transpose(1, 2).reshape(rows, length, width))


def rotated(x: Tensor) -> Tensor:
    """Rotary positions with base 10,000. The two halves of each head are rotated as pairs."""
    half = x.shape[-1] // 2
    frequencies = 10_000.0 ** -(torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * frequencies
    a, b = x.float().chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


class PlainOptimizer:
    """Clipping, AdamW and the average of the weights, one tensor after the other."""

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        self.config = config
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.average = [p.detach().clone() for p in self.parameters]
        self.adamw = torch.optim.AdamW(
            self.parameters, config.lr, config.betas, config.eps, 0.0, foreach=False, fused=False
        )

    def step(self, step: int) -> float:
        """Makes update number `step`, counted from 0. Returns the norm of the gradient."""
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.clip, foreach=False)
        for group in self.adamw.param_groups:
            group["lr"] = learning_rate(step, self.config)
        self.adamw.step()
        self.adamw.zero_grad()
        kept = decay_at(step + 1, self.config.ema)
        with torch.no_grad():
            for average, weight in zip(self.average, self.parameters, strict=True):
                average.mul_(kept).add_(weight, alpha=1 - kept)
        return norm.item()

    @torch.no_grad()
    def use_average(self) -> None:
        """Replaces the model's weights by their averages."""
        for average, weight in zip(self.average, self.parameters, strict=True):
            weight.copy_(average)
