"""Training of an order policy: the order that makes real texts likeliest in few network calls.

A text x is revealed in steps. The policy chooses the positions of a step, all of which the network
predicts from the tokens known before. The reward is the sum of log p(x_i | known tokens). Its mean
over orders is at most log q(x), where q is the distribution of texts that the sampler draws
(Jensen). So the reward falls short of log p(x) by what the tokens of a step have in common.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.schedule import Schedule
from unmask.errors import UnmaskError
from unmask.extensions.orders.order_policy import OrderPolicy, static_features
from unmask.options import check_options, option
from unmask.samplers.confidence import masks_left
from unmask.samplers.core.time_grid import check_steps, grid_times
from unmask.shapes import Places

Texts = tuple[Int[Tensor, "rows length"], Bool[Tensor, "rows length"]]  # tokens, open positions


@dataclass(frozen=True)
class OrderTraining:
    """Settings of the training of an order policy."""

    steps: Sequence[int] = option((4, 8, 16, 32), ge=1, help="sampler steps; an update draws one")
    updates: int = option(200, ge=1, help="optimizer steps")
    batch: int = option(8, ge=1, help="texts of an update")
    group: int = option(4, ge=2, help="orders of each text, whose mean reward is the baseline")
    lr: float = option(0.01, gt=0, le=100, help="learning rate")
    seed: int = option(0, help="seed of texts and orders")

    def __post_init__(self) -> None:
        check_options(self)
        if not self.steps:
            raise UnmaskError("steps is empty: give one number of sampler steps or more")
        for steps in self.steps:
            check_steps(steps)


@dataclass(frozen=True)
class Reveal:
    """Rewards and log-probabilities of the choices, by step of a row."""

    rewards: Float[Tensor, "steps rows"]
    log_chances: Float[Tensor, "steps rows"]


def reveal(
    policy: OrderPolicy,
    denoiser: Denoiser,
    schedule: Schedule,
    mask_id: int,
    texts: Texts,
    steps: int,
    generator: torch.Generator | None = None,
) -> Reveal:
    """Reveals texts in the order of a policy.

    Args:
        policy: the policy.
        denoiser: log x_theta of the frozen network.
        schedule: the noise schedule, which sets the number of tokens of a step.
        mask_id: id of MASK.
        texts: tokens, and True at positions that are masked first.
        steps: number of steps.
        generator: draws the order; None takes the highest scores.

    Returns:
        The log-likelihood of the tokens of each step, and the log-probability of their choice.
    """
    x, open_places = texts
    z = torch.where(open_places, mask_id, x)
    times = grid_times("uniform", steps)
    left = masks_left(open_places.sum(1), schedule, times)
    rewards, chances = [], []
    for step, t in enumerate(times[:-1]):
        masked = z == mask_id
        rows, columns = masked.nonzero(as_tuple=True)
        with torch.no_grad():
            log_p = denoiser(z, t.expand(len(z)), (rows, columns))
            features = static_features(log_p, rows, columns, masked)
        noise = partial(_gumbel, masked, generator)
        picked, chance = policy.choose(features, ~masked, masked, masked.sum(1) - left[step], noise)
        own = log_p.gather(1, x[rows, columns][:, None])[:, 0].float()
        gained = torch.zeros(len(z), device=z.device)
        gained.index_add_(0, rows, own * picked[rows, columns])
        rewards.append(gained)
        chances.append(chance)
        z = torch.where(picked, x, z)
    return Reveal(torch.stack(rewards), torch.stack(chances))


def _gumbel(
    like: Places, generator: torch.Generator | None
) -> Float[Tensor, "rows length"] | float:
    """Gumbel noise for the scores of one choice; none without a generator."""
    if generator is None:
        return 0.0
    u = torch.rand(like.shape, generator=generator).clamp(min=1e-20)
    return -(-u.log()).log().to(like.device)


def train_order(
    policy: OrderPolicy,
    denoiser: Denoiser,
    schedule: Schedule,
    mask_id: int,
    batches: Callable[[int], Texts],
    settings: OrderTraining,
) -> Iterator[float]:
    """Trains a policy in place by REINFORCE.

    The advantage of a choice is the reward from its step on,
    less the mean over orders of the same text.

    Args:
        policy: the policy.
        denoiser: log x_theta of the frozen network.
        schedule: the noise schedule.
        mask_id: id of MASK.
        batches: the texts of an update, by its number.
        settings: the settings.

    Yields:
        The mean reward of each update, in nats per token.
    """
    generator = torch.Generator().manual_seed(settings.seed % 2**63)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.lr)
    for number in range(settings.updates):
        x, open_places = batches(number)
        if not bool(open_places.any()):
            raise UnmaskError("the texts have no tokens to reveal: give longer texts")
        several = [each.repeat_interleave(settings.group, 0) for each in (x, open_places)]
        steps = settings.steps[number % len(settings.steps)]
        found = reveal(
            policy, denoiser, schedule, mask_id, (several[0], several[1]), steps, generator
        )
        later = found.rewards.flip(0).cumsum(0).flip(0)  # from each step on
        grouped = later.view(steps, len(x), settings.group)
        advantage = (grouped - grouped.mean(-1, keepdim=True)).view(steps, -1)
        advantage = advantage / advantage.std().clamp(min=1e-6)
        loss = -(advantage * found.log_chances).sum(0).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        if not all(bool(weight.isfinite().all()) for weight in policy.parameters()):
            raise UnmaskError(f"the policy is not finite: lower lr, which is {settings.lr:g}")
        yield float(found.rewards.sum() / several[1].sum())
