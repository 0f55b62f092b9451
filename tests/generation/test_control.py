"""Settings of a user: the sampler and its options, the end of a text, and the part that is rewritten."""

import re
from itertools import pairwise

import pytest
import torch
from builders import MASK_SAMPLERS
from tiny_models import LENGTH, PROMPTS, content, one_line, train_tiny

import unmask
from unmask.errors import UnmaskError
from unmask.generation.ending import last_sentence
from unmask.samplers.ancestral import Ancestral, FirstHitting
from unmask.samplers.semi_autoregressive import SemiAutoregressive

# analytic needs scores
ANY_ORDER = [name for name in MASK_SAMPLERS if name != "analytic"]

# Samplers


def assert_alone(model, name: str, prompts: list[str], every: int) -> None:
    """Generates prompts together, and every `every`-th of them alone."""
    together = model.generate(prompts, sampler=name, seed=11)
    assert len(together) == len(prompts)
    for prompt, result in list(zip(prompts, together, strict=True))[::every]:
        alone = model.generate(prompt, sampler=name, seed=result.seed)[0]
        assert content(alone) == content(result)


THIRTY_TWO = [f"{PROMPTS[i % len(PROMPTS)]}{' the' * (i % 5)}" for i in range(32)]


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ANY_ORDER)
def test_thirty_two_prompts_together_equal_each_alone(model, name, every):
    assert_alone(model, name, THIRTY_TWO, every)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_analytic_texts_together_equal_each_alone(tmp_path, every):
    model = unmask.load(train_tiny(tmp_path, "bpe", "sedd", "dit"))
    assert_alone(model, "analytic", THIRTY_TWO, every)


@pytest.mark.parametrize("name", ANY_ORDER)
def test_every_sampler_fills_gaps(model, name):
    for result in model.fill("The [MASK:3] sat on the [MASK].", n=3, sampler=name):
        assert str(result).startswith("The")
        assert " sat on the" in str(result)
        assert model.tokenizer.vocabulary.mask_id not in result.ids


@pytest.mark.parametrize("name", ANY_ORDER)
def test_every_sampler_writes_long_texts(model, name):
    long = model.generate("The", sampler=name, length=2 * LENGTH + 5, stop=False)[0]
    assert len(long.ids) == 2 * LENGTH + 5


def test_a_samplers_name_may_contain_its_settings(model):
    def written(**options):
        return [content(result) for result in model.generate("The", n=6, seed=1, **options)]

    six = written(sampler=Ancestral(6, "cosine"))
    assert written(sampler="ancestral:steps=6,grid=cosine") == six
    assert written(sampler="ancestral", steps=6, grid="cosine") == six
    assert written(steps=6, grid="cosine") == six
    # the setting in the name wins
    assert written(sampler="ancestral:steps=6", steps=9, grid="cosine") == six
    assert written(steps=6) != six
    assert written(sampler="first_hitting") == written(sampler=FirstHitting())
    given = written(grid="1,0.5,0.1,0")
    assert given == written(sampler=Ancestral(3, "1,0.5,0.1,0"))


