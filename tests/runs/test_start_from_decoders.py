"""A run of a diffusion method starts from the weights of an autoregressive decoder."""

import pytest
import torch
from llama_models import reference, write_tokenizer

from unmask import train
from unmask.formats.read import read_bundle


@pytest.mark.parametrize("method", ["mdlm", "autoregressive"])
def test_a_masked_model_starts_from_a_decoder(method, tmp_path):
    parent, text = tmp_path / "parent", tmp_path / "text.txt"
    parent.mkdir()
    reference("llama, tied, wide heads", vocab_size=45).save_pretrained(parent)
    write_tokenizer(parent)
    text.write_text("\n".join('!"#$%&()*' * 20 for _ in range(40)))
    given = {"init_from": str(parent), "data.train": str(text), "data.length": 32}
    given |= {"training.steps": 2, "training.batch": 4, "training.lr": 1e-6, "method": method}
    model = train("finetune", tmp_path / "run", overrides=given, say=lambda line: None)
    network, start = model.method.backbone, read_bundle(parent).method.backbone
    assert model.config.method.name == method
    assert network.causal == (method == "autoregressive")
    table = network.embedding.weight
    assert network.head.weight is table and len(table) == 46
    torch.testing.assert_close(table[45], start.embedding.weight[:45].mean(0), rtol=0, atol=1e-4)
    torch.testing.assert_close(table, start.embedding.weight, rtol=0, atol=1e-4)
    assert model.tokenizer.vocabulary.mask_id == 45
