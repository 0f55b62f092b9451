"""A policy of the order in which masked positions are revealed,
from features of a frozen network.
"""

import json
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from unmask.errors import UnmaskError, unknown
from unmask.files.storage import replace
from unmask.files.tensors import load_weights
from unmask.shapes import LogProbabilities, Places

# of a position: from the network's distribution there, from the row, and from the nearest known
# tokens
FEATURES = ("confidence", "entropy", "margin", "masked", "position", "left", "right")
STATIC = 5  # features that do not change while positions of a step are chosen
WIDTH = 32
_LARGEST = 2**20  # bytes of a file; that of a policy has less than 2,000
PRIORS = {
    "confidence": ("confidence", 1.0),
    "entropy": ("entropy", -1.0),
    "margin": ("margin", 1.0),
}

Dense = Float[Tensor, "rows length features"]


class OrderPolicy(nn.Module):
    """Scores of masked positions: a known order plus a small network, which is 0 before training.

    Args:
        prior: the order before training: confidence, entropy, margin, or random for equal scores.
        digest: digest of the model that the policy is trained for; empty for any model.
    """

    def __init__(self, prior: str = "confidence", digest: str = "") -> None:
        super().__init__()
        self.prior_name, self.digest = prior, digest
        prior_weights = torch.zeros(len(FEATURES))
        if prior != "random":
            if prior not in PRIORS:
                raise unknown("prior", prior, (*PRIORS, "random"))
            name, sign = PRIORS[prior]
            prior_weights[FEATURES.index(name)] = sign
        self.prior = nn.Buffer(prior_weights)
        # without torch's global random numbers, which belong to the user
        self.hidden = nn.utils.skip_init(nn.Linear, len(FEATURES), WIDTH)
        self.out = nn.utils.skip_init(nn.Linear, WIDTH, 1, bias=False)
        generator = torch.Generator().manual_seed(0)
        nn.init.normal_(self.hidden.weight, std=len(FEATURES) ** -0.5, generator=generator)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.out.weight)

    def forward(self, features: Dense) -> Float[Tensor, "rows length"]:
        """The score of each position; a higher one is revealed earlier."""
        learned = self.out(nn.functional.gelu(self.hidden(features)))[..., 0]
        return features @ self.prior + learned

    def choose(
        self,
        features: Float[Tensor, "rows length static"],
        known: Places,
        candidates: Places,
        count: Int[Tensor, "rows"],
        noise: Callable[[], Float[Tensor, "rows length"] | float] = lambda: 0.0,
    ) -> tuple[Places, Float[Tensor, "rows"]]:
        """Chooses positions of a step one after the other; each choice sees the ones before it.

        Args:
            features: the static features, 0 outside the candidates.
            known: True at tokens that are not masked.
            candidates: True at positions that may be chosen.
            count: number of positions to choose in each row.
            noise: gives the numbers that are added to the scores of a choice. With new Gumbel noise
                for each choice, a choice is a draw from the softmax of the scores.

        Returns:
            True at the chosen positions, and the log-probability of these draws under such noise.
        """
        known, picked = known.clone(), torch.zeros_like(candidates)
        count = torch.minimum(count, candidates.sum(1))
        total = torch.zeros(len(known), device=known.device)
        rows = torch.arange(len(known), device=known.device)
        for number in range(int(count.max()) if len(count) else 0):
            active = number < count
            scores = self(torch.cat([features, nearness(known)], -1))
            scores = scores.masked_fill(~candidates | picked, -1e9)
            pick = (scores + noise()).argmax(1)
            chance = scores.log_softmax(1)[rows, pick]
            total = total + torch.where(active, chance, 0.0)
            picked[rows, pick] |= active
            known[rows, pick] |= active
        return picked, total

    def save(self, path: str | Path, digest: str | None = None) -> None:
        """Writes the policy as safetensors.

        Args:
            path: the file.
            digest: digest of the model that the file belongs to; by default that of the training.
        """
        content = {"prior": self.prior_name, "digest": self.digest if digest is None else digest}
        about = {"policy": json.dumps(content)}
        tensors = {name: value.cpu().contiguous() for name, value in self.state_dict().items()}
        replace(Path(path), safetensors.torch.save(tensors, about))

    @classmethod
    def load(cls, path: str | Path) -> "OrderPolicy":
        """Reads a policy. The file is untrusted.

        Args:
            path: the file.

        Returns:
            The policy.
        """
        if not Path(path).is_file():
            raise UnmaskError(f"no file {path}: make one with 'unmask train-order MODEL'")
        try:
            if Path(path).stat().st_size > _LARGEST:
                raise ValueError("too large")
            with safe_open(str(path), "pt") as file:
                about = json.loads((file.metadata() or {})["policy"])
                policy = cls(about["prior"], str(about["digest"]))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
            raise UnmaskError(
                f"{path} holds no order policy: make one with 'unmask train-order MODEL'"
            ) from None
        load_weights(policy, tensors, path)
        return policy.eval()


def static_features(
    log_probabilities: LogProbabilities, rows: Tensor, columns: Tensor, masked: Places
) -> Float[Tensor, "rows length static"]:
    """The static features at positions of a view, 0 elsewhere."""
    p = log_probabilities.float().exp()
    best, second = p.topk(2, -1).values.unbind(-1)
    entropy = torch.special.entr(p).sum(-1)
    length = masked.shape[1]
    share = masked.float().mean(1)[rows]
    smallest = torch.finfo(torch.float32).tiny
    values = [
        best.clamp(min=smallest).log(),
        entropy,
        (best - second).clamp(min=smallest).log().clamp(min=-20),
        share,
        columns.float() / max(length - 1, 1),
    ]
    features = values[0].new_zeros(*masked.shape, STATIC)
    features[rows, columns] = torch.stack(values, -1)
    return features


def nearness(known: Places) -> Float[Tensor, "rows length 2"]:
    """1 / distance to the nearest known token on the left and on the right; 0 without one."""
    return torch.stack([_left(known), _left(known.flip(1)).flip(1)], -1)


def _left(known: Places) -> Float[Tensor, "rows length"]:
    place = torch.arange(known.shape[1], device=known.device).expand(known.shape)
    last = torch.where(known, place, -1).cummax(1).values
    near = 1.0 / (place - last).clamp(min=1)
    return torch.where(last >= 0, near, 0.0)
