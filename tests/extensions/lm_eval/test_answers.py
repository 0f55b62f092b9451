"""Requests of the harness: given tokens, counted tokens, and stop strings."""

import logging
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import one_line

from unmask.errors import UnmaskError
from unmask.extensions.lm_eval.model_args import Options
from unmask.extensions.lm_eval.requests import RequestRunner
from unmask.extensions.lm_eval.scoring import ScoringRequest, windows

PAIRS = [
    ("The cat", " sat on the mat."),
    ("The cat", " sat on the log."),
    ("", "The dog"),
    ("The queen sat on the ", "hill"),
    ("The dog sat", " on the old red chair."),
    ("The cat", ""),
]
UNTIL = {"until": ["."], "max_gen_toks": 10}


def answers(model, **arguments) -> RequestRunner:
    return RequestRunner(model, Options.of({"path": "unused", "draws": 4, **arguments}))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9), st.integers(0, 2))
def test_windows_score_every_token_once_with_the_longest_context(total, start, room, lead):
    start = min(start, total)
    first, ids = list(range(100, 100 + lead)), list(range(total))
    asked = list(windows(first, ids, start, room))
    assert [i for one in asked for i in one.ids[one.given :]] == ids[start:]
    for one in asked:
        assert one.ids[:lead] == tuple(first)
        body = one.ids[lead:]
        assert list(body) == list(range(body[0], body[0] + len(body)))  # nothing is skipped
        assert len(body) == min(room, body[-1] + 1)  # the row is full, or begins with the text


@pytest.mark.parametrize(
    ("context", "continuation"), [("The cat ", "sat"), ("T", "he"), ("The cat sa", "t on")]
)
def test_a_context_is_given_except_a_token_that_spans_the_continuation(
    model, context, continuation
):
    encode, bos = model.tokenizer.encode, model.tokenizer.vocabulary.bos_id
    whole, alone = encode(context + continuation), encode(context)
    same = next(i for i, (one, other) in enumerate(zip(whole, alone, strict=False)) if one != other)
    one = answers(model)
    expected = one.scorer.log_p([ScoringRequest((bos, *whole), 1 + same)])
    assert [one.loglikelihood([(context, continuation)])[0][0]] == expected


def test_the_answer_of_a_request_does_not_depend_on_others(either):
    expected = answers(either).loglikelihood(PAIRS)
    assert expected[0][0] != expected[1][0]
    assert expected[5] == (0.0, True)
    assert all(log_p < 0 for log_p, _ in expected[:5])
    for batch, requests in product((1, 3, 50), (PAIRS, PAIRS[::-1], PAIRS[1::2])):
        found = dict(
            zip(requests, answers(either, batch_size=batch).loglikelihood(requests), strict=True)
        )
        for request in requests:
            log_p, greedy = expected[PAIRS.index(request)]
            assert found[request] == (pytest.approx(log_p, rel=1e-5), greedy)


def test_an_autoregressive_model_is_exact(left_to_right):
    """p(whole | BOS) = p(context | BOS) p(continuation | context), and its own bound agrees."""
    one = answers(left_to_right, draws=1)
    (whole, _), (context, _), (rest, _) = one.loglikelihood(
        [("", "The cat sat."), ("", "The cat"), ("The cat", " sat.")]
    )
    assert whole == pytest.approx(context + rest, rel=1e-5)
    assert one.rolling(["The cat sat."]) == [pytest.approx(whole, rel=1e-6)]
    bound = left_to_right.perplexity(["The cat sat."])
    total = bound.nats * bound.tokens  # also counts BOS and EOS
    frame = answers(left_to_right).scorer.log_p(_frame(left_to_right, "The cat sat."))
    assert total == pytest.approx(-whole - sum(frame), rel=1e-5)


def test_shorter_rows_cost_less(model, left_to_right):
    """Rows behind a continuation change nothing for an exact model, and are computed for a bound."""
    exact = [answers(left_to_right, **some) for some in ({}, {"row_length": "20"})]
    (long, _), (short, _) = (one.loglikelihood([("The cat", " sat.")])[0] for one in exact)
    assert short == pytest.approx(long, rel=1e-5)
    bound = answers(model, row_length=20)
    assert (
        bound.about["unmask_length"] == 20 and bound.loglikelihood([("The cat", " sat.")])[0][0] < 0
    )
    with pytest.raises(UnmaskError, match="row_length must be at most the model's 24 tokens"):
        answers(model, row_length=25)


