"""The chain rule in an order, the bound over orders and the pseudo-likelihood,
against enumeration.
"""

import math
from itertools import permutations, product

import pytest
import torch
from builders import schedule, small_method
from kit import expected_bound, table_method
from toy_corpus import Corpus, listed

from unmask.errors import UnmaskError
from unmask.likelihood.estimate import choose_estimator, likelihood, nats_by_row

LANGUAGE, ROWS = listed()
WRONG = LANGUAGE.wrong_conditionals()  # each order has its own likelihood
METHOD = table_method("mdlm", LANGUAGE, schedule("loglinear", eps=0.0), WRONG, times="importance")
ORDERS = list(permutations(range(3)))


def by_hand(order: tuple[int, ...]) -> torch.Tensor:
    """-log p of every row, token by token in an order, from the denoiser's table."""
    z, total = torch.full_like(ROWS, LANGUAGE.size), torch.zeros(len(ROWS), dtype=torch.float64)
    for place in order:
        p = WRONG[LANGUAGE.index(z, LANGUAGE.size + 1), place]
        total -= p.gather(1, ROWS[:, place : place + 1])[:, 0].log()
        z[:, place] = ROWS[:, place]
    return total


ALL = torch.stack([by_hand(order) for order in ORDERS])  # [order, row]


@pytest.mark.parametrize("batch", [1, 50, 1000])
@pytest.mark.parametrize("order", ["left_to_right", "right_to_left", (1, 0, 2), [2, 0, 1]])
def test_the_chain_rule_is_the_product_of_the_denoisers_conditionals(order, batch):
    names = {"left_to_right": (0, 1, 2), "right_to_left": (2, 1, 0)}
    expected = by_hand(names[order] if isinstance(order, str) else tuple(order))
    bound = likelihood(METHOD, Corpus(ROWS), order=order, batch=batch)
    assert bound.nats == pytest.approx(float(expected.mean()) / 3, rel=1e-6)
    assert (bound.certificate, bound.error, bound.draws) == ("exact", 0.0, 1)
    assert bound.of in (order, f"the order {', '.join(map(str, order))}")


def test_all_texts_together_have_probability_one_in_every_order():
    every = Corpus(LANGUAGE.sequences)
    for order in ORDERS:
        nll = nats_by_row(METHOD, every, order=order)["nll"][0]
        assert float((-nll).exp().sum()) == pytest.approx(1)


def test_a_random_order_is_another_for_each_row_and_seed_and_the_same_at_any_batch():
    nll = [
        nats_by_row(METHOD, Corpus(ROWS), order="random", seed=seed, batch=batch)["nll"][0]
        for seed, batch in [(0, 64), (0, 5), (1, 64)]
    ]
    torch.testing.assert_close(nll[0], nll[1])
    assert not torch.allclose(nll[0], nll[2])
    which = (ALL - nll[0]).abs().argmin(0)  # the order of each row
    torch.testing.assert_close(ALL.gather(0, which[None])[0], nll[0], rtol=1e-5, atol=1e-5)
    counts = torch.bincount(which, minlength=6)
    assert (counts > 0).all()  # 64 rows miss one of the six orders with a chance of 5e-5


def test_the_bound_over_orders_has_the_mean_of_all_ways_to_draw_them():
    """K = 1 is the NELBO, K = 2 is less, and neither is below the value of all orders.
    T of 8 draws: 1e-6.
    """
    means = []
    for k in (1, 2):
        ways = torch.stack([-(-ALL[list(way)]).logsumexp(0) for way in product(range(6), repeat=k)])
        means.append(float((ways + math.log(k)).mean()) / 3)
        found = likelihood(METHOD, Corpus(ROWS), orders=k, draws=200, batch=4000)
        assert abs(found.nats - means[-1]) < 5 * found.error
        assert (found.certificate, found.terms.keys()) == ("upper", {"any_order"})
    nelbo = expected_bound(METHOD, LANGUAGE) / 3
    assert means[0] == pytest.approx(nelbo, rel=1e-6)
    marginal = float((math.log(6) - (-ALL).logsumexp(0)).mean()) / 3
    assert nelbo > means[1] + 0.01 > marginal + 0.02


