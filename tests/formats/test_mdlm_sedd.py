"""The authors' checkpoints of MDLM and SEDD have the authors' logits, at the time that the network expects."""

import json
from pathlib import Path

import pytest
import torch
from authors_network import authors_logits, authors_sigma
from hub_models import CAUSAL, FIXTURE, ORDER, authors_settings, lightning, logits, refused
from safetensors.torch import load_file, save_file

import unmask
from unmask.diffusion.time_sampler import Noise
from unmask.formats.read import read
from unmask.shapes import Batch

CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    return load_file(FIXTURE / "expected.safetensors")


def change(file: Path, **settings: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def test_a_lightning_checkpoint_gives_the_authors_logits_by_its_averages(tmp_path, expected):
    file = lightning(tmp_path / "last.ckpt", authors_settings())
    ours = logits(read(file), expected["z_t"])
    torch.testing.assert_close(ours, expected["logits_unconditioned"], **CLOSE)
    raw = read(file, averaged=False).method.state_dict()
    averaged = read(file).method.state_dict()
    assert raw.keys() == averaged.keys()
    for name in raw:
        torch.testing.assert_close(raw[name], averaged[name] + 1)
    without = lightning(tmp_path / "no-ema.ckpt", authors_settings(), ema=None)
    torch.testing.assert_close(read(without).method.state_dict(), raw)


def test_the_reference_network_has_the_authors_logits(expected):
    weights = load_file(FIXTURE / "model.safetensors")
    sigma = authors_sigma(expected["t"].double())
    torch.testing.assert_close(sigma.float(), expected["sigma"])
    for name, given in {"time_conditioned": sigma, "unconditioned": 0 * sigma}.items():
        found = authors_logits(weights, expected["z_t"], given)
        torch.testing.assert_close(found, expected[f"logits_{name}"], **CLOSE)


KINDS = {  # the authors' settings -> the method, and the fields that differ from its defaults
    "continuous": ({}, "mdlm", {"steps": 0}),
    "steps": ({"T": 1000}, "mdlm", {"steps": 1000}),
    "d3pm": ({"parameterization": "d3pm", "T": 1000}, "d3pm", {"zero_masking": False}),
    "zero masking": (
        {"parameterization": "d3pm", "T": 500, "subs_masking": True},
        "d3pm",
        {"steps": 500, "zero_masking": True},
    ),
    "sedd": ({"parameterization": "sedd"}, "sedd", {}),
}


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_each_parameterization_reads_the_time_of_its_training(tmp_path, expected, kind, timed):
    changes, method, fields = KINDS[kind]
    file = lightning(tmp_path / "a.ckpt", authors_settings(**changes, time_conditioning=timed))
    if kind == "sedd" and not timed:  # the authors' code would take the logarithm of 0
        assert "set backbone.time_conditioning true" in refused(lambda: read(file))
        return
    model = read(file)
    assert model.config.method.name == method
    assert all(getattr(model.config.method.config, name) == fields[name] for name in fields)
    weights, z_t = load_file(FIXTURE / "model.safetensors"), expected["z_t"]
    at = (z_t == 97).nonzero(as_tuple=True)
    for t in (1e-3, 0.25, 0.5, 0.999, 1.0):
        times = torch.full((len(z_t),), t, dtype=torch.float64)
        sigma = authors_sigma(times) if timed else 0 * times
        theirs = authors_logits(weights, z_t, sigma)[at]
        ours = logits(model, z_t, model.method.condition(times, z_t.device))[at]
        torch.testing.assert_close(ours, theirs, **CLOSE)
        with torch.no_grad():  # a sampler never draws MASK
            found = model.method.denoiser()(z_t, times, at)[:, :97]
        torch.testing.assert_close(found, theirs[:, :97].log_softmax(-1), **CLOSE)


@pytest.mark.parametrize("name", ["subs", "d3pm"])
def test_bounds_of_steps_equal_those_of_the_authors(tmp_path, expected, name):
    model = read(lightning(tmp_path / "a.ckpt", authors_settings(parameterization=name, T=1000)))
    t, masked = expected["t"].double(), expected["z_t"] == 97
    noise = Noise(t, masked, torch.ones_like(t), 0.0, torch.zeros_like(masked))
    with torch.no_grad():
        losses = model.method.nll(Batch(expected["x0"], torch.ones_like(masked)), noise).per_token()
    # the authors use alpha_t = 1 - t, while tokens are masked with 0.999 t; d3pm hardly changes
    torch.testing.assert_close(losses, expected[f"nll_{name}_T1000"], rtol=1e-4, atol=1e-5)


def test_a_change_of_variables_is_refused_for_a_timed_network(tmp_path):
    def change(timed: bool) -> dict:
        training = {"change_of_variables": True}
        return authors_settings(time_conditioning=timed, training=training)

    timed = lightning(tmp_path / "a.ckpt", change(True))
    assert "training.change_of_variables is True" in refused(lambda: read(timed))
    read(lightning(tmp_path / "b.ckpt", change(False)))  # this network reads no time


def test_their_autoregressive_backbone_is_the_causal_one(tmp_path, expected):
    settings = authors_settings(backbone="ar", parameterization="ar", noise={"type": "ar"})
    model = read(lightning(tmp_path / "ar.ckpt", settings, CAUSAL))
    assert model.config.backbone.name == "causal"
    weights, x = load_file(FIXTURE / "model.safetensors"), expected["x0"]
    theirs = authors_logits(weights, x)
    torch.testing.assert_close(logits(model, x), theirs, **CLOSE)
    theirs[..., 97] = -1000.0  # as in the authors' AR: MASK is never next
    costs = -theirs.log_softmax(-1)[:, :-1].gather(-1, x[:, 1:, None])[..., 0]
    with torch.no_grad():
        losses = model.method.nll(Batch(x, torch.ones_like(x, dtype=torch.bool)), None).per_token()
    torch.testing.assert_close(losses[:, 1:], costs, **CLOSE)
    assert not losses[:, 0].any()  # BOS is given


def test_the_published_layout_of_sedd(tmp_path, expected):
    tensors = load_file(FIXTURE / "model.safetensors")
    save_file(
        {name.removeprefix("backbone."): tensor for name, tensor in tensors.items()},
        tmp_path / "model.safetensors",
    )
    tree = {**authors_settings(), "tokens": 97, "graph": {"type": "absorb"}}
    (tmp_path / "config.json").write_text(json.dumps(tree))
    model = unmask.load(tmp_path)
    assert model.config.method.name == "sedd"
    t, at = expected["t"].double(), (expected["z_t"] == 97).nonzero(as_tuple=True)
    with torch.no_grad():
        ours = model.method.log_score(expected["z_t"], t, at)
    torch.testing.assert_close(ours, expected["log_score_sedd"][at], **CLOSE)
    change(tmp_path / "config.json", graph={"type": "uniform"})
    assert "graph.type is 'uniform'" in refused(lambda: unmask.load(tmp_path))


def test_averages_in_another_order_are_refused(tmp_path):
    order = [*CAUSAL, *(name for name in ORDER if name not in CAUSAL)]
    swapped = lightning(tmp_path / "b.ckpt", authors_settings(), order)
    assert "another shape" in refused(lambda: read(swapped))
    deep = authors_settings()
    deep["model"]["n_blocks"] = 10**9
    deeper = lightning(tmp_path / "c.ckpt", deep)
    assert "averages are not one per parameter" in refused(lambda: read(deeper))


def test_sizes_are_checked_before_memory_is_allocated(tmp_path):
    file = tmp_path / "a.ckpt"
    wide = torch.zeros(1, dtype=torch.float16).expand(2**44)
    lightning(file, authors_settings(), state_dict={"backbone.rotary_emb.inv_freq": wide})
    assert "claim more data than it holds" in refused(lambda: read(file))
    lightning(file, authors_settings(), ema={"shadow_params": [wide] * len(ORDER)})
    assert "has another shape" in refused(lambda: read(file))
    wider = authors_settings()
    wider["model"]["hidden_size"] = 2**44
    assert "does not hold rotary frequencies of base 10,000" in refused(
        lambda: read(lightning(file, wider))
    )
    weights = load_file(FIXTURE / "model.safetensors")
    views = [wide[:1].expand(weights[f"backbone.{name}"].shape) for name in ORDER]
    lightning(file, authors_settings(), ema={"shadow_params": views})
    assert "claim more data than it holds" in refused(lambda: read(file))
