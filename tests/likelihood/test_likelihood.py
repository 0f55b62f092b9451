"""The bound of a text: exact likelihoods are exact, and other bounds have a correct error."""

import gc
import json
import math

import pytest
import torch
from builders import small_method

from unmask.errors import UnmaskError
from unmask.likelihood import estimators
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import BLOCK, likelihood, nats_by_row, paired_difference, shard_rows
from unmask.likelihood.sums import Sums

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
        self.tokens = int(self.valid.sum())

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


def test_the_terms_sum_to_the_bound():
    for name in DIFFUSION:
        bound = likelihood(small_method(name), Texts(5), draws=2)
        assert bound.certificate == "upper"
        assert sum(bound.terms.values()) == pytest.approx(bound.nats)


# The error. Seeds are fixed; a fresh choice of seeds would fail with the stated probability.


@pytest.mark.parametrize("name", DIFFUSION)
def test_an_estimate_lies_within_its_error_of_a_long_run(name):
    """|difference| < 4 standard errors: a false alarm in 16,000."""
    method, texts = small_method(name), Texts(12)
    short = likelihood(method, texts, draws=8, seed=1)
    long = likelihood(method, texts, draws=150, seed=2)
    assert abs(short.nats - long.nats) < 4 * math.hypot(short.error, long.error)
    assert long.error < short.error


@pytest.mark.parametrize(("name", "rows"), [("mdlm", 3), ("mdlm", 12), ("sedd", 12)])
def test_the_reported_error_is_the_spread_over_seeds(name, rows):
    """60 seeds determine the spread to 1 / sqrt(2 * 59) = 9%.
    Four times that is a false alarm in 16,000.
    """
    nats, reported = many(name, 60, rows=rows, draws=3)
    assert reported == pytest.approx(float(nats.std()), rel=4 / math.sqrt(2 * 59))


def test_rows_of_a_block_share_strata_and_vary_less_together_than_apart():
    """Every other row has its own text, so that only the noise correlates rows."""
    method, texts = small_method("sedd"), Texts(BLOCK)
    by_row = nats_by_row(method, texts, draws=64)["diffusion"]
    apart, together = by_row.var(0).sum(), by_row.sum(1).var()
    assert together < 0.6 * apart
    error = likelihood(method, texts, draws=64).error * int(texts.valid.sum())
    assert error == pytest.approx(math.sqrt(float(together) / 64))


def test_four_times_the_draws_halve_the_error():
    method, texts = small_method("mdlm"), Texts(24)
    few, more = (likelihood(method, texts, draws=draws) for draws in (16, 64))
    assert few.error / more.error == pytest.approx(2, rel=0.25)


def test_one_draw_falls_back_to_the_spread_between_rows():
    method, texts = small_method("mdlm"), Texts(12)
    one = likelihood(method, texts, draws=1)
    assert 0 < one.error < math.inf
    assert (one.error, one.freedom) == (one.text_error, 11)
    assert one.error > likelihood(method, texts, draws=16).error
    alone = likelihood(method, Texts(1), draws=1)
    assert alone.error == math.inf
    assert alone.interval == (0.0, math.inf)
    assert alone.to_dict()["interval"] == [0.0, None]
    assert alone.perplexity_interval == (1.0, math.inf)


def test_the_error_over_texts_is_that_of_a_ratio_of_sums():
    """Computed by hand for an exact likelihood. Rows are a sample,
    and each row is a cluster of tokens.
    """
    method, texts = small_method("autoregressive"), Texts(40)
    nats = nats_by_row(method, texts)["nll"][0]
    tokens = texts.valid.sum(1)
    residuals = nats - nats.sum() / tokens.sum() * tokens
    by_hand = math.sqrt(40 / 39 * float(residuals.square().sum())) / int(tokens.sum())
    assert likelihood(method, texts).text_error == pytest.approx(by_hand)


