"""Classification and regression of sequences by any network."""

import math

import pytest
import torch
from builders import known
from hub_models import tiny
from tiny_models import one_line

from unmask.backbones.backbone import BACKBONES
from unmask.config.components import build_method
from unmask.data.rows.sentence_rows import sentence_rows
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.methods.sequence_classifier import POOLINGS, SequenceClassifier, pooled
from unmask.model import Model, load
from unmask.representation.classifier import classifier_of, classify, fine_tune, rows_for
from unmask.runs.train import train
from unmask.shapes import Batch
from unmask.training.fine_tune import FineTuning, fit, predict
from unmask.training.training_config import LoraConfig
from unmask.vocabulary import Vocabulary

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
COMPLEMENTS = (0, 4, 3, 2, 1, *range(5, 14))  # for networks of DNA
VOCABULARY = Vocabulary(14, 13, 0, 10, 11, label_ids=(8, 9), complement_ids=COMPLEMENTS)
TEXTS = [
    f"the {who} sat on the {place}" for who in ("cat", "dog") for place in ("mat", "log", "hill")
]
KINDS = [int("dog" in text) for text in TEXTS]


def small(backbone: str, vocabulary: Vocabulary = VOCABULARY, **fields) -> SequenceClassifier:
    network = BACKBONES[backbone]
    shape = {"width": 16, "depth": 1, "heads": 2, "dropout": 0.0, "positions": 32}
    torch.manual_seed(0)
    return SequenceClassifier(
        SequenceClassifier.Config(**fields),
        network(network.Config(**known(network.Config, shape)), vocabulary),
        vocabulary,
        SCHEDULES.build("loglinear"),
        TIME_SAMPLERS.build("stratified"),
    ).eval()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_every_network_classifies_and_ignores_padding(backbone, pooling):
    method = small(backbone, classes=3, pooling=pooling, pooler=pooling == "cls")
    x = torch.randint(1, 8, (2, 6), generator=torch.Generator().manual_seed(0))
    longer = torch.cat([x, torch.full((2, 3), 11)], 1)
    valid = torch.arange(9).expand(2, 9) < 6
    torch.testing.assert_close(method.logits(x), method.logits(longer, valid), rtol=1e-5, atol=1e-6)
    method.loss(method.logits(x), torch.tensor([0, 2])).sum().backward()
    # the modulation of an untrained DiT is zero, so it passes no gradient to some matrices
    assert all(p.grad is not None for p in method.parameters())


def test_pooling_takes_the_first_the_last_or_all_tokens():
    h = torch.arange(8.0).reshape(2, 4, 1)
    valid = torch.tensor([[True, True, True, False], [False, True, True, True]])
    found = {name: pooled(h, valid, name).flatten().tolist() for name in POOLINGS}
    assert found == {"cls": [0, 5], "mean": [1, 6], "last": [2, 7]}
    assert "unknown pooling 'max'" in refused(lambda: pooled(h, valid, "max"))


def test_rows_with_class_tokens_have_a_loss_each():
    method = small("dit")
    x = torch.tensor([[8, 1, 2, 11], [9, 3, 4, 11], [10, 3, 4, 11]])
    valid = torch.ones_like(x, dtype=torch.bool)
    terms = method.nll(Batch(x, valid), None).per_token()
    torch.testing.assert_close(terms[:2, 0], torch.full((2,), math.log(2)), rtol=0, atol=0.1)
    assert not terms[:, 1:].any() and not terms[2].any()  # the last row has no class
    swapped = method.nll(Batch(x[:, [0, 1, 2, 3]].index_fill(1, torch.tensor([0]), 8), valid), None)
    hidden = method.logits(x[:1].index_fill(1, torch.tensor([0]), 10))
    torch.testing.assert_close(swapped.per_token()[0, 0], method.loss(hidden, torch.tensor([0]))[0])


