"""Methods with vectors, uniform tokens or a schedule of each token, from the configuration to the served text."""

import numpy as np
import pytest
import torch
from recipe_runs import trained
from tiny_models import TEXTS, one_line

import unmask
from unmask.errors import UnmaskError
from unmask.generation.sampler_spec import suitable_samplers
from unmask.methods.method import METHODS
from unmask.representation.classifier import classifier_of, rows_for

LATENT = [name for name in METHODS if METHODS[name].capabilities.latent]
REWRITERS = [
    name
    for name in METHODS
    for can in [METHODS[name].capabilities]
    if can.generate and (can.token_schedule or not can.writes_once)
]


@pytest.fixture(scope="module", params=REWRITERS)
def model(request, tmp_path_factory) -> unmask.Model:
    return trained(request.param, tmp_path_factory.mktemp(request.param))


def same(one: unmask.Model, other: unmask.Model) -> bool:
    ours, theirs = one.method.state_dict(), other.method.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def test_its_network_classifies_and_embeds(model):
    classifier, method = classifier_of(model, 2, pooling="mean"), model.method
    rows = rows_for(classifier, TEXTS[:3])
    _, x, valid = next(iter(rows.batches(3)))
    level = torch.zeros(len(x)) if method.backbone.time_conditioning else None
    h = method.backbone.hidden(method.clean_inputs(x), level, valid=valid)
    assert torch.allclose(h, classifier.method.backbone.hidden(x, level, valid=valid), atol=1e-5)
    assert np.isfinite(model.embed(TEXTS[:3])).all()


# parameters of its own, a schedule of each token, a curriculum that ends after the stop, a teacher
STATEFUL = ("plaid", "diffusion_bert", "duo", "duo_distilled")


@pytest.mark.parametrize("model", [name for name in STATEFUL if name in METHODS], indirect=True)
def test_a_resumed_run_ends_with_the_same_bits(model, tmp_path):
    name = model.config.method.name
    trained(name, tmp_path, **{"training.steps": "2"})
    assert same(model, trained(name, tmp_path))


def test_it_is_saved_and_exported(model, tmp_path):
    model.save(tmp_path / "saved")
    model.save_pretrained(tmp_path / "hub")
    for folder in ("saved", "hub"):
        assert same(model, unmask.load(tmp_path / folder, device="cpu"))
    card = (tmp_path / "hub" / "README.md").read_text(encoding="utf-8")
    assert model.config.method.name in card
    assert ("fill-mask" in card) == model.method.capabilities.masked_lm


def test_transformers_refuse_a_network_of_vectors_in_one_line(model):
    pytest.importorskip("transformers")
    from unmask.integrations.transformers.modeling import UnmaskModel

    if model.config.method.name not in LATENT:
        assert UnmaskModel.from_model(model).method.capabilities == model.method.capabilities
        return
    with pytest.raises(UnmaskError, match="load it with") as caught:
        UnmaskModel.from_model(model)
    one_line(caught)


@pytest.mark.parametrize("number", [0, -1])
def test_each_sampler_keeps_the_prompt_and_repeats_its_text(model, number):
    sampler = [model.method.sampler, *suitable_samplers(model.method)][number]
    options = {"length": 16, "steps": 3, "sampler": sampler, "stop": False}
    first, second = model.generate("The cat", n=2, **options)
    assert first.text.startswith("The cat") and len(first.ids) == len(second.ids)
    assert first.ids != second.ids
    alone = model.generate("The cat", seed=second.seed, **options)[0]
    assert alone.ids == second.ids and alone.calls == second.calls
    frames = list(model.stream("The cat", **options))
    assert frames[-1].tokens[0].tolist()[: len(first.ids)] == first.ids


def test_gaps_are_filled_or_refused_with_the_methods_that_can(model):
    if model.method.capabilities.infill:
        text = model.fill("The [MASK:3] sat.", steps=2)[0].text
        assert text.startswith("The ") and text.endswith(" sat.")
        return
    with pytest.raises(UnmaskError, match=r"of method .*mdlm") as caught:
        model.fill("The [MASK:3] sat.")
    one_line(caught)


def test_a_constraint_is_refused_with_the_methods_that_can(model):
    if model.method.capabilities.writes_once:
        assert model.generate("The", regex="The .*", steps=4)[0].text.startswith("The ")
        return
    with pytest.raises(UnmaskError, match=r"of method .*mdlm") as caught:
        model.generate("The", regex="The .*")
    able = one_line(caught).partition("of method")[2]
    assert "plaid" not in able and "udlm" not in able


def test_a_text_is_measured_or_refused_with_the_methods_that_can(model):
    if model.method.capabilities.score:
        bound = model.perplexity("The cat sat.", draws=2)
        assert bound.certificate == "upper" and bound.nats > 0
        can = model.method.capabilities
        ends = (
            {"prior"}
            if can.states == "uniform"
            else {"prior", "reconstruction"}
            if can.latent
            else set()
        )
        assert bound.terms.keys() == {"diffusion", *ends}
        return
    with pytest.raises(UnmaskError, match=r"has no likelihood: .* method .*mdlm") as caught:
        model.perplexity("The cat sat.")
    one_line(caught)


def test_it_is_in_the_playgrounds_menu_and_predicts(model):
    menu = pytest.importorskip("unmask.extensions.play.controls").menu
    from unmask.extensions.play.page_requests import Guessing
    from unmask.extensions.play.predictions import predict

    [entry] = menu({"own": model})["models"]
    assert entry["sampler"] == model.method.sampler in entry["samplers"]
    assert ("ancestral" in entry["samplers"]) == model.method.capabilities.masked_lm
    tokens = [*model.tokenizer.encode("The"), None]
    [found] = predict(model, Guessing(model="own", tokens=tokens, places=[3], k=3))
    assert len(found["guesses"][0]["likely"]) == 3
