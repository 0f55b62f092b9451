"""Conditional likelihoods against enumeration, and their independence of the batch."""

import math
from itertools import permutations, product

import pytest
import torch
from builders import schedule, small_method
from kit import Language, table_method

from unmask.extensions.lm_eval.scoring import Scorer, ScoringRequest
from unmask.methods.method import METHODS

LANGUAGE = Language.random(3, 4)
WRONG = LANGUAGE.wrong_conditionals()
MASK, LENGTH = LANGUAGE.size, LANGUAGE.length
CASES = [  # given tokens, and the number of targets; the rest of a row is masked
    ((), 4),
    ((), 2),
    ((1,), 1),
    ((1,), 3),
    ((2, 0), 1),
]


def table(conditionals: torch.Tensor | None = None):
    return table_method("mdlm", LANGUAGE, schedule("loglinear", eps=0.0), conditionals)


def every(given: tuple[int, ...], count: int) -> list[ScoringRequest]:
    """Requests for all continuations."""
    ways = product(range(LANGUAGE.size), repeat=count)
    return [ScoringRequest((*given, *way), len(given)) for way in ways]


def true_log_p(question: ScoringRequest) -> float:
    """log p(targets | given) from the language itself, summed over all following tokens."""
    x, ids = LANGUAGE.sequences, torch.tensor(question.ids)
    whole = (x[:, : len(ids)] == ids).all(1)
    known = (x[:, : question.given] == ids[: question.given]).all(1)
    return float((LANGUAGE.table[whole].sum() / LANGUAGE.table[known].sum()).log())


def by_hand(question: ScoringRequest, order: tuple[int, ...], conditionals: torch.Tensor) -> float:
    """log p of the targets one after the other, with all later tokens masked."""
    z, total = torch.full((LENGTH,), MASK), 0.0
    z[: question.given] = torch.tensor(question.ids[: question.given])
    for place in order:
        token = question.ids[place]
        total += float(conditionals[LANGUAGE.index(z, MASK + 1), place, token].log())
        z[place] = token
    return total


@pytest.mark.parametrize("order", ["left_to_right", "right_to_left"])
@pytest.mark.parametrize(("given", "count"), CASES)
def test_the_chain_rule_of_the_exact_denoiser_is_the_conditional_likelihood(given, count, order):
    questions = every(given, count)
    found = Scorer(table(), LENGTH, order=order, batch=7).log_p(questions)
    assert found == pytest.approx([true_log_p(question) for question in questions], abs=1e-5)


@pytest.mark.parametrize(("given", "count"), CASES)
def test_all_continuations_together_have_probability_one(given, count):
    log_p = Scorer(table(WRONG), LENGTH, order="left_to_right").log_p(every(given, count))
    assert math.fsum(map(math.exp, log_p)) == pytest.approx(1, abs=1e-5)
    assert max(log_p) - min(log_p) > 0.1


@pytest.mark.parametrize("name", ["autoregressive", "mdlm"])
def test_a_network_s_continuations_have_probability_one(name):
    method, order = small_method(name), {} if name == "autoregressive" else {"order": "random"}
    questions = [
        ScoringRequest((3, 1, a, b), 2) for a, b in product(range(10), repeat=2)
    ]  # no MASK
    if order:  # each request has its own order, so the sum is 1 only for one token
        questions = [ScoringRequest((3, 1, a), 2) for a in range(10)]
    log_p = Scorer(method, 8, **order).log_p(questions)
    assert math.fsum(map(math.exp, log_p)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("estimator", ["fixed_count", "stratified", "importance", "uniform"])
@pytest.mark.parametrize(("given", "count"), CASES[1:])
def test_the_bound_is_the_mean_over_the_orders_of_the_targets(given, count, estimator):
    """The spread over orders is about 1, so the error of 2048 stratified draws is far below 0.1."""
    question = every(given, count)[-1]
    places = range(len(given), len(given) + count)
    ways = [by_hand(question, order, WRONG) for order in permutations(places)]
    scorer = Scorer(table(WRONG), LENGTH, draws=2048, batch=4096, estimator=estimator)
    assert scorer.estimator.certificate == "upper"
    assert scorer.log_p([question]) == pytest.approx([sum(ways) / len(ways)], abs=0.1)


def test_the_bound_of_the_exact_denoiser_is_the_likelihood():
    questions = every((1,), 2)
    found = Scorer(table(), LENGTH, draws=512, batch=4096).log_p(questions)
    assert found == pytest.approx([true_log_p(question) for question in questions], abs=0.15)


QUESTIONS = [
    ScoringRequest((3, 1, 4, 1, 5, 9, 2, 6), 3),
    ScoringRequest((3, 1, 4, 1, 5, 9, 2), 3),
    ScoringRequest((5,), 0),
    ScoringRequest((2, 7, 1, 8), 1),
    ScoringRequest((3, 1, 4, 1, 5, 9, 2, 6), 3),
    ScoringRequest((2, 7), 2),
]
CAN = {name: METHODS[name].capabilities for name in METHODS}
HOWS = [
    *((name, {}) for name, can in CAN.items() if can.generate and not can.latent),
    ("mdlm", {"order": "left_to_right"}),
    ("mdlm", {"order": "random"}),
    ("mdlm", {"orders": 2}),
    ("mdlm", {"estimator": "importance"}),
    ("mdlm", {"steps": 3}),
]


@pytest.mark.parametrize(("name", "how"), HOWS, ids=str)
def test_the_score_of_a_request_does_not_depend_on_others(name, how):
    method = small_method(name)

    def ask(questions, **others):
        scorer = Scorer(method, 12, **{"draws": 6, **how, **others})
        return scorer.log_p(questions), scorer.greedy(questions)

    log_p, greedy = ask(QUESTIONS)
    assert log_p[0] == log_p[4] != log_p[1]
    assert max(log_p[:5]) < 0
    assert (log_p[5], greedy[5]) == (0, True)  # a request without targets
    for batch in (1, 7):
        found, wrote = ask(QUESTIONS[::-1], batch=batch)
        assert found[::-1] == pytest.approx(log_p, rel=1e-5, abs=1e-5)
        assert wrote[::-1] == greedy
    alone = [ask([question], batch=3)[0][0] for question in QUESTIONS]
    assert alone == pytest.approx(log_p, rel=1e-5, abs=1e-5)
    noisy = Scorer(method, 12, **how).estimator.noisy or how.get("order") == "random"
    assert (ask(QUESTIONS, seed=1)[0][0] != pytest.approx(log_p[0], abs=1e-4)) == noisy


def test_another_request_has_other_noise():
    others = [
        ScoringRequest((1, 2, 3), 1),
        ScoringRequest((1, 2, 4), 1),
        ScoringRequest((1, 2, 3), 2),
    ]
    assert len({question.seed(seed) for question in others for seed in (0, 1)}) == 6
    assert ScoringRequest((1, 2, 3), 1).seed(0) == others[0].seed(0)


def test_draws_of_a_request_share_strata(monkeypatch):
    """With as many draws as targets, one draw masks 1 target, one masks 2, and so on,
    in any batching.
    """
    method, counts = small_method("mdlm"), []
    nll = method.nll

    def counting(batch, noise, **others):
        counts.extend(noise.masked.sum(1).tolist())
        return nll(batch, noise, **others)

    monkeypatch.setattr(method, "nll", counting)
    Scorer(method, 8, draws=5, batch=3).log_p([ScoringRequest((3, 1, 4, 1, 5, 9), 1)])
    assert sorted(counts) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("name", "rows"), [("mdlm", 1 + 3 + 7), ("sedd", 3 * 32)])
