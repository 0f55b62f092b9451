"""A fine-tuned classifier of any network, read by transformers and by unmask."""

import pytest
import torch
from hub_models import fill, tiny
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import unmask
import unmask.integrations.transformers
from unmask.model import Model
from unmask.representation.classifier import class_logits, classifier_of

PAIRS = [("the cat sat", "on a mat"), ("a mat", "the cat sat on the mat on the mat")]
CLOSE = {"rtol": 0, "atol": 1e-5}


def auto_logits(folder) -> torch.Tensor:
    """The logits of the pairs with the Auto classes alone."""
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(*map(list, zip(*PAIRS, strict=True)), padding=True, return_tensors="pt")
    with torch.no_grad():
        return network(**batch).logits


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("backbone", ["dit", "bert"])
def test_a_classifier_of_any_network_has_the_same_logits(tmp_path, backbone, pooling):
    found = classifier_of(tiny("bpe", backbone=backbone), 2, pooling=pooling, pooler=True)
    fill(found.method)
    model = Model(found.method, found.tokenizer, found.config)
    model.save_pretrained(tmp_path / "hub")
    ours = class_logits(found, PAIRS)
    torch.testing.assert_close(auto_logits(tmp_path / "hub"), ours, **CLOSE)
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "hub")
    x = torch.tensor([[1, 2, 3]])
    loss = network(x, labels=torch.tensor([1])).loss
    torch.testing.assert_close(
        loss, torch.nn.functional.cross_entropy(network(x).logits, torch.tensor([1]))
    )
    again = unmask.load(tmp_path / "hub")
    logits = torch.tensor([each.logits for each in again.classify(PAIRS)])
    torch.testing.assert_close(logits, ours, **CLOSE)
    model.save(tmp_path / "own")
    [alone] = unmask.load(tmp_path / "own").classify(PAIRS[0])  # without the padding of a batch
    torch.testing.assert_close(torch.tensor(alone.logits), ours[0], **CLOSE)
