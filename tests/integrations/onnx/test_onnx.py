"""An exported network has the same logits in onnxruntime at any length, and its sampler needs no torch."""

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch
from hub_models import FIXTURE, logits, refused, tiny
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.torch import load_file
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import unmask
from unmask.cli import main
from unmask.integrations.onnx import export, metadata
from unmask.model import Model
from unmask.shapes import Batch

EXAMPLE = Path(__file__).parents[3] / "examples" / "onnx_sampler.py"


NETWORKS = {
    "timed": lambda: tiny(backbone__time_conditioning="true", schedule="cosine"),
    "plain": lambda: unmask.load(FIXTURE),  # without a tokenizer, so MASK is its only special id
    "causal": lambda: tiny(method="autoregressive"),
}
_exported: dict[str, tuple[Model, Path]] = {}


@pytest.fixture
def exported(tmp_path_factory) -> Callable[[str], tuple[Model, Path]]:
    """A network by name, and the folder with its exported file. Each is exported once."""

    def get(name: str) -> tuple[Model, Path]:
        if name not in _exported:
            folder, model = tmp_path_factory.mktemp("onnx"), NETWORKS[name]()
            export(model, folder / "model.onnx")
            _exported[name] = model, folder
        return _exported[name]

    return get


@pytest.mark.parametrize(
    "name", [n if n == "timed" else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]
)
def test_logits_agree_at_every_length(exported, name):
    model, folder = exported(name)
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    timed = model.method.backbone.time_conditioning
    assert timed == (name == "timed")
    assert [given.name for given in session.get_inputs()] == ["tokens", "sigma"][: 1 + timed]
    v = model.tokenizer.vocabulary
    for rows, length in ((2, 1), (1, 2), (3, 11), (2, 24), (1, 40)):
        generator = torch.Generator().manual_seed(length)
        tokens = torch.randint(v.size, (rows, length), generator=generator)
        sigma = 3 * torch.rand(rows, generator=generator) if timed else None
        feed = {"tokens": tokens.numpy()} | ({"sigma": sigma.numpy()} if timed else {})
        (theirs,) = session.run(["logits"], feed)
        ours = logits(model, tokens, sigma)
        ours[..., v.mask_id] = -torch.inf
        np.testing.assert_allclose(theirs, ours.numpy(), rtol=0, atol=1e-4)
    assert model.method.backbone.frozen is not None  # it is ready for inference again
    assert not model.method.training


def test_onnxruntime_quantizes_a_file(exported, tmp_path):
    folder = exported("timed")[1]
    # processors without VNNI saturate the products of 8 bits; 7 bits fit
    quantize_dynamic(
        folder / "model.onnx",
        tmp_path / "int8.onnx",
        weight_type=QuantType.QInt8,
        reduce_range=True,
    )
    feed = {"tokens": np.arange(24).reshape(2, 12), "sigma": np.ones(2, np.float32)}
    plain, int8 = (
        onnxruntime.InferenceSession(file).run(["logits"], feed)[0]
        for file in (folder / "model.onnx", tmp_path / "int8.onnx")
    )
    known = np.isfinite(plain)
    assert np.abs(plain[known] - int8[known]).max() < 0.05 * np.ptp(plain[known])
    assert (tmp_path / "int8.onnx").stat().st_size < (folder / "model.onnx").stat().st_size


def test_the_authors_network_has_the_same_logits_in_onnxruntime(exported):
    expected = load_file(FIXTURE / "expected.safetensors")
    session = onnxruntime.InferenceSession(exported("plain")[1] / "model.onnx")
    (found,) = session.run(["logits"], {"tokens": expected["z_t"].numpy()})
    theirs = expected["logits_unconditioned"].numpy()
    np.testing.assert_allclose(found[..., :97], theirs[..., :97], rtol=0, atol=1e-4)