def test_windows_can_be_set(model):
    spec = "semi_autoregressive:stride=5,window=12,inner=first_hitting"
    v = model.tokenizer.vocabulary
    asked = SemiAutoregressive(12, 5, FirstHitting(), lead=1, end=v.eos_id)
    texts = [
        content(model.generate("The", sampler=sampler, length=40, stop=False)[0])
        for sampler in (spec, asked)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "ancestral:stepps=3"}, "did you mean 'steps'?"),
        ({"sampler": "ancestral:steps=three"}, "ancestral:steps: 'three' is not a whole number"),
        ({"sampler": "first_hitting", "steps": 3}, "first_hitting has no steps"),
        ({"sampler": "left_to_right", "grid": "cosine"}, "left_to_right has no grid"),
        ({"sampler": FirstHitting(), "steps": 3}, "this sampler is an object"),
        ({"grid": "cosin"}, "did you mean 'cosine'?"),
        ({"grid": "1,0.5,0.7,0"}, "must fall from 1 to 0"),
        ({"grid": "1,0.5"}, "must fall from 1 to 0"),
        ({"grid": "1,x,0"}, "is no list of times"),
        ({"grid": "1,0.5,0", "steps": 3}, "the grid has 2 steps, and steps is 3"),
        ({"steps": 10**9}, "steps must be 1000000 or less"),
        ({"n": 10**9}, "n must be 1 or more, and 1,048,576 at most"),
        ({"length": 10**9}, "length must be 2 or more, and 1048576 at most"),
        ({"temperature": 1e9}, "temperature must be 0 or more, and 1e+06 at most"),
        ({"seed": 1.5}, "seed must be a whole number or a list of them, not 1.5"),
        ({"label": "good", "guide": "runs/mine"}, "guide is a model, not 'runs/mine'"),
        ({"sampler": "confidence:noise=1e300"}, "noise must be 0 or more, and 1e+06 at most"),
        ({"sampler": "gibbs:inner=gibbs"}, "cannot be its own inner sampler"),
        (
            {"sampler": "semi_autoregressive:lead=3"},
            "unknown setting of semi_autoregressive 'lead'",
        ),
        ({"sampler": "remask", "strategy": "hybrid"}, "a sampler that revises lacks"),
        ({"allowed": {-1: ["T"]}}, "allowed has position -1"),
        ({"allowed": {0: []}}, "no token is allowed at position 0"),
        ({"strategy": "hybird"}, "did you mean 'hybrid'?"),
        ({"strategy": "hybrid", "tail": 1.5}, "tail must be 0 or more, and 1 at most"),
        ({"tail": 0.5}, "tail is for strategy hybrid"),
        ({"temprature": 1.0}, "did you mean 'temperature'?"),
        ({"prompts": "The [MASK] sat"}, "has a gap: use fill instead"),
        ({"prompts": 3}, "n is the number of texts"),
        ({"length": "auto", "stop": False}, "length auto needs texts that end at EOS"),
    ],
)
def test_a_mistake_is_one_line(model, options, message):
    with pytest.raises(UnmaskError) as caught:
        model.generate(**options)
    assert message in one_line(caught)


def test_a_gap_of_a_thousand_million_is_refused(model):
    with pytest.raises(UnmaskError, match="is no gap"):
        model.fill("The [MASK:1000000000]")


@pytest.mark.parametrize("options", [{"temperature": 1e-50}, {"top_p": 1e-50}, {"top_k": 10**9}])
def test_extreme_settings_are_greedy_or_have_no_effect(model, options):
    (extreme,) = model.generate("The", **options)
    (plain,) = model.generate("The", **({} if "top_k" in options else {"temperature": 0.0}))
    assert content(extreme) == content(plain)


def test_the_tail_is_not_drawn(model):
    def texts(**options):
        return [str(r) for r in model.generate("The", n=6, sampler="left_to_right", **options)]

    certain = texts(strategy="deterministic")
    assert len(set(certain)) == 1
    assert certain == texts(strategy="hybrid", tail=1.0) == texts(temperature=0.0)
    assert texts(strategy="hybrid", tail=0.0) == texts() != certain


# Constraints

RULES = [
    {"regex": r"[A-Z][a-z]+( [a-z]+){2,6}\."},
    {"ban": ["cat", "h"], "include": ["stone", "dog"]},
    {"regex": r"(?s).*\d{2}.*", "ban": ["12", "7"], "include": ["sat", "(1)"]},
    {"allowed": {0: ["T"], 3: list("abc")}},
]


def satisfied(text: str, regex: str = "(?s).*", ban=(), include=(), allowed=()) -> bool:
    free = all(phrase not in text for phrase in ban)
    return bool(re.fullmatch(regex, text)) and free and all(phrase in text for phrase in include)


