"""A loaded model generates the same texts with padded shapes, and bf16 keeps its outputs."""

import pytest
import torch
from tiny_models import PROMPTS, content, one_line

import unmask
from unmask.errors import UnmaskError
from unmask.methods.method import Serving

PROMPTED = [f"{PROMPTS[i % len(PROMPTS)]}{' the' * (i % 3)}" for i in range(13)]


@pytest.fixture
def at_few_shapes(either, monkeypatch) -> unmask.Model:
    monkeypatch.setattr(either.method, "serving", Serving(fixed=True))
    return either


def test_texts_with_padded_shapes_together_equal_each_alone(at_few_shapes):
    together = at_few_shapes.generate(PROMPTED, seed=11)
    for prompt, result in zip(PROMPTED, together, strict=True):
        alone = at_few_shapes.generate(prompt, seed=result.seed)[0]
        assert content(alone) == content(result)


def test_texts_with_padded_shapes_equal_those_of_exact_shapes(either, monkeypatch):
    options = {"n": 3, "seed": 5, "temperature": 0.9, "top_k": 20}
    expected = [content(result) for result in either.generate("The", **options)]
    monkeypatch.setattr(either.method, "serving", Serving(fixed=True))
    assert [content(result) for result in either.generate("The", **options)] == expected


def test_bf16_casts_the_weights_once_and_keeps_the_model(run, model, tmp_path, bf16):
    cast = unmask.load(run, precision="bf16")
    assert {part.dtype for part in cast.method.backbone.frozen} == {torch.bfloat16}
    texts = ["The cat sat on the mat."]
    found, exact = (each.perplexity(texts, draws=4).nats for each in (cast, model))
    assert found == pytest.approx(exact, rel=0.02)
    assert found != exact
    assert str(cast.generate("The", seed=3)[0]).startswith("The")
    cast.save(tmp_path / "saved")
    saved = unmask.load(tmp_path / "saved").method.state_dict()
    for name, tensor in model.method.state_dict().items():
        assert torch.equal(saved[name], tensor)


def test_an_unknown_precision_is_refused(run):
    with pytest.raises(UnmaskError) as caught:
        unmask.load(run, precision="fp17")
    assert "fp17" in one_line(caught)
