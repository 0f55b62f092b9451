"""Log-probabilities of the single tokens of a text, by the chain rule from left to right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.methods.compute.cached_decoding import CausalMethod
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method
from unmask.shapes import LogProbabilities

ROWS = 4  # rows of one pass of a masked model: short passes can be cancelled early


@dataclass(frozen=True)
class TokenScore:
    """log p of a token given the tokens before it, and the likeliest tokens at its place.

    log p is None for the first token of a row if the model reads that token only.
    """

    log_p: float | None
    likeliest: list[tuple[int, float]]  # ids with their log-probabilities


@torch.no_grad()
def token_scores(
    method: Method, length: int, given: Sequence[int], ids: Sequence[int], likeliest: int = 0
) -> list[TokenScore]:
    """The score of each token, given the tokens before it.

    An autoregressive model needs one pass. A masked model needs a row for each token: the tokens
    before it, then masks to the length of the model. The masks stand for any continuation.

    Args:
        method: The model.
        length: Tokens of a row.
        given: The first tokens of the row, which get no score.
        ids: The tokens to score.
        likeliest: Number of likeliest tokens to return for each position.

    Returns:
        A score for each of `ids`.
    """
    if not ids:
        return []
    if len(given) + len(ids) > length:
        raise UnmaskError(
            f"logprobs of {len(given) + len(ids)} tokens need a row of that length, and the model reads "
            f"{length}: shorten the text"
        )
    row = torch.tensor([*given, *ids], device=method.device)
    positions = torch.arange(len(given), len(row), device=method.device)
    causal = method.capabilities.causal
    scores: list[TokenScore] = []
    if causal and not given and cast(CausalMethod, method).lag:
        scores, positions = [TokenScore(None, [])], positions[1:]
    with method.arithmetic():
        for part in [positions] if causal else positions.split(ROWS):
            log_p = _causal(method, row, part) if causal else _masked(method, row, part, length)
            true = log_p.gather(1, row[part][:, None])[:, 0].tolist()
            values, tokens = (best.tolist() for best in log_p.topk(likeliest, -1))
            scores += [
                TokenScore(p, list(zip(t, v, strict=True)))
                for p, t, v in zip(true, tokens, values, strict=True)
            ]
    return scores


def _causal(method: Method, row: Tensor, positions: Tensor) -> LogProbabilities:
    """log p at positions of a row, from one pass over it."""
    causal = cast(CausalMethod, method)
    h = causal.backbone.features(causal.inputs(row[None]))[0]
    return causal.log_next(h[positions - causal.lag])


def _masked(method: Method, row: Tensor, positions: Tensor, length: int) -> LogProbabilities:
    """log p at positions, each from a row of its own with masks from that position on."""
    if not method.capabilities.any_order or method.backbone.time_conditioning:
        raise UnmaskError(
            "this network reads the time, so it defines no p(token | tokens before it): leave logprobs "
            "out, or train with backbone.time_conditioning false"
        )
    diffusion = cast(MaskedDiffusion, method)
    z = row.new_full((len(positions), length), diffusion.vocabulary.mask_id)
    z[:, : len(row)] = row
    masked = torch.arange(length, device=row.device) >= positions[:, None]
    z.masked_fill_(masked, diffusion.vocabulary.mask_id)
    at = torch.arange(len(positions), device=row.device) * length + positions
    return diffusion.log_mean(diffusion.backbone.features(z, at=at))
