"""A decoding rule has a distribution: its likelihood sums to one and is that of the sampler's texts."""

from __future__ import annotations

import pytest
import torch
from builders import schedule, small_method
from drafts import build
from kit import Language, listing, p_value, table_method

from unmask.errors import UnmaskError
from unmask.likelihood.decoding import DecodingRule
from unmask.likelihood.estimate import nats_by_row
from unmask.likelihood.estimators import CountedBatch
from unmask.samplers.blocks import Blocks
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import Sampler

LANGUAGE = Language.random(3, 3)
WRONG = LANGUAGE.wrong_conditionals()
TIES = torch.full_like(WRONG, 1 / 3)  # all positions and tokens are alike
TIES[..., LANGUAGE.size] = 0
RULES = [
    *(("confidence", {"steps": steps}) for steps in (3, 2, 1)),
    ("confidence", {"steps": 3, "threshold": 0.4}),
    ("margin", {"steps": 3}),
    ("entropy", {"steps": 2}),
    ("entropy_bound", {"gamma": 0.5}),
    ("threshold", {"threshold": 0.4}),
    ("left_to_right", {}),
]
RARELY = 1e-4


class Rows:
    """All sequences as rows to measure, perhaps with some given tokens."""

    bytes = characters = 27 * 3

    def __init__(self, given: list[bool]) -> None:
        self._given = torch.tensor(given)

    def __len__(self) -> int:
        return len(LANGUAGE.sequences)

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        x = LANGUAGE.sequences[rows.start : rows.stop]
        return x, torch.ones_like(x, dtype=torch.bool)

    def given(self, rows: range) -> torch.Tensor:
        return self._given.expand(len(rows), -1)

    def counted(self, rows: range) -> torch.Tensor:
        return (~self.given(rows)).sum(1)


def log_p(conditionals: torch.Tensor, sampler: Sampler, given=(False,) * 3) -> torch.Tensor:
    """log p of every sequence under a rule."""
    method = table_method("mdlm", LANGUAGE, schedule("loglinear"), conditionals)
    return -nats_by_row(method, Rows(list(given)), draws=1, rule=sampler)["nll"][0]


@pytest.mark.parametrize("conditionals", [WRONG, TIES, LANGUAGE.conditionals])
@pytest.mark.parametrize(("name", "fields"), RULES)
def test_the_likelihood_of_a_rule_is_the_distribution_of_its_texts(name, fields, conditionals):
    sampler = build(name, **fields)
    p = log_p(conditionals, sampler).exp()
    assert float(p.sum()) == pytest.approx(1, abs=1e-6)
    if conditionals is not WRONG:
        return
    method = table_method("mdlm", LANGUAGE, schedule("loglinear"), conditionals)
    canvas = Canvas(torch.full((4000, 3), LANGUAGE.size), LANGUAGE.size)
    task = SamplingTask(list(range(4000)), method.schedule, watched=False)
    with torch.no_grad():
        frames = sampler.generate(method.denoiser(), canvas, task)
        texts = last_frame(frames, canvas).tokens
    found = torch.bincount(LANGUAGE.index(texts, LANGUAGE.size), minlength=27)
    assert p_value(found, p) > RARELY


def test_one_token_a_step_of_the_exact_denoiser_is_the_language_in_any_order():
    for name in ("confidence", "margin", "entropy", "left_to_right"):
        found = log_p(LANGUAGE.conditionals, build(name, steps=3))
        torch.testing.assert_close(found, LANGUAGE.table.log(), rtol=1e-5, atol=1e-5)
    several = log_p(LANGUAGE.conditionals, build("confidence", steps=1))
    assert float(LANGUAGE.table @ several) < -LANGUAGE.entropy - 0.01


def test_given_tokens_are_not_written():
    p = log_p(WRONG, build("confidence", steps=3), given=(False, True, False)).exp()
    middle = LANGUAGE.sequences[:, 1]
    sums = torch.zeros(3, dtype=torch.float64).index_add(0, middle, p)
    torch.testing.assert_close(sums, torch.ones_like(sums), rtol=1e-5, atol=1e-6)


def test_blocks_and_temperatures_have_distributions_of_their_own():
    inner = build("confidence", steps=2)
    words = listing(3, 4)
    texts = CountedBatch(words, torch.ones_like(words, dtype=torch.bool))
    for method, sampler in (
        (small_method("block_diffusion", 4, blocks=(2, 0)), Blocks(2, inner=inner)),
        (small_method("block_diffusion", 4, blocks=(4, 0)), inner),
        (small_method("autoregressive", 4), build("left_to_right")),
    ):
        found = []
        for temperature in (1.0, 0.7):
            with torch.no_grad():
                nats = DecodingRule(method, sampler, temperature).terms(texts, [])["nll"]
            assert float((-nats).exp().sum()) == pytest.approx(1, abs=1e-5)
            found.append(nats)
        assert (found[0] - found[1]).abs().max() > 0.01


def test_a_sampler_with_random_positions_has_no_likelihood():
    for sampler in (
        build("ancestral", steps=3),
        build("confidence", steps=3, noise=1.0),
        build("confidence", steps=3, drawn=True),
        Blocks(1),
    ):
        with pytest.raises(UnmaskError, match="writes at random positions"):
            log_p(WRONG, sampler)