def test_equal_masks_are_computed_once(name, rows, monkeypatch):
    """1, 2 and 3 targets have 1, 3 and 7 masks.
    A method that reads the time computes every draw.
    """
    method, batches = small_method(name), []
    questions = [ScoringRequest((3, 1, 4, 1, 5)[:end], 2) for end in (3, 4, 5)]
    with monkeypatch.context() as patch:
        apart = lambda self, noise: torch.arange(len(noise.t))[:, None].double()  # noqa: E731
        patch.setattr(type(method), "noise_key", apart)  # no draws are equal
        expected = Scorer(method, 12).log_p(questions)
    nll = method.nll
    monkeypatch.setattr(
        method,
        "nll",
        lambda one, *rest, **others: batches.append(len(one.x)) or nll(one, *rest, **others),
    )
    shares: list[float] = []
    assert Scorer(method, 12, batch=4).log_p(questions, shares.append) == pytest.approx(expected)
    assert batches == [4] * (rows // 4) + [rows % 4] * bool(rows % 4)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def likeliest(given: tuple[int, ...], count: int, order: str | None) -> tuple[int, ...]:
    """Greedy decoding by hand, from the denoiser's table."""
    z, open_places = torch.full((LENGTH,), MASK), list(range(len(given), len(given) + count))
    z[: len(given)] = torch.tensor(given, dtype=torch.long)
    while open_places:
        p = WRONG[LANGUAGE.index(z, MASK + 1), :, :MASK]
        surest = max(open_places, key=lambda place: float(p[place].max()))
        place = {"left_to_right": open_places[0], "right_to_left": open_places[-1]}.get(
            str(order), surest
        )
        z[place] = p[place].argmax()
        open_places.remove(place)
    return tuple(z[: len(given) + count].tolist())


@pytest.mark.parametrize("order", [None, "left_to_right", "right_to_left"])
@pytest.mark.parametrize(("given", "count"), CASES)
def test_only_the_greedily_decoded_continuation_is_greedy(given, count, order):
    questions = every(given, count)
    found = Scorer(table(WRONG), LENGTH, order=order, batch=5).greedy(questions)
    expected = likeliest(given, count, order)
    assert [question.ids for question, yes in zip(questions, found, strict=True) if yes] == [
        expected
    ]


def test_the_order_changes_the_greedy_continuation():
    wrote = {order: likeliest((), 4, order) for order in (None, "left_to_right", "right_to_left")}
    assert len(set(wrote.values())) == 3


def test_greedy_decoding_from_left_to_right_never_has_banned_tokens():
    method = small_method("autoregressive")
    for banned in ([], [1, 2, 4]):
        scorer = Scorer(method, 8, banned=banned)
        ids: tuple[int, ...] = (3, 1)
        for _ in range(3):
            ways = [
                ScoringRequest((*ids, token), len(ids))
                for token in range(10)
                if token not in banned
            ]
            log_p = scorer.log_p(ways)
            ids = ways[log_p.index(max(log_p))].ids
        questions = [ScoringRequest((3, 1, *way), 2) for way in product(range(10), repeat=3)]
        found = scorer.greedy(questions)
        assert [one.ids for one, yes in zip(questions, found, strict=True) if yes] == [ids]