def test_a_text_that_fills_a_row_has_the_likelihood_of_evaluate(model):
    """`unmask evaluate` also counts BOS and EOS.
    In the harness BOS is given and EOS is left out.
    """
    encode, letters = model.tokenizer.encode, "The dog sat on the old red chair. " * 3
    texts = (letters[:end] for end in range(len(letters)))
    text = next(text for text in texts if len(encode(text)) == model.length - 2)
    one = answers(model, order="left_to_right")
    whole = one.rolling([text])[0] + sum(one.scorer.log_p(_frame(model, text)))
    bound = model.perplexity([text], order="left_to_right")
    assert -bound.nats * bound.tokens == pytest.approx(whole, rel=1e-5)


def _frame(model, text: str) -> list[ScoringRequest]:
    v, ids = model.tokenizer.vocabulary, model.tokenizer.encode(text)
    return [
        ScoringRequest((v.bos_id,), 0),
        ScoringRequest((v.bos_id, *ids, v.eos_id), len(ids) + 1),
    ]


def test_a_long_text_is_read_in_windows_and_a_short_one_as_a_continuation_of_nothing(either):
    one = answers(either)
    text = "The cat sat on the warm stone of the wall. The dog sat on the old red chair." * 3
    ids, room = either.tokenizer.encode(text), either.length - 2
    assert len(ids) > room
    (rolled,) = one.rolling([text])
    bos = either.tokenizer.vocabulary.bos_id
    parts = list(windows([bos], ids, 0, room))
    assert len(parts) > 1
    assert rolled == pytest.approx(sum(one.scorer.log_p(parts)), rel=1e-6)
    short = "The cat sat on"
    assert one.rolling([short, ""]) == [one.loglikelihood([("", short)])[0][0], 0]


def test_a_context_that_is_too_long_loses_its_start_with_one_warning(either, caplog):
    one = answers(either)
    end = " sat on"
    long = "The dog sat on the old red chair. " * 9 + "The cat"
    kept = either.length - 2 - len(either.tokenizer.encode(end))
    ids = either.tokenizer.encode(long + end)
    tail = ScoringRequest(
        (either.tokenizer.vocabulary.bos_id, *ids[-either.length + 2 :]), kept + 1
    )
    with caplog.at_level(logging.WARNING):
        found = one.loglikelihood([(long, end), ("The", end), (long, end)])
    assert found[0] == found[2]
    assert found[0][0] == pytest.approx(one.scorer.log_p([tail])[0], rel=1e-6)
    (record,) = caplog.records
    assert record.getMessage().startswith("2 of 3 requests are longer than rows of 24 tokens")


def test_a_continuation_longer_than_a_row_is_the_sum_of_its_windows(either):
    one, text = answers(either), "The cat sat on the warm stone of the wall." * 4
    ((log_p, greedy),) = one.loglikelihood([("", text)])
    assert log_p == pytest.approx(one.rolling([text])[0], rel=1e-6)
    assert not greedy


def test_a_text_stops_at_the_stop_string(either):
    one = answers(either, temperature=1)
    contexts = [f"The {who}{rest}" for who in ("cat", "dog", "queen") for rest in ("", " sat")]
    free = one.generate_until([(context, {"max_gen_toks": 10}) for context in contexts])
    letters, rarer = (letter for letter, _ in Counter("".join(free)).most_common(2))
    stops = [rarer, letters, "zzz", ""]
    cut = one.generate_until([(text, {"until": stops, "max_gen_toks": 10}) for text in contexts])
    assert cut == [text.partition(letters)[0].partition(rarer)[0] for text in free]
    assert cut != free
    asked = {"until": letters, "max_gen_toks": 10}
    single = one.generate_until([(text, asked) for text in contexts])
    assert single == [text.partition(letters)[0] for text in free]
    encode = either.tokenizer.encode
    assert max(len(encode(text)) for text in free) <= 10
    short = one.generate_until([(text, {"max_gen_toks": 3}) for text in contexts])
    assert all(len(encode(text)) <= 3 for text in short)
    assert any(short)


