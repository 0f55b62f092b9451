"""Mixture of experts in place of an MLP: each token is computed by a few of many SwiGLU networks."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.layers.ops import SwiGLU

ROUTERS = ("softmax", "sigmoid")
_LEAST = 1e-20  # of a sum of weights


@dataclass(frozen=True)
class Routing:
    """The choice of experts for a token, and their weights."""

    experts: int
    active: int  # experts of a token
    router: str = "softmax"  # the scores of the experts
    groups: int = 1  # of experts; a group counts with the sum of its two best scores
    active_groups: int = 1  # groups from which a token's experts are chosen
    biased: bool = False  # True: a bias of each expert counts in the choice and not in the weight
    normalized: bool = True  # True: the weights of a token's experts sum to `scale`
    scale: float = 1.0

    def __call__(
        self, logits: Float[Tensor, "tokens experts"], bias: Float[Tensor, "experts"] | None
    ) -> tuple[Float[Tensor, "tokens active"], Int[Tensor, "tokens active"]]:
        """Weights and numbers of the experts of each token."""
        scores = logits.softmax(-1) if self.router == "softmax" else logits.sigmoid()
        ranked = scores if bias is None else scores + bias
        if self.groups > 1:
            by_group = ranked.unflatten(1, (self.groups, -1))
            best = by_group.topk(2, -1).values.sum(-1).topk(self.active_groups, -1).indices
            kept = torch.zeros_like(by_group[..., 0], dtype=torch.bool).scatter(1, best, True)
            ranked = by_group.masked_fill(~kept[..., None], -torch.inf).flatten(1)
        chosen = ranked.topk(self.active, -1).indices
        weights = scores.gather(1, chosen)
        if self.normalized and self.active > 1:
            weights = weights / (weights.sum(-1, keepdim=True) + _LEAST)
        return weights * self.scale, chosen


class Experts(nn.Module):
    """SwiGLU networks of which a router chooses some for each token, and one for all tokens."""

    def __init__(self, width: int, inner: int, shared: int, routing: Routing) -> None:
        super().__init__()
        self.routing = routing
        self.router = nn.Linear(width, routing.experts, bias=False)
        self.bias = nn.Parameter(torch.zeros(routing.experts)) if routing.biased else None
        self.up = nn.Parameter(torch.empty(routing.experts, 2 * inner, width))
        self.down = nn.Parameter(torch.empty(routing.experts, width, inner))
        self.activation, self.shared = SwiGLU(), None
        if shared:
            up, down = (
                nn.Linear(width, 2 * shared, bias=False),
                nn.Linear(shared, width, bias=False),
            )
            self.shared = nn.Sequential(up, self.activation, down)

    def initialize(self, std: float) -> None:
        """Normal weights of the experts."""
        nn.init.normal_(self.up, std=std)
        nn.init.normal_(self.down, std=std)

    def forward(self, x: Float[Tensor, "*tokens width"]) -> Float[Tensor, "*tokens width"]:
        """The weighted sum of the experts of each token, in the order of the experts."""
        h = x.flatten(0, -2)
        with torch.autocast(h.device.type, enabled=False):
            bias = None if self.bias is None else self.bias.float()
            weights, chosen = self.routing(F.linear(h.float(), self.router.weight.float()), bias)
        places = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.up)).tolist()
        y = torch.zeros_like(h) if self.shared is None else self.shared(h)
        for up, down, part in zip(self.up, self.down, places.split(counts), strict=True):
            if len(part):
                tokens = part // self.routing.active
                values = F.linear(self.activation(F.linear(h[tokens], up)), down)
                y = y.index_add(0, tokens, (values * weights.flatten()[part, None]).to(y.dtype))
        return y.unflatten(0, x.shape[:-1])
