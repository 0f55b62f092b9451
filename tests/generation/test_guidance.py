"""Guided sampling against enumeration. The first position of the language is the class,
or no class.
"""

from itertools import permutations

import pytest
import torch
from builders import schedule, small_method
from kit import Language, p_value
from torch.nn.functional import one_hot

import unmask
from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.generation.edit import style_places
from unmask.generation.guidance import ClassifierFree, ClassifierGuided
from unmask.generation.sampling_params import SamplingParams
from unmask.methods.token_classifier import TokenClassifier
from unmask.samplers.ancestral import Ancestral, FirstHitting
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.left_to_right import LeftToRight
from unmask.samplers.sampler import Sampler
from unmask.serve.limits import ServerLimits
from unmask.serve.routes import stream_frames
from unmask.serve.schemas import Watching, with_options

WORDS, GOOD, BAD, NONE, MASK = 2, 2, 3, 4, 5  # two words, two classes, BOS
RARELY = 1e-4  # chance that a correct sampler fails a test with a fresh choice of seeds


def labelled_language() -> Language:
    """p(class) p(text | class) for texts of three words.
    A text without a class has the mixture of all classes.
    """
    generator = torch.Generator().manual_seed(1)
    given = torch.softmax(torch.randn(2, WORDS**3, generator=generator).double(), 1)
    by_first = {
        GOOD: 0.5 * given[0],
        BAD: 0.2 * given[1],
        NONE: 0.3 / 0.7 * (0.5 * given[0] + 0.2 * given[1]),
    }
    language = Language(5, 4, torch.zeros(5**4, dtype=torch.float64))
    texts = (language.sequences[:, 1:] < WORDS).all(1)
    for first, mass in by_first.items():
        language.table[texts & (language.sequences[:, 0] == first)] = mass
    return language


LANGUAGE = labelled_language()
STATES = LANGUAGE.states[
    (LANGUAGE.states[:, 0] == GOOD)
    & ((LANGUAGE.states[:, 1:] < WORDS) | (LANGUAGE.states[:, 1:] == MASK)).all(1)
]
AT = (STATES == MASK).nonzero(as_tuple=True)
TIMES = torch.full((len(STATES),), 0.5, dtype=torch.float64)
UNLABELLED = torch.cat([torch.full_like(STATES[:, :1], NONE), STATES[:, 1:]], 1)


def powers(weight: float) -> torch.Tensor:
    """The guided oracle at every position of every state, [state, position, token]."""
    given = LANGUAGE.conditionals[LANGUAGE.index(STATES, MASK + 1)]
    free = LANGUAGE.conditionals[LANGUAGE.index(UNLABELLED, MASK + 1)]
    mass = torch.where(free > 0, given**weight * free ** (1 - weight), 0.0)
    return mass / mass.sum(-1, keepdim=True)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 2.0, 5.5])
def test_classifier_free_guidance_is_the_enumerated_power_at_every_state(weight):
    guided = ClassifierFree(LANGUAGE.denoiser, NONE, weight)
    found = guided(STATES, TIMES, AT)
    assert not found.isnan().any() and found[:, MASK].isneginf().all()
    torch.testing.assert_close(found.exp(), powers(weight)[AT])
    if weight in (0, 1):
        plain = LANGUAGE.denoiser(STATES if weight else UNLABELLED, TIMES, AT)
        assert torch.equal(found, plain)


def sampled(sampler, denoise, rows: int, first: int = GOOD) -> tuple[torch.Tensor, torch.Tensor]:
    canvas = Canvas(torch.tensor([[first, MASK, MASK, MASK]]).repeat(rows, 1), MASK)
    frames = sampler.generate(
        denoise, canvas, SamplingTask(list(range(rows)), schedule("loglinear"))
    )
    frame = last_frame(frames, canvas)
    return frame.tokens, frame.calls


def one_at_a_time(weight: float, orders: list[tuple[int, ...]]) -> torch.Tensor:
    """The distribution of texts that the guided oracle generates token by token:
    the mean over orders.
    """
    x = LANGUAGE.sequences
    table = powers(weight)
    number = {tuple(state): index for index, state in enumerate(STATES.tolist())}
    possible = (x[:, 0] == GOOD) & (x[:, 1:] < WORDS).all(1)
    chance = torch.zeros(len(x), dtype=torch.float64)
    for index in possible.nonzero()[:, 0].tolist():
        for order in orders:
            state, product = [GOOD, MASK, MASK, MASK], 1.0
            for place in order:
                token = int(x[index, place])
                product *= float(table[number[tuple(state)], place, token])
                state[place] = token
            chance[index] += product / len(orders)
    return chance


@pytest.mark.parametrize(
    ("sampler", "orders"),
    [(LeftToRight(), [(1, 2, 3)]), (FirstHitting(), list(permutations((1, 2, 3))))],
)
@pytest.mark.parametrize("weight", [0.0, 1.0, 3.0])
def test_samples_follow_the_enumerated_product_of_powers(sampler, orders, weight):
    expected = one_at_a_time(weight, orders)
    tokens, _ = sampled(sampler, ClassifierFree(LANGUAGE.denoiser, NONE, weight), 4000)
    found = torch.bincount(LANGUAGE.index(tokens, 5), minlength=5**4).double()
    assert p_value(found, expected) > RARELY
    others = [one_at_a_time(other, orders) for other in (0.0, 1.0, 3.0) if other != weight]
    assert all(p_value(found, other) < 1e-6 for other in others)  # the test can fail


