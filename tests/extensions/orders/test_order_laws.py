"""Laws of the learned order on a language with every sequence listed."""

from itertools import combinations

import pytest
import torch
from builders import schedule
from drafts import sample
from kit import Language, p_value

from unmask.extensions.orders.learned_order import LearnedOrder
from unmask.extensions.orders.order_policy import OrderPolicy
from unmask.extensions.orders.order_training import OrderTraining, reveal, train_order

LANGUAGE = Language.random(size=3, length=4, seed=5)
LOGLINEAR = schedule("loglinear")
EVERY = (LANGUAGE.sequences, torch.ones_like(LANGUAGE.sequences, dtype=torch.bool))


def wild(seed: int = 0) -> OrderPolicy:
    """A policy with random weights."""
    policy = OrderPolicy()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in policy.parameters():
            weights.copy_(3 * torch.randn(weights.shape, generator=generator))
    return policy


def value(policy: OrderPolicy, steps: int, language: Language = LANGUAGE) -> float:
    """E log q of the language's texts, with the highest scores first."""
    texts = (language.sequences, torch.ones_like(language.sequences, dtype=torch.bool))
    with torch.no_grad():
        found = reveal(policy, language.denoiser, LOGLINEAR, language.size, texts, steps)
    return float(language.table @ found.rewards.sum(0).double())


def best_fixed(language: Language) -> float:
    """E log q of the best fixed order in two steps: the halves lose what their tokens share."""
    values = []
    places = range(language.length)
    for first in combinations(places, language.length // 2):
        chosen = torch.tensor([place in first for place in places])
        loss = 0.0
        for part, given in ((chosen, torch.zeros_like(chosen)), (~chosen, chosen)):
            rest = language.subset_entropy(given)
            ones = [one for one in torch.eye(language.length).bool() if (one & part).any()]
            loss += sum(language.subset_entropy(given | one) - rest for one in ones)
        values.append(-loss)
    return max(values)


def test_one_token_at_a_time_every_order_is_exact():
    """The chain rule: the reward of each text is its log-probability, whatever the policy."""
    for policy in (OrderPolicy(), OrderPolicy("random"), wild(1), wild(2)):
        found = reveal(policy, LANGUAGE.denoiser, LOGLINEAR, LANGUAGE.size, EVERY, 4)
        rewards = found.rewards.sum(0).double()
        torch.testing.assert_close(rewards, LANGUAGE.table.log(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", [1, 2])
def test_samples_with_any_policy_follow_the_language_one_token_at_a_time(seed):
    language = Language.random()
    sampler = LearnedOrder(steps=language.length, policy=wild(seed))
    assert p_value(sample(language, sampler, list(range(2000))), language.table) > 1e-4


def test_the_reward_is_at_most_the_entropy_and_two_steps_lose_something():
    for policy in (OrderPolicy(), wild(3)):
        assert value(policy, 2) < -LANGUAGE.entropy - 1e-3
        assert value(policy, 4) == pytest.approx(-LANGUAGE.entropy, abs=1e-4)


def test_training_approaches_the_best_fixed_order():
    """Two pairs of equal tokens: the best order reveals one token of each pair first."""
    pairs = torch.tensor([[0.45, 0.05], [0.05, 0.45]], dtype=torch.float64)
    table = torch.einsum("ab,cd->abcd", pairs, pairs).reshape(-1)
    language = Language(2, 4, table)
    best, before = best_fixed(language), value(OrderPolicy(), 2, language)
    assert best - before > 0.2  # the neighbours, which confidence takes first, are a pair
    policy = OrderPolicy()
    texts = torch.Generator().manual_seed(0)

    def batch(number: int):
        rows = torch.multinomial(language.table, 16, replacement=True, generator=texts)
        return language.sequences[rows], torch.ones(16, 4, dtype=torch.bool)

    settings = OrderTraining(steps=(2,), updates=60, batch=16, group=8, lr=0.03)
    rewards = list(
        train_order(policy, language.denoiser, LOGLINEAR, language.size, batch, settings)
    )
    assert sum(rewards[-10:]) > sum(rewards[:10])
    assert value(policy, 2, language) == pytest.approx(best, abs=0.02)


def test_untrained_it_is_the_sampler_confidence():
    from unmask.samplers.confidence import Confidence, Entropy, Margin

    seeds = list(range(300))
    for prior, other in (("confidence", Confidence), ("entropy", Entropy), ("margin", Margin)):
        ours = sample(LANGUAGE, LearnedOrder(steps=2, policy=OrderPolicy(prior)), seeds)
        theirs = sample(LANGUAGE, other(steps=2), seeds)
        assert torch.equal(ours, theirs), prior
