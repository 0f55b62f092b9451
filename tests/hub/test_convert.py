"""The command that turns checkpoints of others into models of ours."""

import torch
from hub_models import FIXTURE, authors_settings, lightning, logits
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

import unmask
from unmask.cli import main


def test_convert_writes_a_model_of_ours(tmp_path, capsys):
    expected = load_file(FIXTURE / "expected.safetensors")
    lightning(tmp_path / "mdlm.ckpt", authors_settings())
    assert main(["convert", str(tmp_path / "mdlm.ckpt"), str(tmp_path / "ours")]) == 0
    assert "mdlm, dit, 0.2M parameters, rows of 24 tokens" in capsys.readouterr().out
    ours = logits(unmask.load(tmp_path / "ours"), expected["z_t"])
    torch.testing.assert_close(ours, expected["logits_unconditioned"], rtol=0, atol=1e-4)
    assert main(["convert", str(FIXTURE), str(tmp_path / "hub"), "--pretrained"]) == 0
    with torch.no_grad():
        auto = AutoModelForMaskedLM.from_pretrained(tmp_path / "hub")(expected["z_t"]).logits
    theirs = expected["logits_unconditioned"]
    torch.testing.assert_close(auto[..., :97], theirs[..., :97], rtol=0, atol=1e-4)


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