def test_guided_calls_count_twice():
    plain, guided = (
        sampled(FirstHitting(), ClassifierFree(LANGUAGE.denoiser, NONE, weight), 6)[1]
        for weight in (1.0, 2.0)
    )
    assert torch.equal(2 * plain, guided)
    sizes = []

    def counting(z, t, at):
        sizes.append(len(z))
        return LANGUAGE.denoiser(z, t, at)

    for weight, cost in ((0.0, 1), (1.0, 1), (2.0, 2)):
        guided = ClassifierFree(counting, NONE, weight)
        guided(STATES, TIMES, AT)
        assert guided.cost == cost and sizes.pop() == cost * len(STATES) and not sizes


class LogLinear:
    """log p(y | z) = sum of a[position, token] + constant. Its first-order expansion is exact."""

    table = torch.randn(4, 6, generator=torch.Generator().manual_seed(2)).double()

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.einsum("rlv,lv->r", tokens, self.table)

    def slopes(self, z, t, at):
        tokens = one_hot(z, 6).double().requires_grad_()
        (gradient,) = torch.autograd.grad(self(tokens).sum(), tokens)
        return gradient[at]


@pytest.mark.parametrize("weight", [0.0, 1.0, 2.5])
def test_classifier_guidance_is_bayes_rule_where_first_order_is_exact(weight):
    classifier = LogLinear()
    found = ClassifierGuided(LANGUAGE.denoiser, classifier, weight)(STATES, TIMES, AT)
    expected = LANGUAGE.denoiser(STATES, TIMES, AT)
    for token in range(MASK + 1):
        changed = STATES[AT[0]].clone()
        changed[torch.arange(len(changed)), AT[1]] = token
        expected[:, token] += weight * classifier(one_hot(changed, 6).double())
    assert found[:, MASK].isneginf().all()
    torch.testing.assert_close(found.exp(), expected.softmax(-1))
    if weight == 0:
        assert torch.equal(found, LANGUAGE.denoiser(STATES, TIMES, AT))


def test_rows_do_not_depend_on_their_batch():
    method = small_method("mdlm").double()
    classifier = TokenClassifier(method, 8, [7, 8])
    makes = [
        lambda: ClassifierFree(method.denoiser(), 9, 2.0),
        lambda: ClassifierGuided(method.denoiser(), classifier, 2.0),
    ]
    start = torch.tensor([[8, *[10] * 7], [7, *[10] * 7], [9, *[10] * 7]]).repeat(4, 1)
    for make in makes:
        together = written(make(), start, list(range(12)), Ancestral(5))
        for row in range(12):
            alone = written(make(), start[[row]], [row], Ancestral(5))
            assert torch.equal(alone[0], together[row])


def test_a_denoiser_with_a_cache_serves_both_halves():
    method = small_method("autoregressive").double()

    def forgetful(z, t, at):
        return method.denoiser()(z, t, at)

    start = torch.tensor([[8, *[10] * 7], [7, 10, 3, *[10] * 5], [9, 1, *[10] * 6]])
    cached, fresh = (
        written(ClassifierFree(denoise, 9, 2.0), start, [0, 1, 2], LeftToRight())
        for denoise in (method.denoiser(), forgetful)
    )
    assert torch.equal(cached, fresh)


@torch.inference_mode()
def written(denoise, start: torch.Tensor, seeds: list[int], sampler: Sampler) -> torch.Tensor:
    canvas = Canvas(start, 10)
    plan = SamplingTask(seeds, schedule("loglinear"), banned=(7, 8, 9))
    return last_frame(sampler.generate(denoise, canvas, plan), canvas).tokens


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_impossible_weights_are_refused(weight):
    for make in (
        lambda: ClassifierFree(LANGUAGE.denoiser, NONE, weight),
        lambda: ClassifierGuided(LANGUAGE.denoiser, LogLinear(), weight),
    ):
        with pytest.raises(UnmaskError, match="guidance must be 0 or more"):
            make()


# A network that learned it


@pytest.fixture
def model(labelled) -> unmask.Model:
    return labelled


def share_of_a(model: unmask.Model, **options) -> float:
    """The share of a's among the letters of generated texts."""
    results = model.fill("[MASK:8]", n=400, regex="[ab]{8}", batch=400, **options)
    letters = "".join(str(result) for result in results)
    assert set(letters) == {"a", "b"}
    return letters.count("a") / len(letters)


def test_a_trained_model_follows_its_label_and_guidance_strengthens_it(model):
    free, a, b = (share_of_a(model, label=label) for label in (None, "a", "b"))
    # effect of rounding on so short a training; a model without labels has 0.5 everywhere
    reach = 0.12
    assert abs(free - 0.5) < reach
    assert abs(a - 0.75) < reach and abs(b - 0.25) < reach
    assert share_of_a(model, label="a", guidance=0) == free
    assert share_of_a(model, label="a", guidance=3) > a + 0.1


