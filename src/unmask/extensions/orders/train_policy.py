"""Trains the order policy of a model on texts, and measures it on other texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.extensions.orders.order_policy import OrderPolicy
from unmask.extensions.orders.order_training import OrderTraining, Texts, reveal, train_order
from unmask.generation.sampler_spec import suitable_samplers
from unmask.likelihood.perplexity import rows_of
from unmask.methods.method import METHODS, methods_that
from unmask.randomness import child_seed
from unmask.shapes import Tokens, Valid, last_of, targets

HELD_OUT = 5  # of five rows one measures the policy, and four train it
MOST_MEASURED = 64  # held-out rows


@dataclass(frozen=True)
class OrderValue:
    """Nats per token of held-out texts, revealed in some steps: before and after training."""

    steps: int
    before: float
    after: float
    error: float  # standard error of the difference over texts
    rows: int


def drawn_places(model: Bundle, x: Tokens, valid: Valid, given: Valid | None) -> Valid:
    """True at tokens that a sampler of the model draws.

    Given tokens, padding, BOS and class tokens are not drawn, nor is the EOS if a length head gives its place.
    """
    v = model.tokenizer.vocabulary
    if model.method.backbone.predicts_length:
        valid = valid & ~last_of(valid)
    never = torch.tensor([*v.label_ids, *([] if v.bos_id is None else [v.bos_id])], dtype=x.dtype)
    return targets(valid, given) & ~torch.isin(x, never)


def train_order_policy(
    model: Bundle,
    data: Sequence[str] | str | None = None,
    settings: OrderTraining | None = None,
    *,
    length: int | None = None,
    prior: str = "confidence",
    say: Callable[[str], None] = lambda line: None,
) -> tuple[OrderPolicy, list[OrderValue]]:
    """Trains a policy of the order in which a model reveals tokens. The model does not change.

    Args:
        model: a model of masked diffusion.
        data: texts, or a data source; None is the model's validation text.
        settings: the settings of the training.
        length: tokens of a text; longer rows are cut. None is the model's length.
        prior: the order before training: confidence, entropy, margin or random.
        say: receives lines of progress.

    Returns:
        The policy, and its value on held-out texts for each number of steps.
    """
    settings = settings or OrderTraining()
    if "learned_order" not in suitable_samplers(model.method):
        able = methods_that(lambda can: can.any_order and can.generate)
        raise UnmaskError(
            f"the method {METHODS.name_of(model.method)} has no order to learn: give a model of method {able}"
        )
    rows = rows_of(model, data)
    if len(rows) < HELD_OUT:
        raise UnmaskError(
            f"the data has {len(rows)} rows, and {HELD_OUT} or more are needed: give more text"
        )
    if length is not None and length < 2:
        raise UnmaskError(f"length must be 2 or more, not {length}")
    held = range(0, len(rows), HELD_OUT)[:MOST_MEASURED]
    training = [row for row in range(len(rows)) if row % HELD_OUT]

    def texts(index: Sequence[int]) -> Texts:
        x, valid = rows[index]
        places, cut = drawn_places(model, x, valid, rows.given(index)), slice(0, length)
        return x[:, cut].to(model.device), places[:, cut].to(model.device)

    def batch(number: int) -> Texts:
        generator = torch.Generator().manual_seed(child_seed(settings.seed, number))
        chosen = torch.randint(len(training), (settings.batch,), generator=generator)
        return texts([training[row] for row in chosen.tolist()])

    policy = OrderPolicy(prior, model.digest).to(model.device)
    frozen = model.method.denoiser(), model.method.schedule, model.tokenizer.vocabulary.mask_id

    def values() -> dict[int, Tensor]:
        """Nats of each held-out text, by steps."""
        with torch.no_grad():
            parts = [held[i : i + settings.batch] for i in range(0, len(held), settings.batch)]
            return {
                steps: torch.cat(
                    [-reveal(policy, *frozen, texts(part), steps).rewards.sum(0) for part in parts]
                ).cpu()
                for steps in settings.steps
            }

    before = values()
    every = max(1, settings.updates // 10)
    for number, reward in enumerate(train_order(policy, *frozen, batch, settings), 1):
        if number % every == 0:
            say(f"update {number} of {settings.updates}: {-reward:.3f} nats per token")
    after = values()
    tokens = float(texts(held)[1].sum())
    found = []
    for steps in settings.steps:
        change = (after[steps] - before[steps]).double()
        error = float(change.std() * len(held) ** 0.5 / tokens) if len(held) > 1 else float("inf")
        first, last = (float(nats[steps].sum() / tokens) for nats in (before, after))
        found.append(OrderValue(steps, first, last, error, len(held)))
    return policy.eval(), found
