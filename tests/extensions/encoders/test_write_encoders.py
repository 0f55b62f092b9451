"""Encoders and their classifiers, written for the classes of transformers and read by these."""

import pytest
import torch
import transformers
from hub_models import fill, tiny
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import unmask
from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.formats.format import FORMATS
from unmask.representation.classifier import class_logits, classifier_of

PAIRS = [("the cat sat", "on a mat"), ("a mat", "the cat sat on the mat on the mat")]
CLOSE = {"rtol": 0, "atol": 1e-5}


def encoder(folder, family: str, **settings):
    """A tiny encoder of transformers with a vocabulary of words."""
    config = getattr(transformers, f"{family}Config")(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40, **settings,
    )  # fmt: skip
    theirs = getattr(transformers, f"{family}Model")(config).eval()
    fill(theirs)
    theirs.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat"]
    words += [f"w{i}" for i in range(50 - len(words))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return theirs


def auto_logits(folder) -> torch.Tensor:
    """The logits of the pairs with the Auto classes alone."""
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
    with torch.no_grad():
        return network(**batch).logits


@pytest.mark.parametrize("family", ["Bert", "MPNet"])
def test_a_classifier_has_the_same_logits_in_a_class_of_transformers(tmp_path, family):
    (tmp_path / "encoder").mkdir()
    encoder(tmp_path / "encoder", family)
    found = classifier_of(unmask.load(tmp_path / "encoder"), 3, names=("no", "maybe", "yes"))
    fill(found.method)
    FORMATS["bert"].write(found, tmp_path / "out")
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert type(network).__name__ == f"{family}ForSequenceClassification"
    assert network.config.id2label == {0: "no", 1: "maybe", 2: "yes"}
    torch.testing.assert_close(auto_logits(tmp_path / "out"), class_logits(found, PAIRS), **CLOSE)


def test_an_exported_encoder_embeds_as_before(tmp_path, capsys):
    (tmp_path / "encoder").mkdir()
    theirs = encoder(tmp_path / "encoder", "Bert")
    source, target = str(tmp_path / "encoder"), tmp_path / "out"
    assert main(["export", source, str(target), "--format", "bert"]) == 0
    again = transformers.AutoModel.from_pretrained(target, add_pooling_layer=False).eval()
    x = torch.randint(5, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(again(x).last_hidden_state, theirs(x).last_hidden_state, **CLOSE)
    model = unmask.load(tmp_path / "encoder")
    tokenizer = AutoTokenizer.from_pretrained(target)
    texts = ["the cat sat", "a mat on the mat"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        h, real = again(**batch).last_hidden_state, batch["attention_mask"][..., None]
    mean = (h * real).sum(1) / real.sum(1)
    torch.testing.assert_close(torch.from_numpy(model.embed(texts)), mean, **CLOSE)
    one = model.embed(texts[0], normalize=True)
    torch.testing.assert_close(
        torch.from_numpy(one), torch.nn.functional.normalize(mean[:1]), **CLOSE
    )
    masked = transformers.AutoModelForMaskedLM.from_pretrained(target).eval()
    with torch.no_grad():
        backbone = model.method.backbone
        torch.testing.assert_close(masked(x).logits, backbone.logits(backbone.features(x)), **CLOSE)


def test_a_classifier_that_transformers_cannot_represent_is_refused(tmp_path):
    found = classifier_of(tiny("bpe", backbone="bert"), 2, pooling="mean")
    with pytest.raises(UnmaskError, match="no bert classifier with pooling mean: train one with"):
        FORMATS["bert"].write(found, tmp_path / "out")
    with pytest.raises(UnmaskError, match="backbone dit has no layout in transformers"):
        FORMATS["bert"].write(tiny("bpe"), tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UnmaskError, match="give another folder"):
        FORMATS["bert"].write(tiny("bpe", backbone="bert"), tmp_path / "mine")
    assert not (tmp_path / "out").exists() and (tmp_path / "mine" / "notes.txt").exists()
