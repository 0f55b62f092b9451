"""Models of DNA: pretraining, the shipped model, the card of a model."""

import json
from pathlib import Path

import pytest

import unmask
from unmask.cli import main
from unmask.config.components import build_method
from unmask.config.run_config import load_recipe, resolve
from unmask.errors import UnmaskError
from unmask.extensions.dna.dna_tokenizer import DnaTokenizer
from unmask.model import Model


def test_a_diffusion_model_continues_from_a_masked_language_model(tmp_path):
    text = tmp_path / "x.fa"
    text.write_text(">x\n" + "ACGGT" * 400)
    settings = {"data.train": str(text), "data.cache": str(tmp_path / "cache"), "training.steps": 2}
    settings |= {"data.tokenizer.kind": "dna", "data.packing": "windows", "data.length": 16}
    settings |= {"backbone.width": 16, "backbone.depth": 1, "backbone.heads": 1}
    settings |= {"training.batch": 4, "training.device": "cpu", "data.reverse_complement": 0.5}
    first = resolve({}, settings | {"method": "mlm"})
    model = unmask.train(first, tmp_path / "mlm", say=lambda line: None)
    bound = model.perplexity()
    assert bound.certificate == "none" and bound.tokens == 976
    assert model.perplexity(estimator="pseudo").certificate == "pseudo"
    with pytest.raises(UnmaskError, match="the method mlm writes no text"):
        model.generate()
    second = resolve({}, settings | {"method": "mdlm", "init_from": str(tmp_path / "mlm")})
    lines: list[str] = []
    other = unmask.train(second, tmp_path / "mdlm", say=lines.append)
    assert other.perplexity(draws=2).certificate == "upper"
    [filled] = other.fill("ACG[MASK:4]T", seed=1)
    assert len(filled.text) == 8 and set(filled.text) <= set("ACGT")
    [written] = other.generate(seed=1)
    assert len(written.text) == 16 and set(written.text) <= set("ACGT")


def test_dna_is_edited_to_its_last_base_and_constrained_in_lower_case():
    """Rows of the shipped model `dna` have no EOS."""
    dna = unmask.load("dna", device="cpu")
    assert len({result.text for result in dna.edit("A", sampler="gibbs", n=8)}) > 1
    [result] = dna.generate(length=40, steps=8, ban=["aa"], include=["gattaca"])  # as prompts
    assert "GATTACA" in result.text and "AA" not in result.text
    text = "ACGT" * 257  # two rows
    [result] = dna.edit(text, remask_span=(5, 8), steps=1)
    assert (len(result.text), result.text[8:]) == (len(text), text[8:])
    with pytest.raises(UnmaskError, match="reads it in several rows: its steps cannot be streamed"):
        list(dna.stream(edit="ACGT" * 512, remask_span=(5, 8)))
    first = next(iter(dna.stream(edit="ACGTACGT", remask_uncertain=8)))
    hidden = first.changed | (first.tokens == dna.tokenizer.vocabulary.mask_id)
    assert hidden.all() and hidden.numel() == 8


def test_no_language_model_judges_dna(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    shape = {"backbone.width": 16, "backbone.depth": 1, "data.length": 32}
    config, tokenizer = resolve(load_recipe("dna"), shape), DnaTokenizer(ends=False)
    Model(build_method(config, tokenizer.vocabulary), tokenizer, config).save("dna")
    Path("held.fa").write_text(">1\n" + "ACGGTCAT" * 20 + "\n")
    card = ["card", "dna", "--data", "held.fa", "--about", "Bases", "--licence", "CC0"]
    assert main([*card, "--draws", "2"]) == 0
    facts, page = json.loads(Path("dna/card.json").read_text()), Path("dna/README.md").read_text()
    assert facts["texts"] == [] and facts["bound"]["tokens"] == 160
    assert all(set(sample["text"]) <= set("ACGT") for sample in facts["samples"])
    assert "unmask train dna " in page and "gen-PPL" not in page
