"""An exported network says in onnxruntime what it says here, at any length, and a sampler needs no torch."""

import runpy
import sys
from pathlib import Path

import jaxtyping
import numpy as np
import onnxruntime
import pytest
import torch
from hub_models import logits, refused, tiny

from unmask.cli import main
from unmask.hub.onnx import export

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_sampler.py"


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple:
    """A network that reads the noise level, as the larger case; and a folder in the hub's layout."""
    folder = tmp_path_factory.mktemp("onnx")
    model = tiny(backbone__time_conditioning="true")
    model.save_pretrained(folder / "model")
    # tracing asks functions about lengths that are symbols, which are no int to a checker of types
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        export(model, folder / "model.onnx")
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    return model, folder


@pytest.mark.parametrize(("rows", "length"), [(1, 2), (3, 11), (2, 24)])
def test_logits_agree_at_every_length(exported, rows, length):
    model, folder = exported
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    generator = torch.Generator().manual_seed(length)
    v = model.tokenizer.vocabulary
    tokens = torch.randint(v.size, (rows, length), generator=generator)
    sigma = 3 * torch.rand(rows, generator=generator)
    feed = {"tokens": tokens.numpy(), "sigma": sigma.numpy()}
    (theirs,) = session.run(["logits"], feed)
    ours = logits(model, tokens, sigma)
    ours[..., v.mask_id] = -torch.inf
    np.testing.assert_allclose(theirs, ours.numpy(), rtol=0, atol=1e-4)
    known = session.get_modelmeta().custom_metadata_map
    assert int(known["mask_id"]) == v.mask_id and int(known["length"]) == model.length


def test_the_model_is_what_it_was(exported):
    model, _ = exported
    assert model.method.backbone.frozen is not None  # it serves again
    assert not model.method.training


def test_the_example_writes_without_torch(exported, monkeypatch, capsys):
    _, folder = exported
    arguments = [str(folder / "model.onnx"), str(folder / "model" / "tokenizer.json"), "The cat"]
    monkeypatch.setattr(sys, "argv", ["sampler", *arguments, "--length", "12", "--steps", "5"])
    source = EXAMPLE.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60 and "import torch" not in source
    texts = []
    for _ in range(2):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and texts[0].startswith("The cat")
    assert "[MASK]" not in texts[0] and len(texts[0]) > len("The cat\n")


def test_mistakes_are_told_first(tmp_path, monkeypatch, capsys):
    assert main(["export", "runs/none"]) == 2
    assert "say where to write it" in capsys.readouterr().err
    assert main(["export", "runs/none", "--onnx", str(tmp_path / "no" / "a.onnx")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    message = refused(lambda: export(tiny("bytes"), tmp_path / "a.onnx"))
    assert "pip install 'unmask[onnx]'" in message