def test_a_paired_difference_has_the_error_of_the_difference():
    """60 seeds determine the spread to 9%, as above;
    the noise of both models cancels for the most part.
    """
    texts, first, second = Texts(BLOCK + 8), small_method("mdlm"), small_method("mdlm")
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.mul_(1.05)
    found, both = [], []
    for seed in range(60):
        pair = [
            likelihood(method, texts, draws=3, seed=seed, keep_rows=True)
            for method in (first, second)
        ]
        found.append(paired_difference(*pair))
        both.append(math.hypot(*(bound.error for bound in pair)))
        assert found[-1][0] == pytest.approx(pair[0].nats - pair[1].nats)
    change, errors, _ = (torch.tensor(values).double() for values in zip(*found, strict=True))
    reported = float(errors.square().mean().sqrt())
    assert reported == pytest.approx(float(change.std()), rel=4 / math.sqrt(2 * 59))
    assert reported < min(both) / 2
    parts = [
        likelihood(second, texts, draws=3, seed=59, shard=(i, 2), keep_rows=True) for i in (0, 1)
    ]
    saved = [Sums.from_dict(json.loads(json.dumps(part.sums.to_dict()))) for part in parts]
    joined = Bound.from_sums(saved[0] + saved[1])
    assert paired_difference(pair[0], joined) == pytest.approx(found[-1], rel=1e-3)
    with pytest.raises(UnmaskError, match="keep_rows"):
        paired_difference(pair[0], likelihood(first, texts))
    with pytest.raises(UnmaskError, match="different rows"):
        paired_difference(pair[0], likelihood(first, texts, draws=2, keep_rows=True))


# Reproducibility and side effects


def test_the_same_seed_gives_the_same_number_and_another_seed_another():
    method, texts = small_method("mdlm"), Texts(6)
    first, again, other = (likelihood(method, texts, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert first.nats != other.nats


@pytest.mark.parametrize("name", [*DIFFUSION, "autoregressive"])
def test_neither_the_batch_nor_shards_change_the_figure(name):
    """Agreement to 1e-6 is required, with rows of different lengths and a short last block."""
    method, texts = small_method(name), Texts(BLOCK + 3)
    whole, *others = (likelihood(method, texts, draws=2, batch=batch) for batch in (32, 1, 64))
    for batch in (32, 20):
        parts = [likelihood(method, texts, draws=2, batch=batch, shard=(i, 2)) for i in (1, 0)]
        assert parts[0].nats != parts[1].nats
        others.append(parts[0] + parts[1])
    # the third had the same batches, so nothing may differ; the others differ by the rounding of
    # the network, which changes the spread of two draws more than their mean
    for other, rounding in zip(others, [1e-6, 1e-6, 1e-12, 1e-6], strict=True):
        assert other.nats == pytest.approx(whole.nats, rel=rounding)
        assert other.terms == pytest.approx(whole.terms, rel=rounding)
        for figure in ("error", "text_error", "freedom", "interval", "bits_per_byte"):
            found, expected = getattr(other, figure), getattr(whole, figure)
            assert found == pytest.approx(expected, rel=1000 * rounding), figure
        assert (other.tokens, other.bytes) == (whole.tokens, whole.bytes)


@pytest.mark.parametrize("name", [*DIFFUSION, "autoregressive"])
def test_on_a_cpu_nothing_is_computed_after_the_longest_row(name, monkeypatch):
    method, texts = small_method(name), Texts(8)
    texts.valid[:, 4:] = False
    widths, features = [], method.backbone.features

    def seen(z, *given, **options):
        widths.append(z.shape[1])
        return features(z, *given, **options)

    monkeypatch.setattr(method.backbone, "features", seen)
    whole = likelihood(method, texts, draws=2)
    assert set(widths) == {LENGTH}
    monkeypatch.setattr(estimators, "_COLUMNS", 2)
    widths.clear()
    assert likelihood(method, texts, draws=2).nats == pytest.approx(whole.nats, rel=1e-6)
    assert set(widths) == {4}


def test_the_noise_of_a_row_depends_on_its_index():
    """With a longer corpus and another batch the first block stays the same."""
    method = small_method("mdlm")
    short, long = Texts(BLOCK), Texts(2 * BLOCK)
    long.x[:BLOCK] = short.x
    found = [
        nats_by_row(method, texts, draws=2, batch=batch)["diffusion"][:, :BLOCK]
        for texts, batch in [(short, 32), (long, 50), (long, 5)]
    ]
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[0], found[2], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found[0][0], found[0][1])


def test_nothing_grows_with_the_corpus():
    """After 24 blocks as many tensors exist as after 8,
    because results are freed when they are added.
    """
    alive = {}

    def count(share: float) -> None:
        if round(24 * share) in (8, 24):
            alive[round(24 * share)] = sum(type(held) is torch.Tensor for held in gc.get_objects())

    bound = likelihood(small_method("mdlm"), Texts(24 * BLOCK), draws=1, progress=count)
    assert bound.sums.parts == ((0, 24 * BLOCK),)
    assert alive[24] <= alive[8]


@pytest.mark.parametrize("training", [True, False])
def test_the_method_is_not_changed(training):
    method = small_method("mdlm").train(training)
    shares: list[float] = []
    likelihood(method, Texts(5), draws=1, batch=2, progress=shares.append)
    assert method.training is training
    assert shares == [0.4, 0.8, 1.0]
    assert all(parameter.grad is None for parameter in method.parameters())


# Units


UPPER = Bound(
    nats=math.log(8), error=0.01, certificate="upper", tokens=100, bytes=400, characters=300,
    draws=4, terms={"diffusion": math.log(8)}, of="7 steps",
)  # fmt: skip
EXACT = Bound(math.log(8), 0.0, "exact", 100, 400, 300, 1, {}, of="left to right")
PSEUDO = Bound(math.log(8), 0.0, "pseudo", 100, 0, 0, 1, {})


def test_units_by_hand():
    assert UPPER.perplexity == pytest.approx(8)
    assert UPPER.bits_per_byte == pytest.approx(3 * 100 / 400)
    assert UPPER.bits_per_character == pytest.approx(1)
    assert UPPER.draws_to_halve == 16 and EXACT.draws_to_halve is None


def test_errors_of_units_by_hand():
    assert UPPER.perplexity_error == pytest.approx(0.08)
    assert UPPER.bits_per_byte_error == pytest.approx(0.01 / math.log(2) * 100 / 400)
    assert UPPER.bits_per_character_error == pytest.approx(0.01 / math.log(2) * 100 / 300)
    reach = 2.5758293 * 0.01
    assert UPPER.interval == pytest.approx((UPPER.nats - reach, UPPER.nats + reach))
    assert EXACT.bits_per_byte_error == EXACT.bits_per_character_error == 0


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (UPPER, "perplexity ≤ 8.00 ± 0.08 (99%: 7.80 to 8.21) per token; an upper bound, 7 steps"),
        (EXACT, "perplexity 8.00 per token; exact, left to right"),
        (PSEUDO, "pseudo-perplexity 8.00 per token; no likelihood, no bound"),
    ],
)
def test_a_bound_as_text(bound, text):
    assert str(bound) == text