def test_a_file_has_the_metadata_of_a_sampler(exported):
    def known(name: str) -> dict[str, str]:
        session = onnxruntime.InferenceSession(exported(name)[1] / "model.onnx")
        return session.get_modelmeta().custom_metadata_map

    model, timed = exported("timed")[0], known("timed")
    v = model.tokenizer.vocabulary
    assert {role: int(timed[f"{role}_id"]) for role in ("mask", "pad", "bos", "eos")} == {
        "mask": v.mask_id, "pad": v.pad_id, "bos": v.bos_id, "eos": v.eos_id,
    }  # fmt: skip
    assert (timed["method"], timed["order"]) == ("mdlm", "any")
    assert (timed["length"], timed["shortest"]) == ("24", "1") and "longest" not in timed
    assert json.loads(timed["schedule"]) == {"name": "cosine", "eps": 1e-3}
    t, alphas = torch.tensor([0.0, 0.01234, 0.5, 0.9876, 1.0]), json.loads(timed["alpha"])
    alpha = np.interp(t.double().numpy(), np.linspace(0, 1, len(alphas)), alphas)
    sigma = np.minimum(-np.log(alpha), float(timed["largest_sigma"]))
    np.testing.assert_allclose(model.method.condition(t, t.device).numpy(), sigma, atol=1e-4)

    plain = known("plain")
    assert plain["mask_id"] == "97" and "bos_id" not in plain
    assert json.loads(plain["schedule"]) == {"name": "loglinear", "eps": 1e-3}
    causal = known("causal")
    assert causal["order"] == "left_to_right" and "alpha" not in causal
    assert causal["start_id"] == causal["mask_id"]
    bert = metadata(tiny(backbone="bert", backbone__positions="30"))
    assert bert["longest"] == "30"


def test_logits_of_a_causal_file_are_those_of_the_next_token(exported):
    model, folder = exported("causal")
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    start = int(session.get_modelmeta().custom_metadata_map["start_id"])
    x = torch.tensor([[5, 7, 11, 13, 2]])
    read = torch.cat([torch.tensor([[start]]), x[:, :-1]], 1)
    (found,) = session.run(["logits"], {"tokens": read.numpy()})
    costs = -torch.from_numpy(found).log_softmax(-1).gather(-1, x[..., None])[..., 0]
    with torch.no_grad():
        losses = model.method.nll(Batch(x, torch.ones_like(x, dtype=torch.bool)), None).per_token()
    torch.testing.assert_close(costs, losses, rtol=0, atol=1e-4)


def run_example(monkeypatch, capsys, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["sampler", *arguments, "--length", "12", "--steps", "5"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return capsys.readouterr().out


def test_the_example_generates_without_torch(exported, monkeypatch, capsys, tmp_path):
    source = EXAMPLE.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60 and "import torch" not in source
    model, folder = exported("timed")
    model.save_pretrained(folder / "model")
    given = str(folder / "model.onnx"), str(folder / "model" / "tokenizer.json"), "The cat"
    text, again = (run_example(monkeypatch, capsys, *given) for _ in range(2))
    assert text == again and text.startswith("The cat")
    assert "[MASK]" not in text and len(text) > len("The cat\n")

    words = Backend(WordLevel({f"w{i}": i for i in range(97)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    words.save(str(tmp_path / "words.json"))
    given = str(tmp_path / "words.json"), "w5 w6"  # without a BOS token
    text = run_example(monkeypatch, capsys, str(exported("plain")[1] / "model.onnx"), *given)
    assert text.startswith("w5 w6 w") and len(text.split()) == 12
    with pytest.raises(SystemExit):
        run_example(monkeypatch, capsys, str(exported("causal")[1] / "model.onnx"), *given)
    assert "from left to right" in capsys.readouterr().err


def test_class_tokens_and_special_tokens_are_never_generated():
    model = tiny()
    model = replace(model, tokenizer=model.tokenizer.with_labels(["good", "bad"]))
    v, known = model.tokenizer.vocabulary, metadata(model)
    never = json.loads(known["never_ids"])
    assert never == sorted([v.pad_id, v.bos_id, v.eos_id, v.size - 2, v.size - 1])

    def run(_: list[str], feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        likes = np.isin(np.arange(v.size), never)  # prefers the tokens that it must not draw
        hates = np.arange(v.size) == v.mask_id
        scores = np.where(hates, -np.inf, 100.0 * likes)
        return [np.broadcast_to(scores, (*feed["tokens"].shape, v.size))]

    session = SimpleNamespace(get_inputs=list, run=run)
    z_t = np.full(50, v.mask_id)
    sample = runpy.run_path(str(EXAMPLE))["sample"]
    z_0 = sample(session, z_t, known, 5, np.random.default_rng(0))
    assert not np.isin(z_0, [*never, v.mask_id]).any()
    assert json.loads(metadata(unmask.load(FIXTURE))["never_ids"]) == []


def test_mistakes_are_reported_before_the_export(tmp_path, monkeypatch, capsys):
    assert main(["export", "runs/none"]) == 2
    assert "the export has no target" in capsys.readouterr().err
    assert main(["export", "runs/none", "--onnx", str(tmp_path / "no" / "a.onnx")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    message = refused(lambda: export(tiny("bytes"), tmp_path / "a.onnx"))
    assert "pip install -e '.[onnx]'" in message