@pytest.mark.parametrize(
    "rule", [*RULES[::2], *(pytest.param(r, marks=pytest.mark.slow) for r in RULES[1::2])], ids=str
)
@pytest.mark.parametrize("name", ANY_ORDER)
def test_a_constrained_text_satisfies_its_constraint(model, name, rule):
    results = model.generate(n=3, sampler=name, seed=5, temperature=1.5, **rule)
    for result in results:
        assert satisfied(str(result), **rule)
    for place, tokens in rule.get("allowed", {}).items():
        allowed = {model.tokenizer.encode(token)[0] for token in tokens}
        assert {token for result in results for token in result.ids[1 + place :][:1]} <= allowed
    alone = model.generate(sampler=name, seed=results[1].seed, temperature=1.5, **rule)[0]
    assert content(alone) == content(results[1])


def test_constraints_hold_over_windows_gaps_and_edits(model, left_to_right):
    rule = {"ban": ["cat", " on"], "include": ["warm"]}
    results = model.generate("The", n=4, length=3 * LENGTH, **rule)
    results += model.generate("The", n=2, length=2 * LENGTH, stop=False, **rule)
    results += left_to_right.generate("The", n=4, length=2 * LENGTH, **rule)
    results += model.fill("The [MASK:4] sat [MASK:8].", n=4, **rule)
    results += model.edit("The old cat sat by the sea", remask_span=(2, 9), n=4, **rule)
    assert all(satisfied(str(result), **rule) for result in results)


def test_words_that_must_occur_are_not_pushed_to_the_end(model):
    texts = [str(r) for r in model.generate(n=30, length=24, include=["stone"], stop=False)]
    places = [text.index("stone") / len(text) for text in texts]
    assert min(places) < 0.2 and max(places) > 0.6
    # the text is not much longer either
    for result in model.generate(n=8, length="auto", include=["stone"]):
        assert "stone" in model.tokenizer.decode(result.ids[: LENGTH + 8])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regex": "[a-z]{500}"}, "the regular expression needs at least"),
        ({"regex": r"(a)\1"}, "backreference"),
        ({"regex": "("}, "regular expression"),
        ({"prompts": "The cat", "ban": ["cat"]}, "'cat'"),
        ({"ban": [""]}, "is empty"),
        ({"include": ["a stone"], "ban": ["one"]}, "which is banned"),
        ({"include": ["stone " * 30]}, "stone"),
        ({"allowed": {0: ["The cat"]}}, "tokens, not one"),
        ({"allowed": {99: ["T"]}}, "allowed has position 99"),
    ],
)
def test_an_impossible_constraint_is_refused_before_any_call(model, options, message, monkeypatch):
    def denoiser():
        raise AssertionError("the network was asked")

    monkeypatch.setattr(model.method, "log_x_theta", denoiser)
    with pytest.raises(UnmaskError) as caught:
        model.generate(**options)
    assert message in one_line(caught)


# The end of a text


def test_a_text_of_automatic_length_ends_itself(either):
    eos = either.tokenizer.vocabulary.eos_id
    results = either.generate(n=6, length="auto")
    assert all(result.ids[-1] == eos for result in results)
    assert len({len(result.ids) for result in results}) > 1
    for result in results:
        assert content(either.generate(length="auto", seed=result.seed)[0]) == content(result)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("The cat sat on the mat. It", "The cat sat on the mat."),
        ('He said "Hi." Then he', 'He said "Hi."'),
        (
            'The big cat sat on the mat. He said "Yes. I',
            "The big cat sat on the mat.",
        ),  # a text does not end inside a quotation
        ("The cat saw Mr. Fox and", None),
        ("The cat sat.", None),  # the sentence ends at the end of the text
        ("A. The cat sat on the mat", None),  # too little text would remain
        ("The cat has 3.5 mats", None),
    ],
)
def test_the_last_sentence_of_a_text_is_found(text, kept):
    words = re.findall(r"\s?\S+", text)
    end = last_sentence(words, given=0)
    assert kept == (None if end is None else "".join(words[:end]))


