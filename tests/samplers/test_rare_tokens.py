"""Rare tokens are drawn at their rate: positions are chosen first,
and tokens are drawn with enough random bits.

The rate of a token of probability 1e-6 must not depend on the number of steps or on the last bits
of a uniform. Tokens are drawn by inverting the cumulative distribution, so only uniforms near the
slice of a token can draw it. The tests draw as many of these uniforms as 1e8 draws would have,
with the function that samplers use.
"""

import numpy as np
import pytest
import torch
from builders import schedule

from unmask.randomness import row_uniforms
from unmask.samplers.core.token_sampler import SamplingTask

DRAWS, RATE = 10**8, 1e-6
# near the end of the distribution, where single precision is coarsest
VOCABULARY, RARE = 2048, 2000
STEPS = 1000


def distribution(rate: float) -> torch.Tensor:
    """Log-probabilities in single precision, as a network gives them."""
    noise = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(0)).double()
    chances = noise.softmax(0)
    chances[RARE] = 0
    chances *= (1 - rate) / chances.sum()
    chances[RARE] = rate
    return chances.log().float()


def choose(log_probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """The tokens that sampling draws with these uniforms."""
    task = SamplingTask([], schedule("loglinear"))
    z = torch.zeros(1, 500, dtype=torch.long)
    at = torch.arange(500)
    return torch.cat(
        [
            task.choose(
                log_probabilities.expand(len(part), -1),
                part,
                z,
                (z[0, : len(part)], at[: len(part)]),
            )
            for part in uniforms.split(500)
        ]
    )


def near(log_probabilities: torch.Tensor, width: float) -> tuple[float, float]:
    """A window around the rare token's slice. Outside of it other tokens are drawn."""
    before = float(log_probabilities.double().exp()[:RARE].sum())
    window = before - width / 2, before + width / 2
    at_the_ends = choose(log_probabilities, torch.tensor(window).double())
    assert at_the_ends[0] < RARE < at_the_ends[1]
    return window


def test_a_token_of_probability_1e_6_is_drawn_at_its_rate():
    log_probabilities = distribution(RATE)
    low, high = near(log_probabilities, 1e-4)
    inside = np.random.default_rng(0).binomial(DRAWS, high - low)  # of 1e8 uniforms
    uniforms = low + (high - low) * row_uniforms([0], "token", inside)[0]
    drawn = int((choose(log_probabilities, uniforms) == RARE).sum())
    expected = DRAWS * RATE
    assert abs(drawn - expected) <= 3 * expected**0.5


@pytest.mark.parametrize("bits", [24, 53])
def test_drawing_position_and_token_at_once_in_24_bits_would_miss_it(bits):
    """In one of many steps a position is revealed as the rare token with chance 1e-6 / 1000,
    or stays masked.
    """
    step = distribution(RATE)
    at_once = torch.cat([step, torch.zeros(1)])
    at_once[:-1] += torch.tensor(1 / STEPS).log()
    at_once[-1] = torch.tensor(1 - 1 / STEPS).log()  # MASK
    low, high = near(at_once, 1e-6)
    uniforms = torch.linspace(low, high, 20_001, dtype=torch.float64)
    rounded = (uniforms * 2**bits).floor() / 2**bits
    found = float((choose(at_once, rounded) == RARE).double().mean()) * (high - low)
    if bits == 24:
        assert not 0.5 < found / (RATE / STEPS) < 2  # never, or sixty times too often
    else:
        assert found == pytest.approx(RATE / STEPS, rel=0.06)


def test_uniforms_have_53_bits():
    uniforms = row_uniforms([1], "token", 1000)[0]
    assert torch.equal(uniforms * 2**53, (uniforms * 2**53).floor())
    assert ((uniforms * 2**45) % 1 != 0).double().mean() > 0.9