def test_a_bound_as_json():
    written = UPPER.to_dict()
    for name in ("bits_per_byte", "bits_per_byte_error", "bits_per_character_error"):
        assert written[name] == getattr(UPPER, name)
    assert written["terms"] == {"diffusion": UPPER.nats}
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    one = Bound(math.log(8), math.inf, "upper", 100, 400, 300, 1, {}).to_dict()
    assert one["bits_per_byte_error"] is one["bits_per_character_error"] is None
    without_bytes = PSEUDO.to_dict()
    assert without_bytes["bits_per_byte"] is without_bytes["bits_per_byte_error"] is None


@pytest.mark.parametrize("error", [0.01, math.inf])
def test_one_draw_does_not_show_how_many_would_halve_its_error(error):
    bound = Bound(2.0, error, "upper", 100, 400, 300, 1, {})
    assert bound.draws_to_halve is bound.to_dict()["draws_to_halve"] is None


def test_bits_of_a_measured_text():
    texts = Texts(6)
    bound = likelihood(small_method("autoregressive"), texts)
    bits = bound.nats * int(texts.valid.sum()) / math.log(2)
    assert bound.bits_per_byte == pytest.approx(bits / (40 * 6))
    assert bound.bits_per_character == pytest.approx(bits / (30 * 6))


def test_perplexity_beyond_floating_point_is_infinite():
    bound = Bound(800.0, 2.0, "upper", 4, 9, 9, 8, {"diffusion": 800.0}, freedom=7.0)
    assert bound.perplexity == bound.perplexity_error == math.inf
    assert bound.perplexity_interval == (math.inf, math.inf)
    told = bound.to_dict()
    assert (told["perplexity"], told["perplexity_interval"]) == (None, [None, None])
    assert told["nats"] == 800
    assert "≤ inf" in str(bound)
    exact = Bound(800.0, 0.0, "exact", 4, 9, 9, 1, {})
    assert (exact.perplexity, exact.perplexity_error) == (math.inf, 0.0)


# Parts