def test_a_text_that_fills_its_length_ends_with_a_sentence_everywhere(model):
    how = {"length": LENGTH, "ban": ["<none>"], "seed": 3, "n": 8}
    free = model.generate("The cat sat.", **how)
    ended = model.generate("The cat sat.", ending="sentence", **how)
    shorter = [b for a, b in zip(free, ended, strict=True) if a.text != b.text]
    assert shorter
    for result in shorter:
        assert result.text.rstrip()[-1] in ".!?\"'"
        assert result.ids[-1] == model.tokenizer.vocabulary.eos_id
    assert all(a.text.startswith(b.text) for a, b in zip(free, ended, strict=True))
    *_, last = model.stream("The cat sat.", ending="sentence", **how)
    assert [row[: len(r.ids)] for row, r in zip(last.tokens.tolist(), ended, strict=True)] == [
        result.ids for result in ended
    ]
    whole = model.generate("The cat", ending="sentence", length=LENGTH, stop=False)[0]
    assert len(whole.ids) == LENGTH
    for option in ({"regex": "[a-z. ]*"}, {"json_schema": {"type": "string", "minLength": 9}}):
        how = {"length": LENGTH, "seed": 3, "n": 8, **option}
        free, ended = (model.generate(ending=ending, **how) for ending in ("free", "sentence"))
        assert [a.text for a in ended] == [b.text for b in free]  # a constraint holds to the end


def test_nothing_is_generated_after_the_end_of_a_long_text(either):
    v = either.tokenizer.vocabulary
    for result in either.generate(n=8, length=4 * LENGTH):
        assert v.eos_id not in result.ids[:-1]
        assert not {v.mask_id, v.pad_id} & set(result.ids)
        windows = -(-len(result.ids) // (LENGTH // 2 - 1)) + 1
        assert result.calls <= windows * LENGTH  # not those of the whole canvas


# Editing

TEXT = "The cat sat on the mat. The dog sat on"


def body(model, result) -> list[int]:
    return result.ids[1:-1]


def test_a_share_is_rewritten_and_the_rest_kept(model):
    ids = model.tokenizer.encode(TEXT)
    count = round(0.3 * len(ids))
    rewritten = set()
    for result in model.edit(TEXT, remask=0.3, n=8, temperature=3.0):
        changed = [
            i for i, (a, b) in enumerate(zip(body(model, result), ids, strict=True)) if a != b
        ]
        assert len(changed) <= count
        assert result.calls <= count
        rewritten.update(changed)
        again = model.edit(TEXT, remask=0.3, temperature=3.0, seed=result.seed)[0]
        assert content(again) == content(result)
    assert len(rewritten) > count  # each text has other positions


def test_a_span_is_rewritten(model):
    ids = model.tokenizer.encode(TEXT)
    results = model.edit(TEXT, remask_span=(2, 6), n=8, temperature=3.0)
    for result in results:
        written = body(model, result)
        assert written[:2] == ids[:2]
        assert written[6:] == ids[6:]
    assert len({str(result) for result in results}) > 1


def test_the_least_likely_tokens_are_rewritten(model):
    odd = TEXT.replace("dog", "qqq")
    ids = model.tokenizer.encode(odd)
    strange = {i for i, token in enumerate(ids) if "q" in model.tokenizer.decode([token])}
    count = len(strange) + 2
    masked = next(iter(model.stream(edit=odd, remask_uncertain=count, sampler="left_to_right")))
    hidden = masked.changed | (masked.tokens == model.tokenizer.vocabulary.mask_id)
    assert hidden.sum() == count
    assert strange <= {int(column) - 1 for column in hidden[0].nonzero()}


def test_mistakes_are_reported_before_tokens_are_scored(model, monkeypatch):
    monkeypatch.setattr(model.method, "log_x_theta", None)
    for options in ({"sampler": "nope"}, {"temperature": -1.0}, {"regex": "a"}, {"seed": [1, 2]}):
        with pytest.raises(UnmaskError):
            model.edit(TEXT, remask_uncertain=2, **options)


def test_a_text_longer_than_the_model_is_edited_row_by_row(model):
    long = " ".join([TEXT] * 4)
    ids = model.tokenizer.encode(long)
    assert len(ids) > 2 * LENGTH
    for result in model.edit(long, remask=0.2, n=2):
        assert len(result.ids) == len(ids)
        assert sum(a != b for a, b in zip(result.ids, ids, strict=True)) <= round(0.2 * len(ids))
        assert str(result) == model.tokenizer.decode(result.ids)


def test_gibbs_revises_a_finished_text(model):
    results = model.edit(TEXT, sampler="gibbs", steps=40, n=3, temperature=2.0)
    assert all(str(result) != TEXT for result in results)
    assert {result.calls for result in results} == {40}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no token of the text is to be rewritten"),
        ({"sampler": "remask"}, "no token of the text is to be rewritten"),
        ({"remask": 0.0}, "remask must lie in (0, 1]"),
        ({"remask": 0.5, "remask_span": (1, 2)}, "give one of"),
        ({"remask_span": (3, 99)}, "does not lie in the text's"),
        ({"remask_span": (3, 3)}, "does not lie in the text's"),
        ({"remask_span": (1, 2, 3)}, "remask_span has a start and an end"),
        ({"remask_uncertain": 0}, "remask_uncertain must be 1 or more, not 0"),
        ({"remask_uncertain": 1.5}, "remask_uncertain must be a whole number, not 1.5"),
        ({"text": "", "remask": 0.5}, "the text is empty"),
    ],
)
def test_a_mistake_in_editing_is_one_line(model, options, message):
    with pytest.raises(UnmaskError) as caught:
        model.edit(**{"text": TEXT, **options})
    assert message in one_line(caught)