def test_it_tightens_with_k_and_its_rows_do_not_depend_on_the_batch():
    found = [likelihood(METHOD, Corpus(ROWS), orders=k, draws=4, batch=500) for k in (1, 4, 16)]
    assert found[0].nats > found[1].nats > found[2].nats
    again = likelihood(METHOD, Corpus(ROWS), orders=4, draws=4, batch=7)
    assert again.nats == pytest.approx(found[1].nats, rel=1e-6)


def test_the_pseudo_likelihood_masks_one_token_at_a_time():
    z = ROWS[:, None].masked_fill(torch.eye(3).bool(), LANGUAGE.size)
    p = WRONG[LANGUAGE.index(z, LANGUAGE.size + 1)]  # [row, masked position, position, token]
    alone = p.diagonal(dim1=1, dim2=2).gather(1, ROWS[:, None])[:, 0]
    bound = likelihood(METHOD, Corpus(ROWS), estimator="pseudo")
    assert bound.nats == pytest.approx(-float(alone.log().mean()), rel=1e-6)
    assert (bound.certificate, bound.error) == ("pseudo", 0.0)


@pytest.mark.parametrize("exact", [True, False])
def test_the_pseudo_likelihood_is_below_the_entropy_and_the_bound_is_not(exact):
    """BERT-Mouth's figure for the true conditionals is lower than the figure of
    any model can be.
    """
    conditionals = LANGUAGE.conditionals if exact else WRONG
    method = table_method("mdlm", LANGUAGE, schedule("loglinear", eps=0.0), conditionals)
    entropy = LANGUAGE.entropy / 3
    if exact:
        assert likelihood(method, Corpus(ROWS), estimator="pseudo").nats < entropy - 0.05
    bound = likelihood(method, Corpus(ROWS), orders=1, draws=2)
    assert bound.nats > entropy - 1e-6 and bound.certificate == "upper"
    assert (bound.nats < entropy + 0.05) == exact


@pytest.mark.parametrize(
    "how", [{"order": "right_to_left"}, {"orders": 2}, {"estimator": "pseudo"}]
)
def test_padding_is_neither_counted_nor_read(how):
    """With a real network a padded row has the nats of the row without padding, for any padding."""
    method = small_method("mdlm")
    x = torch.randint(1, 10, (3, 8), generator=torch.Generator().manual_seed(0))
    padded, other = (
        nats_by_row(method, Corpus(rows, torch.tensor([5, 5, 5])), draws=1, **how)
        for rows in (x, torch.cat([x[:, :5], x[:, 5:].flip(1)], 1))
    )
    (name,) = padded
    torch.testing.assert_close(padded[name], other[name])
    if "orders" not in how:  # draws of orders depend on the width
        short = nats_by_row(method, Corpus(x[:, :5]), draws=1, **how)
        torch.testing.assert_close(padded[name], short[name], rtol=1e-5, atol=1e-5)


def padded_rows(*sizes: int) -> Corpus:
    """Rows of 8 positions with these numbers of tokens."""
    x = torch.randint(1, 10, (len(sizes), 8), generator=torch.Generator().manual_seed(0))
    return Corpus(x, torch.tensor(sizes))


def test_an_order_of_the_positions_of_a_text_ignores_its_padding():
    """The nats equal those of the text alone,
    and those of an order that contains the padding anywhere.
    """
    method, text, order = small_method("mdlm"), padded_rows(5, 5), [2, 0, 4, 1, 3]
    found = nats_by_row(method, text, order=order)["nll"]
    short = nats_by_row(method, Corpus(text.x[:, :5]), order=order)["nll"]
    torch.testing.assert_close(found, short, rtol=1e-5, atol=1e-5)
    whole = nats_by_row(method, text, order=[7, 2, 0, 6, 4, 5, 1, 3])["nll"]
    torch.testing.assert_close(found, whole)


@pytest.mark.parametrize(
    ("sizes", "order", "have"),
    [
        ((5, 5), [2, 0, 1], "5"),
        ((5, 5), [0, 1, 2, 3, 3], "5"),
        ((5, 3), [2, 0, 4, 1, 3], "3 to 5"),
        ((5, 3), [2, 0, 1], "3 to 5"),
    ],
)
def test_an_order_of_wrong_positions_is_refused_in_one_line(sizes, order, have):
    with pytest.raises(UnmaskError) as caught:
        likelihood(small_method("mdlm"), padded_rows(*sizes), order=order)
    assert str(caught.value) == (
        f"the order does not fit rows of 8 positions with {have} tokens: give each position of a row "
        "once, from 0; if all texts have one length, their positions are enough"
    )


