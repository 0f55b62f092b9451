"""A bound given a prefix is the bound of the language that the prefix leaves, token for token."""

from itertools import product

import pytest
import torch
from builders import schedule
from kit import Language, TableBackbone, expected_terms, mask_probability, table_method, times_of

from unmask.diffusion.time_sampler import TIME_SAMPLERS, Noise
from unmask.likelihood.estimate import likelihood
from unmask.methods.method import METHODS
from unmask.randomness import RowStream
from unmask.shapes import Batch

LANGUAGE = Language.random(3, 3)
PREFIX = 1  # tokens that are given
GIVEN = torch.arange(LANGUAGE.length) < PREFIX
CONDITIONAL_ENTROPY = LANGUAGE.entropy - LANGUAGE.subset_entropy(GIVEN)
D3PM = [
    {"zero_masking": zero, "carry_over": carry} for zero, carry in product([False, True], repeat=2)
]
CASES = [  # method, its options, and whether the denoiser is the oracle (a wrong one is no score)
    ("mdlm", {}, True),
    ("mdlm", {}, False),
    ("mdlm", {"steps": 3}, False),
    ("sedd", {}, True),
    *(("d3pm", {"steps": steps, **switches}, False) for steps in (1, 3) for switches in D3PM),
]


def given_terms(method, language: Language) -> dict[str, torch.Tensor]:
    """Each term of `nll` given the prefix, averaged exactly over (t, mask) of the rest."""
    masks = language.masks[~(language.masks & GIVEN).any(1)]
    x = language.sequences.repeat_interleave(len(masks), 0)
    masked = masks.repeat(len(language.sequences), 1)
    valid, given = torch.ones_like(masked), GIVEN.expand(len(x), -1)
    t, w = times_of(method)
    t_min = 0.0 if method.steps else method.time_sampler.t_min
    probe = method.noise(RowStream(0, 0, range(1), 1), ~GIVEN[None])
    terms = {}

    def add(noise: Noise, chance: torch.Tensor, names) -> None:
        with torch.no_grad():
            found = method.nll(
                Batch(x, valid, given), noise, full_bound="diffusion" not in names
            ).terms
        for name in names & found.keys():
            assert not found[name][:, GIVEN].any(), "no loss falls on what is given"
            by_row = found[name].double().sum(1).view(-1, len(masks)).where(chance > 0, 0.0)
            terms[name] = terms.get(name, 0.0) + by_row @ chance

    once = torch.ones(len(x), dtype=torch.float64)
    nothing = torch.zeros_like(masked)
    for time, weight in zip(t, w, strict=True):
        chance = mask_probability(masks[:, PREFIX:], method.schedule.alpha(time[None]))[:, 0]
        noise = Noise(once * time, masked, once * (1 - t_min), 0.0, nothing)
        add(noise, chance * weight, {"diffusion"})
    last = method.schedule.alpha(torch.tensor([t_min], dtype=torch.float64))
    noise = Noise(once, nothing, once, probe.unstarted, masked, t_min)
    add(noise, mask_probability(masks[:, PREFIX:], last)[:, 0], {"prior", "reconstruction"})
    return terms


def left_by(prefix: torch.Tensor, conditionals: torch.Tensor) -> tuple[Language, torch.Tensor]:
    """The language of what follows a prefix, and what a denoiser of whole rows says of it."""
    here = (LANGUAGE.sequences[:, :PREFIX] == prefix).all(1)
    table = LANGUAGE.table[here]
    rest = Language(LANGUAGE.size, LANGUAGE.length - PREFIX, table / table.sum())
    whole = torch.cat([prefix.expand(len(rest.states), -1), rest.states], 1)
    return rest, conditionals[LANGUAGE.index(whole, LANGUAGE.size + 1)][:, PREFIX:]


