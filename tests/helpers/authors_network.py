"""The authors' networks in plain torch with the authors' weight names,
as a reference for the package's networks.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

HEADS = 4
Weights = dict[str, Tensor]


def authors_sigma(t: Tensor) -> Tensor:
    """The authors' total noise, -log1p(-(1 - eps) t) with eps 1e-3 for any number of steps."""
    return -torch.log1p(-(1 - 1e-3) * t)


def authors_logits(weights: Weights, tokens: Tensor, sigma: Tensor | None = None) -> Tensor:
    """Logits of the authors' DIT; without a sigma those of their AR, which is causal."""
    w = {name.removeprefix("backbone."): tensor for name, tensor in weights.items()}
    x = w["vocab_embed.embedding"][tokens]
    c = None if sigma is None else F.silu(_sigma_map(w, sigma))
    depth = len([name for name in w if name.endswith("norm1.weight")])
    for i in range(depth):
        x = _block({n.removeprefix(f"blocks.{i}."): p for n, p in w.items()}, x, c)
    out = {name.removeprefix("output_layer."): tensor for name, tensor in w.items()}
    shift, scale = _modulation(out, c, 2)
    x = _norm(x, out["norm_final.weight"]) * (1 + scale) + shift
    return x @ out["linear.weight"].T + out["linear.bias"]


def _block(w: Weights, x: Tensor, c: Tensor | None) -> Tensor:
    shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = _modulation(w, c, 6)
    if c is None:
        gate = mlp_gate = torch.ones(1)
    h = _norm(x, w["norm1.weight"]) * (1 + scale) + shift
    x = x + gate * (
        _attention(h @ w["attn_qkv.weight"].T, causal=c is None) @ w["attn_out.weight"].T
    )
    h = _norm(x, w["norm2.weight"]) * (1 + mlp_scale) + mlp_shift
    h = F.gelu(h @ w["mlp.0.weight"].T + w["mlp.0.bias"], approximate="tanh")
    return x + mlp_gate * (h @ w["mlp.2.weight"].T + w["mlp.2.bias"])


def _attention(qkv: Tensor, causal: bool) -> Tensor:
    rows, length, width = qkv.shape
    q, k, v = qkv.view(rows, length, 3, HEADS, width // (3 * HEADS)).permute(2, 0, 3, 1, 4)
    scores = _rotated(q) @ _rotated(k).transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width // 3)


def _rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(x.shape[-2])[:, None] * rates
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _sigma_map(w: Weights, sigma: Tensor) -> Tensor:
    rates = torch.exp(-math.log(10_000) * torch.arange(128) / 128)
    angles = sigma.float()[:, None] * rates
    h = torch.cat([angles.cos(), angles.sin()], -1)
    h = F.silu(h @ w["sigma_map.mlp.0.weight"].T + w["sigma_map.mlp.0.bias"])
    return h @ w["sigma_map.mlp.2.weight"].T + w["sigma_map.mlp.2.bias"]


def _modulation(w: Weights, c: Tensor | None, parts: int) -> tuple[Tensor, ...]:
    """Shifts, scales and gates; the AR has none."""
    if c is None:
        return (torch.zeros(1),) * parts
    found = c @ w["adaLN_modulation.weight"].T + w["adaLN_modulation.bias"]
    return found[:, None].chunk(parts, -1)


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
