"""Variance of the training loss under each noise schedule. The bound does not depend on the schedule."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampler import Uniform
from unmask.errors import UnmaskError
from unmask.likelihood.bound import pooled_freedom
from unmask.likelihood.measured_rows import TokenRows, counted_in, given_in
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method
from unmask.randomness import RowStream, child_seed
from unmask.shapes import Batch

Values = Float64[Tensor, "draws rows"]


@dataclass(frozen=True)
class Spread:
    """The bound under a schedule and the variance of its estimate; errors are standard errors.

    `variance` is the variance, over rows and draws, of one row's loss per token at one uniform time, as
    training draws it. Its unit is nats squared.
    """

    nats: float
    error: float
    variance: float
    variance_error: float
    samples: int  # rows times draws
    freedom: float = math.inf  # degrees of freedom of `error`
    variance_freedom: float = math.inf  # degrees of freedom of `variance_error`


def variance_by_schedule(
    method: Method,
    rows: TokenRows,
    schedules: Mapping[str, Schedule],
    *,
    draws: int = 8,
    seed: int = 0,
    batch: int = 32,
) -> dict[str, Spread]:
    """Bound and loss variance under each schedule, from the same rows and the same uniforms."""
    if not method.capabilities.time_bound or method.steps or isinstance(method.schedule, nn.Module):
        raise UnmaskError(
            "this model's schedule cannot be changed: give a continuous-time diffusion model with a "
            "fixed schedule"
        )
    if draws < 2 or len(rows) < 2:
        raise UnmaskError(
            f"{draws} draws of {len(rows)} rows have no variance: give at least 2 draws and 2 rows"
        )
    training = method.training
    method.eval()
    try:
        return {
            name: _spread(
                *_measured(
                    _with_schedule(cast(MaskedDiffusion, method), schedule),
                    rows,
                    draws,
                    seed,
                    batch,
                )
            )
            for name, schedule in schedules.items()
        }
    finally:
        method.train(training)


def _with_schedule(method: MaskedDiffusion, schedule: Schedule) -> MaskedDiffusion:
    """A copy of the method with another schedule; it shares the network, and `method` is not changed."""
    other = copy.copy(method)
    other.schedule = schedule
    return other


@torch.no_grad()
def _measured(
    method: MaskedDiffusion, rows: TokenRows, draws: int, seed: int, batch: int
) -> tuple[Values, Values, Float64[Tensor, "rows"]]:
    """Full bound and training loss of every row under each draw, and the number of tokens of each row."""
    whole, loss = torch.zeros(2, draws, len(rows), dtype=torch.float64)
    tokens = torch.zeros(len(rows), dtype=torch.float64)
    for start in range(0, len(rows), batch):
        part = range(start, min(start + batch, len(rows)))
        here = slice(part.start, part.stop)
        x, valid = rows[part]
        texts = Batch(x, valid, given_in(rows, part))
        tokens[here] = counted_in(rows, part, valid).double()
        for number in range(draws):
            stream = RowStream(child_seed(seed, number), start, range(len(part)), len(part))
            noise = method.noise(stream, texts.scored, Uniform())
            losses = method.nll(texts, noise, full_bound=True)
            whole[number, here] = losses.per_token().double().sum(1).cpu()
            loss[number, here] = losses.terms["diffusion"].double().sum(1).cpu()
    return whole, loss, tokens


def _spread(whole: Values, loss: Values, tokens: Float64[Tensor, "rows"]) -> Spread:
    values = loss / tokens.clamp(min=1)
    # rows are independent of each other; the draws of one row share its text and are not
    by_row = (values - values.mean()).square().mean(0)
    noise = whole.var(0)
    return Spread(
        nats=float(whole.mean(0).sum() / tokens.sum()),
        error=math.sqrt(float(noise.sum()) / len(whole)) / float(tokens.sum()),
        variance=float(values.var()),
        variance_error=float(by_row.std()) / math.sqrt(len(by_row)),
        samples=values.numel(),
        freedom=pooled_freedom(len(whole), float(noise.sum()), float(noise.square().sum())),
        variance_freedom=len(by_row) - 1,
    )