@pytest.mark.parametrize(("kind", "options", "oracle"), CASES)
def test_the_bound_given_a_prefix_is_the_bound_of_what_it_leaves(kind, options, oracle):
    noise = schedule("cosine", eps=0.1)
    conditionals = LANGUAGE.conditionals
    if not oracle:
        conditionals = LANGUAGE.wrong_conditionals(
            leak=0.0 if options.get("zero_masking", True) else 0.2
        )
    found = given_terms(table_method(kind, LANGUAGE, noise, conditionals, **options), LANGUAGE)
    by_prefix = LANGUAGE.sequences[:, :PREFIX].unique(dim=0)
    for prefix in by_prefix:
        rest, own = left_by(prefix, conditionals)
        expected = expected_terms(table_method(kind, rest, noise, own, **options), rest)
        here = (LANGUAGE.sequences[:, :PREFIX] == prefix).all(1)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            torch.testing.assert_close(found[name][here], values, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["loglinear", "cosine", "polynomial"])  # no end is left out
@pytest.mark.parametrize("kind", ["mdlm", "sedd"])
def test_the_oracles_bound_is_the_conditional_entropy(kind, name):
    method = table_method(kind, LANGUAGE, schedule(name, eps=0.0), times="importance")
    diffusion = float(LANGUAGE.table @ given_terms(method, LANGUAGE)["diffusion"])
    assert diffusion == pytest.approx(CONDITIONAL_ENTROPY, abs=1e-6)
    assert abs(CONDITIONAL_ENTROPY - LANGUAGE.entropy) > 0.5


class CausalTable(TableBackbone):
    """The oracle asked from left to right: tokens come shifted by one."""

    def features(self, tokens, condition=None, at=None, **rest):
        mask, length = self.language.size, self.language.length
        x = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], mask)], 1)
        places = torch.arange(length)
        seen = torch.where(places < places[:, None], x[:, None], mask)  # [row, place, token]
        h = self.scores[self.language.index(seen, mask + 1), places]
        return h if at is None else h.flatten(0, 1)[at]


def left_to_right() -> object:
    backbone = CausalTable(LANGUAGE, LANGUAGE.conditionals, time_conditioning=False)
    kind = METHODS["autoregressive"]
    parts = backbone, LANGUAGE.vocabulary, schedule("loglinear"), TIME_SAMPLERS.build("uniform")
    return kind(kind.Config(), *parts).eval()


def test_left_to_right_is_the_conditional_entropy_exactly():
    x = LANGUAGE.sequences
    valid, given = torch.ones_like(x).bool(), GIVEN.expand(len(x), -1)
    for seen, expected in [(given, CONDITIONAL_ENTROPY), (None, LANGUAGE.entropy)]:
        nats = left_to_right().nll(Batch(x, valid, seen), None).terms["nll"].double().sum(1)
        assert float(LANGUAGE.table @ nats) == pytest.approx(expected, abs=1e-6)


class Sentences:
    """Many draws from the language as rows of pairs."""

    bytes = characters = 1

    def __init__(self, rows: int) -> None:
        generator = torch.Generator().manual_seed(5)
        drawn = torch.multinomial(LANGUAGE.table, rows, True, generator=generator)
        self.nats = -LANGUAGE.table[drawn].log()
        self._x = LANGUAGE.sequences[drawn]
        mass = torch.zeros(LANGUAGE.size, dtype=torch.float64)
        mass.index_add_(0, LANGUAGE.sequences[:, 0], LANGUAGE.table)
        self.nats += mass[self._x[:, 0]].log()  # -log p(rest | first)

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: range):
        x = self._x[rows.start : rows.stop]
        return x, torch.ones_like(x).bool()

    def given(self, rows: range):
        return GIVEN.expand(len(rows), -1)

    def counted(self, rows: range):
        return torch.full((len(rows),), LANGUAGE.length - PREFIX)


@pytest.mark.parametrize("kind", ["mdlm", "sedd", "d3pm", "autoregressive"])
def test_what_evaluation_reports_of_pairs_is_the_targets_alone(kind):
    rows = Sentences(400)
    if kind == "autoregressive":
        method = left_to_right()
    else:
        fields = {"steps": 2000} if kind == "d3pm" else {}
        method = table_method(kind, LANGUAGE, schedule("loglinear", eps=0.0), **fields)
    bound = likelihood(method, rows, draws=16)
    assert bound.tokens == 400 * (LANGUAGE.length - PREFIX)
    true = float(rows.nats.sum()) / bound.tokens
    assert bound.nats == pytest.approx(true, abs=max(4 * bound.error, 1e-5))
    assert bound.error < 0.05 * true