def test_class_weights_scale_the_losses():
    plain, weighted = small("dit"), small("dit", class_weights=(1.0, 3.0))
    logits, targets = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])
    ratio = weighted.loss(logits, targets) / plain.loss(logits, targets)
    torch.testing.assert_close(ratio, torch.tensor([1.0, 3.0, 1.0, 3.0]))
    squared = small("dit", classes=1).loss(torch.tensor([[2.0]]), torch.tensor([0.5]))
    assert squared.tolist() == [2.25]


@pytest.fixture(scope="module")
def model():
    found = tiny("bpe", backbone="bert", backbone__dropout="0")
    torch.manual_seed(0)
    # features that distinguish words
    fresh = build_method(found.config, found.tokenizer.vocabulary)
    return Model(fresh, found.tokenizer, found.config)


@pytest.mark.parametrize("how", ["full", "frozen", "lora"])
def test_fine_tuning_trains_the_selected_parameters(model, how):
    torch.manual_seed(1)
    found = classifier_of(model, 2, pooling="mean", frozen=how == "frozen", names=("cat", "dog"))
    before = {name: tensor.clone() for name, tensor in found.method.state_dict().items()}
    settings = FineTuning(lr=0.01, epochs=40, batch=6)
    lora = LoraConfig(rank=2) if how == "lora" else None
    fitted = fine_tune(found, TEXTS, KINDS, settings, lora=lora)
    assert fitted.losses[-1] < fitted.losses[0] and fitted.steps == 40
    after = found.method.state_dict()
    assert after.keys() == before.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    heads = {"backbone.head.weight", "backbone.head.bias"}
    if how == "frozen":
        assert changed == heads
    else:
        assert changed > heads
        assert ("backbone.embedding.weight" in changed) == (how == "full")
        assert [each.label for each in classify(found, TEXTS)] == ["cat"] * 3 + ["dog"] * 3
    # the original model is unchanged
    assert torch.equal(model.method.backbone.embedding.weight, before["backbone.embedding.weight"])