def test_the_text_of_a_part_is_estimated_by_its_share_of_tokens():
    """Long rows come first, so half of the rows have much more than half of the tokens."""
    method, texts = small_method("autoregressive"), Texts(2 * BLOCK)
    texts.valid[:BLOCK], texts.valid[BLOCK:, 2:] = True, False
    texts.tokens = texts.bytes = texts.characters = int(texts.valid.sum())
    first, second = (likelihood(method, texts, shard=(i, 2)) for i in range(2))
    assert (first.bytes, second.characters) == (BLOCK * LENGTH, BLOCK * 2)
    assert first.bits_per_byte == pytest.approx(first.nats / math.log(2))
    assert first.to_dict()["text_estimated"] is second.text_estimated is True
    both = first + second
    assert (both.bytes, both.text_estimated) == (texts.bytes, False)
    texts.text_estimated = True  # as for the first rows of a longer text
    assert likelihood(method, texts).text_estimated


def test_pairs_that_were_left_out_are_reported():
    texts = Texts(3)
    assert likelihood(small_method("autoregressive"), texts).left_out == 0
    texts.left_out = 5
    assert likelihood(small_method("autoregressive"), texts).to_dict()["left_out"] == 5


@pytest.mark.parametrize("nothing", [{"tokens": 0}, {"parts": []}, {"tokens": None}])
def test_sums_of_nothing_are_refused(nothing):
    saved = likelihood(small_method("autoregressive"), Texts(3)).sums.to_dict()
    with pytest.raises(UnmaskError, match="no sums of a measurement"):
        Sums.from_dict({**saved, **nothing})


def test_sums_come_back_from_json():
    bound = likelihood(small_method("d3pm"), Texts(5), draws=2)
    saved = json.loads(json.dumps(bound.sums.to_dict()))
    assert Sums.from_dict(saved) == bound.sums
    assert Bound.from_sums(Sums.from_dict(saved)) == bound


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 320, 1000])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_are_cut_between_blocks_and_cover_every_row_once(rows, count):
    if count > -(-rows // BLOCK):
        with pytest.raises(UnmaskError, match=f"cannot be cut into {count} shards"):
            shard_rows(rows, (0, count))
        return
    parts = [shard_rows(rows, (i, count)) for i in range(count)]
    assert [row for part in parts for row in part] == list(range(rows))
    assert all(part.start % BLOCK == 0 and len(part) for part in parts)


def test_sums_of_different_measurements_are_not_added():
    method, texts = small_method("mdlm"), Texts(2 * BLOCK)
    first, second = (likelihood(method, texts, draws=2, shard=(i, 2)) for i in range(2))
    with pytest.raises(UnmaskError, match="row 0 of the corpus was measured twice"):
        first + first
    with pytest.raises(UnmaskError, match="row 32 of the corpus was measured twice"):
        second + likelihood(method, texts, draws=2)
    for options, name in [({"draws": 3}, "draws"), ({"seed": 1}, "seed"), ({"steps": 4}, "of")]:
        with pytest.raises(UnmaskError, match=f"no parts of one measurement: {name} is"):
            first + likelihood(method, texts, shard=(1, 2), **{"draws": 2, **options})
    with pytest.raises(UnmaskError, match="a bound without sums cannot be added"):
        first + Bound(1.0, 0.1, "upper", 1, 1, 1, 2, {})


@pytest.mark.parametrize("saved", [{}, None, [], {"conditions": 3}, {"conditions": {}, "parts": 1}])
def test_invalid_sums_are_refused_in_one_line(saved):
    with pytest.raises(UnmaskError, match="no sums of a measurement"):
        Sums.from_dict(saved)


# Mistakes


@pytest.mark.parametrize("name", ["draws", "batch", "orders"])
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (0, "must be 1 or more, not 0"),
        (-1, "must be 1 or more, not -1"),
        (2.5, "must be a whole number, not 2.5"),
        (math.nan, "must be a whole number, not nan"),
        ("3", "must be a whole number, not '3'"),
    ],
)
def test_numbers_are_whole_and_at_least_one(name, value, complaint):
    with pytest.raises(UnmaskError, match=f"^{name} {complaint}$"):
        likelihood(small_method("mdlm"), Texts(2), **{name: value})


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0), (0.5, 2)])
def test_an_invalid_shard_is_refused(shard):
    with pytest.raises(UnmaskError, match=r"^shards? "):
        likelihood(small_method("mdlm"), Texts(64), shard=shard)


def test_no_rows_are_refused():
    with pytest.raises(UnmaskError, match="no text to measure"):
        likelihood(small_method("mdlm"), Texts(0))
    empty = Texts(3)
    empty.valid[:] = False
    with pytest.raises(UnmaskError, match="no text to measure: every row is empty"):
        likelihood(small_method("mdlm"), empty)