class Filled(Corpus):
    """Rows of two given tokens, some counted tokens, and filling to the end of the row."""

    sizes = torch.tensor([1, 3, 4, 6])

    def given(self, rows: range) -> torch.Tensor:
        return (torch.arange(8) < 2).expand(len(rows), 8)

    def counted(self, rows: range) -> torch.Tensor:
        return self.sizes[rows.start : rows.stop]


FILLED = Filled(torch.randint(1, 10, (4, 8), generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("how", [{"order": "left_to_right"}, {"estimator": "pseudo"}])
def test_filling_after_a_target_is_masked_or_read_and_never_counted(how):
    method = small_method("mdlm")
    expected = []
    for row, size in zip(FILLED.x, FILLED.sizes.tolist(), strict=True):
        total = 0.0
        for place in range(2, 2 + size):
            z = row.clone()
            z[place : 8 if "order" in how else place + 1] = method.vocabulary.mask_id
            with torch.no_grad():
                log_p = method.log_mean(method.backbone.features(z[None])[0])
            total -= float(log_p[place, row[place]])
        expected.append(total)
    (found,) = nats_by_row(method, FILLED, batch=3, **how).values()
    assert found[0].tolist() == pytest.approx(expected, rel=1e-5)
    assert likelihood(method, FILLED, **how).nats == pytest.approx(sum(expected) / 14, rel=1e-5)


@pytest.mark.parametrize("order", ["right_to_left", "random", list(range(8))])
def test_another_order_would_measure_the_filling_and_is_refused(order, monkeypatch):
    method = small_method("mdlm")
    monkeypatch.setattr(method.backbone, "features", None)  # the network is not called
    with pytest.raises(UnmaskError, match="would also score the EOS tokens after") as caught:
        likelihood(method, FILLED, order=order)
    assert "\n" not in str(caught.value)


def test_the_bound_over_orders_includes_the_filling_and_is_still_a_bound():
    method = small_method("mdlm")
    found = likelihood(method, FILLED, orders=2, draws=4)
    counted = likelihood(method, FILLED, order="left_to_right")
    assert (found.certificate, found.tokens) == ("upper", 14)
    assert found.nats > 1.3 * counted.nats  # the bound includes 24 tokens of filling


def test_an_autoregressive_model_has_its_own_order():
    method, corpus = small_method("autoregressive"), Corpus(ROWS + 1)
    own, asked = likelihood(method, corpus), likelihood(method, corpus, order="left_to_right")
    assert asked == own
    assert own.of == "left to right"


@pytest.mark.parametrize(
    ("name", "how", "complaint"),
    [
        ("autoregressive", {"order": "random"}, "has one order: left_to_right"),
        ("autoregressive", {"orders": 4}, "has one order: left_to_right"),
        ("autoregressive", {"estimator": "pseudo"}, "pseudo needs a model that sees both sides"),
        ("sedd", {"orders": 2}, "reads the time"),
        ("sedd", {"order": "left_to_right"}, "reads the time"),
        ("mdlm", {"order": "left_to_rigth"}, "did you mean 'left_to_right'?"),
        ("mdlm", {"order": [0, 1]}, "each of the 3 positions of a row once"),
        ("mdlm", {"order": [0, 1, 1]}, "each of the 3 positions of a row once"),
        ("mdlm", {"order": "random", "orders": 2}, "order and orders measure different things"),
        ("mdlm", {"estimator": "pseudo", "steps": 3}, "estimator and steps measure different"),
        ("mdlm", {"steps": 3, "orders": 2}, "steps and orders measure different things"),
    ],
)
def test_methods_without_such_a_likelihood_are_refused_in_one_line(name, how, complaint):
    with pytest.raises(UnmaskError) as caught:
        likelihood(small_method(name), Corpus(ROWS + 1), **how)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_network_that_reads_the_time_is_refused_whatever_the_method():
    with pytest.raises(UnmaskError, match="time_conditioning false"):
        choose_estimator(small_method("mdlm", time_conditioning=True), orders=2)
