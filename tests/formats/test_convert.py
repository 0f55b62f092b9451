"""unmask convert: checkpoints of other projects become models of the package."""

import sys
from pathlib import Path

import pytest
import torch
from hub_models import FIXTURE, authors_settings, lightning, logits
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

import unmask
import unmask.integrations.transformers
from unmask.cli import main


def test_convert_writes_a_model_of_the_package(tmp_path, capsys):
    expected = load_file(FIXTURE / "expected.safetensors")
    lightning(tmp_path / "mdlm.ckpt", authors_settings())
    assert main(["convert", str(tmp_path / "mdlm.ckpt"), str(tmp_path / "ours")]) == 0
    assert "mdlm, dit, 0.2M parameters, rows of 24 tokens" in capsys.readouterr().out
    ours = logits(unmask.load(tmp_path / "ours"), expected["z_t"])
    torch.testing.assert_close(ours, expected["logits_unconditioned"], rtol=0, atol=1e-5)
    assert main(["convert", str(FIXTURE), str(tmp_path / "hub"), "--pretrained"]) == 0
    with torch.no_grad():
        auto = AutoModelForMaskedLM.from_pretrained(tmp_path / "hub")(expected["z_t"]).logits
    theirs = expected["logits_unconditioned"]
    torch.testing.assert_close(auto[..., :97], theirs[..., :97], rtol=0, atol=1e-5)


def test_convert_takes_the_raw_weights_and_another_tokenizer(tmp_path, capsys):
    file, ours = str(lightning(tmp_path / "a.ckpt", authors_settings())), str(tmp_path / "ours")
    assert main(["convert", file, ours, "--raw"]) == 0
    raw = unmask.load(ours).method.backbone.head.bias
    theirs = load_file(FIXTURE / "model.safetensors")["backbone.output_layer.linear.bias"]
    torch.testing.assert_close(raw.detach(), theirs + 1)
    words = [f"w{i}" for i in range(50)]
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "vocab.txt").write_text("\n".join([*words, "[CLS]", "[SEP]"]))
    capsys.readouterr()
    assert main(["convert", file, ours, "--tokenizer", str(tmp_path / "words")]) == 2
    assert "has 98 ids, MASK included, and the tokenizer 53" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "none.ckpt"), ours]) == 2
    assert "no checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["convert", "export"])
def test_the_target_is_checked_before_anything_is_read(tmp_path, capsys, monkeypatch, command):
    def told(target: Path, *options: str) -> str:
        assert main([command, "none", str(target), *options]) == 2
        return capsys.readouterr().err

    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "empty").mkdir()
    for target in ("full", "notes.txt"):
        assert "already exists and is no unmask model" in told(tmp_path / target)
        assert "already exists and is no unmask model" in told(tmp_path / target, "--pretrained")
    assert "cannot be written" in told(tmp_path / "notes.txt" / "out" / "deep")
    # these targets are valid, so the command goes on to look for the model
    missing = "no checkpoint 'none'" if command == "convert" else "no model 'none'"
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.json").write_text('{"model_type": "unmask"}')
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "model.json").write_text("{}")
    for free in ([tmp_path / "new" / "deep"], [tmp_path / "empty", "--pretrained"]):
        assert missing in told(*free)
    assert missing in told(tmp_path / "own") and missing in told(tmp_path / "ours", "--pretrained")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install -e '.[hub]'" in told(tmp_path / "new", "--pretrained")
    assert not (tmp_path / "new").exists() and (tmp_path / "notes.txt").read_text() == "mine"