def test_an_interrupted_fine_tuning_leaves_a_usable_model(model, monkeypatch):
    found = classifier_of(model, 2, pooling="mean")

    def interrupt(*_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr("unmask.training.fine_tune.learning_rate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fine_tune(found, TEXTS, KINDS, FineTuning(epochs=2, batch=2))
    assert not found.method.training and found.method.backbone.dropout_keys is None


@needs_gpu
def test_steps_of_a_graph_have_the_losses_of_plain_steps(model):
    fitted = []
    for graph in (False, True):
        found = classifier_of(model, 2)
        found.method.to("cuda").backbone.thaw()
        settings = FineTuning(lr=0.01, epochs=8, batch=4, cuda_graph=graph)
        rows = rows_for(found, [*TEXTS, "the dog"])  # batches of several shapes
        fitted.append(fit(found.method, rows, [*KINDS, 1], settings))
    assert fitted[0].losses[-1] < fitted[0].losses[0]
    torch.testing.assert_close(fitted[1].losses, fitted[0].losses, rtol=1e-3, atol=1e-4)


def test_a_regression_learns_numbers_and_early_stopping_keeps_the_best_epoch(model):
    found = classifier_of(model, 1, pooling="mean")
    numbers = [4.0 * kind for kind in KINDS]
    pairs = [(text, "the end") for text in TEXTS]
    course = iter([0.1, 0.7, 0.3, 0.2, 0.9])
    seen = []

    def score() -> float:
        seen.append(predict(found.method, rows_for(found, pairs)))
        return next(course)

    settings = FineTuning(lr=0.02, epochs=5, batch=6, patience=2)
    fitted = fine_tune(found, pairs, numbers, settings, score=score)
    assert fitted.scores == (0.1, 0.7, 0.3, 0.2) and fitted.best == 1  # patience ended it
    torch.testing.assert_close(predict(found.method, rows_for(found, pairs)), seen[1])
    assert classify(found, pairs)[0].label is None
    again = classifier_of(model, 1, pooling="mean")
    course = iter([0.1, 0.7, 0.3, 0.2, 0.9])
    assert fine_tune(again, pairs, numbers, settings, score=score).losses == fitted.losses


def test_rows_are_cut_like_those_of_transformers(model):
    tokenizer, v = model.tokenizer, model.tokenizer.vocabulary
    a, b = "the cat sat on", "on the mat it saw a dog"
    first, second = tokenizer.encode(a), tokenizer.encode(b)
    whole = sentence_rows([(a, b), a], tokenizer, 100, separators=2)
    middle = [v.eos_id, v.eos_id]
    assert whole.x[0].tolist() == [v.bos_id, *first, *middle, *second, v.eos_id]
    assert whole.x[1, : whole.sizes[1]].tolist() == [v.bos_id, *first, v.eos_id] and not whole.cut
    room = len(first) + 1
    cut = sentence_rows([(a, b)], tokenizer, room + 3)
    assert cut.cut == 1
    kept = room // 2, room - room // 2  # both are longer than half of the room
    assert cut.x[0].tolist() == [
        v.bos_id,
        *first[: kept[0]],
        v.eos_id,
        *second[: kept[1]],
        v.eos_id,
    ]


def refused(call) -> str:
    with pytest.raises(UnmaskError) as caught:
        call()
    return one_line(caught)


def test_mistakes_are_refused_in_one_line(model):
    found = classifier_of(model, 2, pooling="mean")
    rows = rows_for(found, TEXTS)
    assert "label 2 of sentence 1 is outside 0 … 1" in refused(
        lambda: fit(found.method, rows, [2, *KINDS[1:]], FineTuning())
    )
    assert "give one for each" in refused(lambda: fit(found.method, rows, [1], FineTuning()))
    assert "sentence 2 is empty" in refused(lambda: rows_for(found, ["a", " "]))
    assert "neither a text nor a pair" in refused(lambda: rows_for(found, [("a", "b", "c")]))
    assert "has no classes" in refused(lambda: classify(model, TEXTS))
    assert "needs classes" in refused(lambda: small("dit", Vocabulary(9, 8)))
    assert "no such setting" in refused(lambda: classifier_of(model, 2, poling="cls"))
    assert "class_weights has 1 numbers for 2 classes" in refused(
        lambda: classifier_of(model, 2, class_weights=(1.0,))
    )
    assert "not finite" in refused(lambda: fit_wild(found, rows))
    assert "give a score" in refused(lambda: fit(found.method, rows, KINDS, FineTuning(patience=1)))


def fit_wild(found, rows) -> None:
    with torch.no_grad():
        found.method.backbone.head.weight.fill_(float("nan"))
    fit(found.method, rows, KINDS, FineTuning(epochs=1))


@pytest.mark.parametrize("backbone", ["dit", "causal"])
def test_labelled_documents_train_a_classifier(backbone, tmp_path):
    rows = [f'{{"text": "{text}", "who": "{text.split()[1]}"}}' for text in TEXTS * 6]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    network = {"name": backbone, "width": 32, "depth": 1, "heads": 2, "dropout": 0}
    data = {"train": str(tmp_path / "rows.jsonl"), "label_field": "who", "label_dropout": 0}
    data |= {"packing": "pad", "length": 32, "cache": str(tmp_path / "cache")}
    training = {"steps": 60, "batch": 12, "lr": 0.01, "warmup": 2, "ema": 0.5, "device": "cpu"}
    recipe = {"method": "sequence_classifier", "backbone": network, "training": training}
    tokenizer = {"kind": "characters"}
    train(recipe | {"data": data | {"tokenizer": tokenizer}}, tmp_path / "run", say=lambda _: None)
    model = load(tmp_path / "run", device="cpu")
    assert [each.label for each in model.classify(TEXTS)] == ["cat"] * 3 + ["dog"] * 3
    with pytest.raises(UnmaskError, match="writes no text"):
        model.generate("the")