def test_a_trained_model_guides_itself_as_a_classifier(model):
    none, towards, strong = (
        share_of_a(model, label="a", guide=model, guidance=weight) for weight in (0, 3, 8)
    )
    assert none == share_of_a(model)
    assert none < towards < strong
    assert strong > none + 0.1
    assert share_of_a(model, label="b", guide=model, guidance=8) < none - 0.1


def test_texts_in_windows_keep_their_class(model):
    long = model.generate(label="a", length=40, stop=False, n=50)
    share = [str(result).count("a") / max(len(str(result)), 1) for result in long]
    assert sum(share) / len(share) > 0.6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "c"}, "unknown label 'c'; known: a, b"),
        ({"guidance": 2.0}, "guidance needs a label"),
        ({"label": "a", "guidance": -1.0}, "guidance must be 0 or more"),
    ],
)
def test_a_mistake_is_one_line(model, options, message):
    with pytest.raises(UnmaskError, match=message):
        model.generate(**options)


# Style


def test_a_style_rewrites_the_tokens_that_contradict_it(model):
    text = "bbabbbab"
    against = {place for place, letter in enumerate(text) if letter == "b"}
    for result in model.edit(text, style="a", remask_style=0.5, n=20):
        changed = {place for place in range(8) if result.text[place] != text[place]}
        assert changed <= against
    results = model.edit(text, style="a", n=40)
    assert all(sum(map(str.__ne__, result.text, text)) <= 2 for result in results)  # a quarter
    letters = {
        weight: "".join(r.text for r in model.edit(text, style="a", guidance=weight, n=60))
        for weight in (0, 1, 4)
    }
    assert letters[0].count("a") < letters[1].count("a") <= letters[4].count("a")
    by_hand = model.edit(text, style="a", remask_span=(0, 2), n=10)
    assert {result.text[2:] for result in by_hand} == {text[2:]}


def test_a_style_of_a_long_text_keeps_the_rows_that_have_it(model):
    body = model.length - 2  # BOS or class, and EOS
    text = "a" * body + "bbabbbab"
    params = SamplingParams(label="a")
    places = style_places(model, model.tokenizer.encode(text), params, share=0.25)
    assert len(places) == len(text) // 4
    assert all(text[place] == "b" for place in places)


def test_an_order_policy_reveals_no_class_token(model):
    drawn_places = pytest.importorskip("unmask.extensions.orders.train_policy").drawn_places
    x = torch.tensor([[model.tokenizer.labels["a"], *model.tokenizer.encode("ab")]])
    places = drawn_places(model, x, torch.ones_like(x, dtype=torch.bool), None)
    assert places.tolist() == [[False, True, True]]


def test_a_guide_chooses_the_tokens_of_a_style(model):
    (result,) = model.edit("bbbbbbbb", style="a", guide=model, guidance=8, remask_style=1.0)
    assert result.text.count("a") > 4


def test_a_style_goes_through_the_command_and_over_http(model, tmp_path, capsys):
    model.save(tmp_path / "model")
    (tmp_path / "text.txt").write_text("bbabbbab\n")
    argv = ["edit", str(tmp_path / "model"), str(tmp_path / "text.txt"), "--style", "a"]
    assert main([*argv, "--remask-style", "0.5", "--seed", "4", "--device", "cpu"]) == 0
    written = capsys.readouterr().out.strip()
    (expected,) = model.edit("bbabbbab", style="a", remask_style=0.5, seed=4)
    assert written == expected.text
    request = with_options(Watching)(edit="bbabbbab", style="a", remask_style=0.5)
    frames = list(stream_frames(model, request, 4, ServerLimits()))
    assert frames[-1]["rows"][0]["text"] == written
    with pytest.raises(UnmaskError, match="style needs edit: give edit, or leave style out"):
        list(stream_frames(model, with_options(Watching)(style="a"), 4, ServerLimits()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "c"}, "unknown label 'c'; known: a, b"),
        ({"style": "a", "label": "b"}, "give style or label, not both"),
        ({"remask_style": 0.5}, "remask_style needs a style: give style"),
        ({"style": "a", "remask_style": 0.0}, r"remask_style must lie in \(0, 1\], not 0.0"),
        ({"style": "a", "remask_style": 0.5, "remask": 0.5}, "exclude each other"),
    ],
)
def test_a_mistake_about_a_style_is_one_line(model, options, message):
    with pytest.raises(UnmaskError, match=message) as caught:
        model.edit("abab", **options)
    assert "\n" not in str(caught.value)


def test_a_style_without_a_classifier_is_one_line():
    with pytest.raises(UnmaskError) as caught:
        unmask.load("stories", "cpu").edit("Tom ran.", style="positive")
    assert str(caught.value) == (
        "style 'positive' needs a classifier, and this model has no class labels: give a model trained "
        "with data.label_field"
    )
