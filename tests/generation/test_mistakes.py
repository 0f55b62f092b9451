"""Every mistake is a one-line error with the mend."""

import math
from pathlib import Path

import pytest
from tiny_models import one_line, train_tiny

from unmask.errors import UnmaskError
from unmask.samplers.ancestral import Ancestral


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "ancestrall"}, "did you mean 'ancestral'?"),
        ({"prompts": "The cat sat on the mat. " * 9}, "leaves no room in a length of 24"),
        ({"prompts": "The", "length": 2}, "leaves no room in a length of 2"),
        ({"length": 0}, "length must be 2 or more"),
        ({"length": "30"}, "length is a number of tokens or auto, not '30'"),
        ({"length": 3.5}, "length is a number of tokens or auto, not 3.5"),
        ({"context": 5}, "the context is a text or a list of texts, not 5"),
        ({"context": [5]}, "the context is a text or a list of texts, not [5]"),
        ({"prompts": ["The", 3]}, "a prompt is a text or a list of ids, not 3"),
        ({"n": 0}, "n must be 1 or more"),
        ({"n": -2}, "n must be 1 or more"),
        ({"seed": [1, 2, 3]}, "3 seeds for 1 rows"),
        ({"n": 2, "seed": []}, "0 seeds for 2 rows"),
        ({"temperature": -0.5}, "temperature must be 0 or more"),
        ({"temperature": math.nan}, "temperature: 'nan' is not a number"),
        ({"n": 2.5}, "n: '2.5' is not a whole number"),
        ({"steps": "many"}, "steps: 'many' is not a whole number"),
        ({"ban": [3]}, "ban takes phrases"),
        ({"top_k": 0}, "top_k must be 1 or more"),
        ({"top_p": 0.0}, "top_p must lie in"),
        ({"steps": 0}, "steps must be 1 or more"),
        ({"batch": 0}, "batch must be 1 or more"),
    ],
)
def test_a_mistake_in_generating_is_one_line(model, options, message):
    with pytest.raises(UnmaskError) as caught:
        model.generate(**options)
    assert message in one_line(caught)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("The cat sat.", {}, "no gap"),
        ("The [MASK] sat. " * 9, {}, "the model reads 24"),
        ("The [MASK:99]", {}, "the model reads 24"),
        ("The [MASK:0]", {}, "is no gap"),
        ("[MASK:65536]" * 9, {}, "589824 tokens to fill and the model reads 24"),
        (None, {}, "fill takes a text or a list of ids, not None"),
        ([0, 10**9], {}, "1000000000 is no token: ids run from 0 to"),
        ([0, -1], {}, "-1 is no token"),
        ([0, 1.5], {}, "1.5 is no token"),
        ([0, None], {}, "None is no token"),
        ([0, "[MASK]"], {}, "'[MASK]' is no token"),
        (["The", "[MASK]"], {}, "the text has no gap"),
        ("The [MASK]", {"n": 0}, "n must be 1 or more"),
        ("The [MASK]", {"steps": 0}, "steps must be 1 or more"),
        ("The [MASK]", {"seed": [1, 2]}, "2 seeds for 1 rows"),
        ("The [MASK]", {"sampler": "left_to_rigth"}, "did you mean 'left_to_right'?"),
    ],
)
def test_a_mistake_in_filling_is_one_line(model, text, options, message):
    with pytest.raises(UnmaskError) as caught:
        model.fill(text, **options)
    assert message in one_line(caught)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ([], {}, "empty"),
        (["", "  "], {}, "empty"),
        ([("The cat", "Le chat")], {}, "this model was not trained on pairs: give the text alone"),
        ([1], {}, "text 1 is neither a text nor a pair"),
        (["The cat."], {"draws": 0}, "draws must be 1 or more"),
        (["The cat."], {"packing": "spilt"}, "did you mean 'split'?"),
        (Path("no/such/file.txt"), {}, "no/such/file.txt"),
        (["The cat."], {"source": "notes.txt"}, "texts or a source, not both"),
    ],
)
def test_a_mistake_in_measuring_is_one_line(model, data, options, message):
    with pytest.raises(UnmaskError) as caught:
        model.perplexity(data, **options)
    assert message in one_line(caught)


def test_a_row_without_room_for_a_text_is_one_line(model):
    with pytest.raises(UnmaskError, match="rows of 0 tokens have no room") as caught:
        model.embed(["The cat."], length=0)
    one_line(caught)


def test_an_autoregressive_model_has_one_sampler(left_to_right):
    for sampler in ("ancestral", Ancestral(4)):
        with pytest.raises(UnmaskError, match="left_to_right") as caught:
            left_to_right.generate(sampler=sampler)
        one_line(caught)


def test_a_network_that_does_not_suit_the_method_is_refused(tmp_path):
    with pytest.raises(UnmaskError, match="causal") as caught:
        train_tiny(tmp_path, "characters", "autoregressive", "dit")
    one_line(caught)
    assert not (tmp_path / "run").exists()
