"""The bound on a text: exact where it claims to be, and with an error bar that is true elsewhere."""

import math

import pytest
import torch
from builders import small_method

from unmask.errors import UnmaskError
from unmask.evaluation import Bound, likelihood

SIZE, LENGTH = 11, 10
DIFFUSION = ("mdlm", "sedd", "d3pm")


class Texts:
    """Rows of random tokens; the last few of every other row are padding."""

    def __init__(self, rows: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randint(1, SIZE - 1, (rows, LENGTH), generator=generator)
        self.valid = torch.ones_like(self.x).bool()
        self.valid[::2, -3:] = False
        self.bytes, self.characters = 40 * rows, 30 * rows

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[rows.start : rows.stop], self.valid[rows.start : rows.stop]


def many(name: str, seeds: int, rows: int = 12, **options: int) -> tuple[torch.Tensor, float]:
    """Estimates under different seeds, and the root mean square of their reported errors."""
    method, texts = small_method(name), Texts(rows)
    bounds = [likelihood(method, texts, seed=seed, **options) for seed in range(seeds)]
    errors = torch.tensor([bound.error for bound in bounds], dtype=torch.float64)
    nats = torch.tensor([bound.nats for bound in bounds], dtype=torch.float64)
    return nats, float(errors.square().mean().sqrt())


# Exact


@pytest.mark.parametrize("batch", [1, 4, 32])
def test_the_autoregressive_likelihood_is_the_direct_sum(batch):
    method, texts = small_method("autoregressive"), Texts(7)
    start = torch.full((7, 1), method.vocabulary.mask_id)
    before = torch.cat([start, texts.x[:, :-1]], 1)
    with torch.no_grad():
        logits = method.backbone.logits(method.backbone.features(before))
    logits[..., method.vocabulary.mask_id] = -math.inf
    direct = logits.log_softmax(-1).gather(-1, texts.x[..., None])[..., 0][texts.valid]
    bound = likelihood(method, texts, draws=8, batch=batch)
    assert bound.nats == pytest.approx(-float(direct.mean()), rel=1e-5)
    assert bound.tokens == texts.valid.sum() == 7 * LENGTH - 4 * 3
    assert (bound.certificate, bound.error, bound.draws) == ("exact", 0.0, 1)
    assert bound.terms == {"nll": pytest.approx(bound.nats)}


def test_the_terms_make_up_the_bound():
    for name in DIFFUSION:
        bound = likelihood(small_method(name), Texts(5), draws=2)
        assert bound.certificate == "upper"
        assert sum(bound.terms.values()) == pytest.approx(bound.nats)


# The error bar. Seeds are fixed; a fresh choice of them would fail with the stated probability.


@pytest.mark.parametrize("name", DIFFUSION)
def test_an_estimate_lies_within_its_error_of_a_long_run(name):
    """|difference| < 4 standard errors: a false alarm in 16,000."""
    method, texts = small_method(name), Texts(12)
    short = likelihood(method, texts, draws=8, seed=1)
    long = likelihood(method, texts, draws=150, seed=2)
    assert abs(short.nats - long.nats) < 4 * math.hypot(short.error, long.error)
    assert long.error < short.error


@pytest.mark.parametrize(
    ("name", "rows", "batch"), [("mdlm", 3, 1), ("mdlm", 12, 12), ("sedd", 12, 12)]
)
def test_the_reported_error_is_the_spread_over_seeds(name, rows, batch):
    """The spread of 60 seeds is known to 1 / sqrt(2 * 59) = 9%: within 4 times that, one in 16,000."""
    nats, reported = many(name, 60, rows=rows, draws=3, batch=batch)
    assert reported == pytest.approx(float(nats.std()), rel=4 / math.sqrt(2 * 59))


def test_stratified_rows_have_less_error_than_the_same_rows_alone():
    apart, together = (many("sedd", 8, rows=6, draws=4, batch=batch)[1] for batch in (1, 6))
    assert together < 0.8 * apart


def test_four_times_the_draws_halve_the_error():
    method, texts = small_method("mdlm"), Texts(24)
    few, more = (likelihood(method, texts, draws=draws, batch=4) for draws in (16, 64))
    assert few.error / more.error == pytest.approx(2, rel=0.25)


def test_the_batch_size_does_not_move_the_mean():
    """Means over 30 seeds agree within 4 standard errors of their difference: one in 16,000."""
    one, few, all_ = (many("mdlm", 30, rows=5, draws=2, batch=batch)[0] for batch in (1, 2, 5))
    for other in (few, all_):
        error = math.sqrt(float(one.var() + other.var()) / 30)
        assert abs(float(one.mean() - other.mean())) < 4 * error


def test_one_draw_falls_back_to_the_spread_between_rows():
    method, texts = small_method("mdlm"), Texts(12)
    one = likelihood(method, texts, draws=1)
    assert 0 < one.error < math.inf
    assert one.error > likelihood(method, texts, draws=16).error
    assert likelihood(method, Texts(1), draws=1).error == math.inf


# Reproducibility, and what it leaves behind


def test_the_same_seed_gives_the_same_number_and_another_seed_another():
    method, texts = small_method("mdlm"), Texts(6)
    first, again, other = (likelihood(method, texts, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first.nats != other.nats


@pytest.mark.parametrize("training", [True, False])
def test_the_method_comes_back_as_it_was(training):
    method = small_method("mdlm").train(training)
    shares: list[float] = []
    likelihood(method, Texts(5), draws=1, batch=2, progress=shares.append)
    assert method.training is training
    assert shares == [0.4, 0.8, 1.0]
    assert all(parameter.grad is None for parameter in method.parameters())


# Units


def test_units_by_hand():
    bound = Bound(
        nats=math.log(8), error=0.01, certificate="upper", tokens=100, bytes=400, characters=300,
        draws=4, terms={"diffusion": math.log(8)},
    )  # fmt: skip
    assert bound.perplexity == pytest.approx(8)
    assert bound.perplexity_error == pytest.approx(0.08)
    assert bound.bits_per_byte == pytest.approx(3 * 100 / 400)
    assert bound.bits_per_character == pytest.approx(1)
    assert str(bound) == "perplexity ≤ 8.00 ± 0.08"
    told = bound.to_dict()
    assert told["bits_per_byte"] == bound.bits_per_byte
    assert told["terms"] == {"diffusion": bound.nats}
    exact = Bound(math.log(8), 0.0, "exact", 100, 400, 300, 1, {})
    assert str(exact) == "perplexity 8.00"


def test_bits_of_a_measured_text():
    texts = Texts(6)
    bound = likelihood(small_method("autoregressive"), texts)
    bits = bound.nats * int(texts.valid.sum()) / math.log(2)
    assert bound.bits_per_byte == pytest.approx(bits / (40 * 6))
    assert bound.bits_per_character == pytest.approx(bits / (30 * 6))


# Mistakes


@pytest.mark.parametrize("draws", [0, -1])
def test_draws_are_at_least_one(draws):
    with pytest.raises(UnmaskError, match=f"draws must be 1 or more, not {draws}"):
        likelihood(small_method("mdlm"), Texts(2), draws=draws)


def test_no_rows_are_refused():
    with pytest.raises(UnmaskError, match="no text to measure"):
        likelihood(small_method("mdlm"), Texts(0))
