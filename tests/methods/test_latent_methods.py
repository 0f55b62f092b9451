"""Methods with vectors, uniform tokens or a schedule of each token, from the configuration to the served text."""

from pathlib import Path

import numpy as np
import pytest
import torch
from builders import small_method
from tiny_models import TEXTS, TINY, one_line

import unmask
from unmask.config.run_config import load_recipe, resolve
from unmask.errors import UnmaskError
from unmask.generation.sampler_spec import suitable_samplers
from unmask.methods.method import METHODS
from unmask.randomness import RowStream, keyed_normals, stream_keys
from unmask.representation.classifier import classifier_of, rows_for
from unmask.shapes import Batch
from unmask.training.trainer import Trainer

LATENT = [name for name in METHODS if METHODS[name].capabilities.latent]
REWRITERS = [
    name
    for name in METHODS
    for can in [METHODS[name].capabilities]
    if can.generate and (can.token_schedule or not can.writes_once)
]
SHORT = {
    "backbone.width": "32",
    "backbone.depth": "1",
    "backbone.heads": "2",
    "training.steps": "4",
    "training.decay": "constant",
    "training.warmup": "0",
    "training.save_every": "2",
    "training.validate_every": "0",
    "training.sample_every": "0",
}


def recipe(name: str) -> str:
    return f"demo-{name.replace('_', '-')}"


def configured(name: str, folder: Path, **changes: str):
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(TEXTS), encoding="utf-8")
    own = {
        "data.train": str(corpus),
        "data.cache": str(folder / "cache"),
        "data.tokenizer.kind": "characters",
    }
    return resolve(load_recipe(recipe(name)), [*TINY, *(own | SHORT | changes).items()])


def trained(name: str, folder: Path, run: str = "run", **changes: str) -> unmask.Model:
    if METHODS[name].capabilities.distills:
        trained("duo", folder, "start")
        changes = {"init_from": str(folder / "start"), "method.round_steps": "1", **changes}
    if name == "duo":
        changes = {"method.curriculum": "3", **changes}
    unmask.train(configured(name, folder, **changes), folder / run, say=lambda line: None)
    return unmask.load(folder / run, device="cpu")


@pytest.fixture(scope="module", params=REWRITERS)
def model(request, tmp_path_factory) -> unmask.Model:
    return trained(request.param, tmp_path_factory.mktemp(request.param))


def test_normal_numbers_are_finite():
    """Of 2^32 random bits, float32 rounds 65 values to the lower end: one of them occurs in this step."""
    keys = stream_keys(RowStream(1, 92, range(128), 128), "gaussian")
    single, double = (
        keyed_normals(keys, 0, 128, 16, dtype) for dtype in (torch.float32, torch.float64)
    )
    assert single.isfinite().all()
    assert (single - double).abs().max() < 1 and (single - double).abs().mean() < 1e-5


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
@pytest.mark.parametrize(
    "model", ["plaid", "diffusion_bert", "duo", "duo_distilled"], indirect=True
)
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
    with pytest.raises(UnmaskError, match=r"has no likelihood: .* method .*plaid") as caught:
        model.perplexity("The cat sat.")
    one_line(caught)


def test_it_is_in_the_playgrounds_menu_and_predicts(model):
    from unmask.play.controls import menu
    from unmask.play.page_requests import Guessing
    from unmask.play.predictions import predict

    [entry] = menu({"own": model})["models"]
    assert entry["sampler"] == model.method.sampler in entry["samplers"]
    assert ("ancestral" in entry["samplers"]) == model.method.capabilities.masked_lm
    tokens = [*model.tokenizer.encode("The"), None]
    [found] = predict(model, Guessing(model="own", tokens=tokens, places=[3], k=3))
    assert len(found["guesses"][0]["likely"]) == 3


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("plaid", lambda m: m.codebook.weight.fill_(1.0), "the codes of all tokens are equal"),
        ("diffusion_lm", lambda m: m.codebook.weight.fill_(0.5), "the codes of all tokens are"),
        ("diffusion_lm", lambda m: m.codebook.weight.mul_(1e6), "the norm of the codes"),
        ("plaid", lambda m: m.gammas.ends.mul_(20), "the noise schedule has left its range"),
    ],
)
def test_collapse_and_explosion_stop_training_like_a_loss_that_is_not_finite(
    name, damage, message, tmp_path, monkeypatch
):
    step = Trainer._step

    def damaged(trainer: Trainer) -> None:
        with torch.no_grad():
            damage(trainer.method)
        step(trainer)

    monkeypatch.setattr(Trainer, "_step", damaged)
    limits = {"training.max_skips": "2", "training.log_every": "1"}
    with pytest.raises(UnmaskError, match=message) as caught:
        trained(name, tmp_path, **limits)
    assert "not finite" in one_line(caught)


def test_plaids_schedule_lowers_the_variance_and_its_ends_the_bound():
    """The values between the ends get the gradient of loss^2; the mean of the bound has none in them."""
    method = small_method("plaid").train()
    with torch.no_grad():
        method.gammas.ends.copy_(torch.tensor([-3.0, 6.0]))
    x = torch.randint(1, 10, (64, 10), generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(x).bool()
    noise = method.training_noise(RowStream(0, 0, range(64), 64), valid)
    losses = method.nll(Batch(x, valid), noise)
    losses.total.backward()
    assert method.gammas.ends.grad.all()
    found = method.gammas.between.logits.grad.clone()

    def second_moment(logits: torch.Tensor) -> torch.Tensor:
        """Sum over rows of (nats per token)^2, in tokens, at the same noise."""
        with torch.no_grad():
            kept = method.gammas.between.logits.clone()
            method.gammas.between.logits.copy_(logits)
            terms = method.nll(Batch(x, valid), noise).terms["diffusion"].double()
            method.gammas.between.logits.copy_(kept)
        plain = terms.mean(1) * (1 - method.config.reconstructed)
        return (plain.square() / (1 - method.config.reconstructed)).sum() * x.shape[1]

    logits, wanted = method.gammas.between.logits.detach().clone(), torch.zeros_like(found)
    for index in range(len(logits)):
        shift = torch.zeros_like(logits)
        shift[index] = 1e-2
        wanted[index] = (second_moment(logits + shift) - second_moment(logits - shift)) / 2e-2
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.02 * float(wanted.abs().max()))