def test_an_autoregressive_model_does_not_edit(left_to_right):
    with pytest.raises(UnmaskError, match="diffusion model"):
        left_to_right.edit(TEXT, remask=0.5)


# Frames


@pytest.mark.parametrize(
    "options",
    [
        {"prompts": "The", "length": 20},
        {"fill": "The [MASK:4] sat."},
        {"edit": TEXT, "remask": 0.5},
    ],
)
def test_the_last_frame_is_the_result(model, options):
    frames = list(model.stream(**options, n=2, seed=3))
    assert frames[-1].seconds >= frames[0].seconds > 0
    for before, after in pairwise(frames):
        assert torch.equal(after.changed, after.tokens != before.tokens)
        assert (after.calls >= before.calls).all()
        assert (after.t <= before.t).all()
    last = frames[-1]
    masked = model.tokenizer.vocabulary.mask_id
    assert (last.tokens != masked).all()
    assert ((last.confidence > 0) & (last.confidence <= 1)).all()
    verb = "fill" if "fill" in options else "edit" if "edit" in options else "generate"
    options = dict(options)
    text = options.pop("prompts" if verb == "generate" else verb)
    results = getattr(model, verb)(text, **options, n=2, seed=3)
    for row, result in zip(last.tokens.tolist(), results, strict=True):
        assert row[: len(result.ids)] == result.ids
    assert last.calls.tolist() == [result.calls for result in results]


def test_streaming_does_not_leave_gradients_off(model):
    for _ in model.stream("The", length=8):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


# Seeds


def test_texts_and_their_windows_and_parts_share_no_seed(model):
    def alike(first, second):
        return sum(a == b for a, b in zip(first, second, strict=False)) / len(second)

    options = {"length": 3 * LENGTH, "stop": False, "temperature": 1e6, "sampler": "left_to_right"}
    texts = [result.ids for result in model.generate(n=3, **options)]
    body = LENGTH - 2
    for other in texts[1:]:  # windows of one text differ from the beginnings of others
        for start in range(body // 2, 2 * LENGTH):
            assert alike(texts[0][start : start + body], other[1 : 1 + body]) < 0.5
