"""Random constraints: the text satisfies its constraint, or is refused before any network call."""

import random
import re
from collections import Counter

import pytest
import torch
from builders import MASK_SAMPLERS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import one_line

import unmask
from unmask.errors import UnmaskError

LETTERS = "The cat sdogqun."
ATOMS = ["a", "The", " ", r"\w", ".", "[a-d]", "[^ ]", "(cat|dog)", r"\.", "é"]
# analytic needs scores
NAMES = [name for name in MASK_SAMPLERS if name != "analytic"]

phrases = st.text(LETTERS, min_size=1, max_size=4)
# a hundred patterns, each compiled once; tests/constraints generates others at random
dice = random.Random(0)
REPEATS = ["", "", "?", "*", "+", "{2}", "{1,3}", "{9}"]
PATTERNS = [
    "".join(dice.choice(ATOMS) + dice.choice(REPEATS) for _ in range(dice.randint(1, 4)))
    for _ in range(60)
]
PATTERNS += [f"(?s).*{pattern}.*" for pattern in PATTERNS[:40]]
requests = st.fixed_dictionaries(
    {},
    optional={
        "regex": st.sampled_from(PATTERNS),
        "ban": st.lists(phrases, max_size=3),
        "include": st.lists(phrases, max_size=2),
        "allowed": st.dictionaries(
            st.integers(0, 9), st.sets(st.sampled_from(LETTERS), min_size=1), max_size=2
        ),
    },
)


class Guess:
    """A cheap denoiser: a fixed distribution for each set of visible tokens."""

    calls = 0

    def __init__(self, vocabulary: unmask.Vocabulary) -> None:
        self.vocabulary = vocabulary

    def __call__(self, z_t, t, at):
        Guess.calls += 1
        level = (z_t * torch.arange(1, z_t.shape[1] + 1)).sum(1)[at[0]] + at[1]
        scores = 3 * torch.cos(level[:, None] * torch.arange(1, self.vocabulary.size + 1))
        scores[:, self.vocabulary.mask_id] = -torch.inf
        return scores.log_softmax(-1)


def request_property():
    """A new copy of the property, because hypothesis settings can be applied to it only once."""

    @given(
        rule=requests,
        sampler=st.sampled_from(NAMES),
        text=st.sampled_from(
            ["", "The", "The cat", "a [MASK:4] dog", "[MASK:6]", "T[MASK]e [MASK:3]."]
        ),
        length=st.integers(4, 20),
        seed=st.integers(0, 99),
    )
    def check(model, outcomes, rule, sampler, text, length, seed):
        v = model.tokenizer.vocabulary
        Guess.calls = 0
        model.method.denoiser = lambda: Guess(v)
        verb = model.fill if "[MASK" in text else model.generate
        room = {} if "[MASK" in text else {"length": length}
        try:
            results = verb(text, sampler=sampler, seed=seed, **room, **rule)
        except UnmaskError as error:
            assert "\n" not in str(error) and str(error)
            assert Guess.calls == 0
            outcomes["refused"] += 1
            return
        outcomes["written"] += 1
        for result in results:
            written = str(result)
            assert re.fullmatch(rule.get("regex") or "(?s).*", written)
            assert all(phrase not in written for phrase in rule.get("ban", ()))
            assert all(phrase in written for phrase in rule.get("include", ()))
            for place, tokens in rule.get("allowed", {}).items():
                ids = {i for token in tokens for i in model.tokenizer.encode(token)}
                assert (
                    set(result.ids[:-1][1 + place :][:1]) <= ids
                    or v.eos_id in result.ids[: 2 + place]
                )

    return check


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_requests(model, count):
    outcomes = Counter()
    try:
        settings(max_examples=count, suppress_health_check=list(HealthCheck))(request_property())(
            model, outcomes
        )
    finally:
        del model.method.denoiser
    assert outcomes["written"] > 0.3 * count, outcomes
    assert outcomes["refused"] > 0.1 * count, outcomes


def test_a_refusal_is_one_line(model):
    with pytest.raises(UnmaskError) as caught:
        model.generate(regex="a{900}")
    assert "needs at least" in one_line(caught)