def test_generated_text_depends_only_on_the_request(either):
    requests = [(context, UNTIL) for context in ("", "The", "The cat", "The queen sat on the")]
    requests += [("The dog", {**UNTIL, "max_gen_toks": 15}), ("The", {**UNTIL, "do_sample": True})]
    expected = answers(either).generate_until(requests)
    for batch in (1, 5):
        found = answers(either, batch_size=batch).generate_until(requests[::-1])
        assert found[::-1] == expected


def test_decoding_is_greedy_by_default_and_repeats_are_other_draws(either):
    drawn = {**UNTIL, "until": [], "do_sample": True, "temperature": 1.5}
    same, others = [("The", {**UNTIL, "until": []})] * 4, [("The", drawn)] * 4
    assert len(set(answers(either).generate_until(same))) == 1
    assert len(set(answers(either).generate_until(others))) > 1
    assert len(set(answers(either, temperature=1.5).generate_until(same))) > 1
    greedy = answers(either).generate_until(same)
    assert answers(either, temperature=0).generate_until(others) == greedy
    seeds = [answers(either, seed=seed).generate_until(others) for seed in (0, 1)]
    assert seeds[0] != seeds[1]


def test_greedily_decoded_text_is_scored_as_greedy(left_to_right):
    one = answers(left_to_right)
    contexts = ["The cat", "The dog sat", "The"]
    texts = one.generate_until([(context, {"max_gen_toks": 9}) for context in contexts])
    found = one.loglikelihood(list(zip(contexts, texts, strict=True)))
    assert all(texts)
    assert [greedy for _, greedy in found] == [True] * 3
    others = [(context, text[:-1] + "x") for context, text in zip(contexts, texts, strict=True)]
    assert [greedy for _, greedy in one.loglikelihood(others)] == [False] * 3


def test_a_long_context_leaves_room_to_write(either, caplog):
    one = answers(either)
    with caplog.at_level(logging.WARNING):
        texts = one.generate_until(
            [("The cat sat on the mat. " * 9, {"max_gen_toks": 999, "num_beams": 4})]
        )
    assert len(either.tokenizer.encode(texts[0])) <= either.length // 2
    told = [record.getMessage() for record in caplog.records]
    assert told[0] == "generation options that unmask lacks are ignored: num_beams"
    assert told[1].startswith("1 of 1 requests")


def test_a_context_is_a_source_to_a_model_of_pairs(pairs):
    one = answers(pairs, order="left_to_right")
    v, encode = pairs.tokenizer.vocabulary, pairs.tokenizer.encode
    source, target = encode("The cat"), encode("on the mat.")
    asked = ScoringRequest((v.bos_id, *source, v.eos_id, *target), len(source) + 2)
    ((log_p, _),) = one.loglikelihood([("The cat", "on the mat.")])
    assert log_p == pytest.approx(one.scorer.log_p([asked])[0])
    (text,) = one.generate_until([("The cat", {"max_gen_toks": 30})])
    (written,) = pairs.generate(["The cat"], sampler="confidence", strategy="deterministic")
    assert text == str(written)
    with pytest.raises(UnmaskError) as caught:
        one.rolling(["The cat"])
    assert "targets for sources" in one_line(caught)


def test_mistakes_are_reported_before_any_network_call(model, left_to_right):
    for arguments, words in [
        ({"order": "left_to_rihgt"}, "did you mean 'left_to_right'"),
        ({"draws": 0}, "draws must be 1 or more"),
        ({"sampler": "confidense"}, "unknown sampler 'confidense'; did you mean 'confidence'"),
        ({"temperature": -1}, "temperature"),
        ({"label": "x"}, "trained without labels"),
        ({"batch_size": 0}, "batch_size must be 1 or more"),
        ({"order": "random", "orders": 3}, "measure different things"),
    ]:
        with pytest.raises(UnmaskError) as caught:
            answers(model, **arguments)
        assert words in one_line(caught), arguments
    with pytest.raises(UnmaskError, match="one order: left_to_right"):
        answers(left_to_right, order="random")
    with pytest.raises(UnmaskError, match="cannot use this sampler: give left_to_right"):
        answers(left_to_right, sampler="ancestral")


def test_results_contain_the_kind_of_likelihood(model, left_to_right):
    assert answers(model).about["unmask_likelihood"].startswith("an upper bound, continuous time")
    assert answers(model, order="random").about["unmask_draws"] == 1
    assert answers(left_to_right).about["unmask_likelihood"] == "exact, left to right"
