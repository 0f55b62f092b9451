"""Agreement with values of the authors' implementation for a tiny network, in float32 on a CPU."""

import json
from pathlib import Path

import pytest
import torch
from equations import log_x_theta
from safetensors.torch import load_file

from unmask.backbones.dit import DiT
from unmask.diffusion.parameterization import sedd_log_score
from unmask.diffusion.schedule import SCHEDULES, LogLinear
from unmask.diffusion.time_sampler import Noise, Uniform
from unmask.methods.d3pm import D3PM
from unmask.methods.mdlm import MDLM
from unmask.methods.sedd import SEDD
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

FIXTURE = Path(__file__).parent / "fixtures" / "official-dit-tiny"
NAMES = {  # the authors' name -> the package's
    "backbone.": "",
    "vocab_embed.embedding": "embedding.weight",
    "sigma_map.": "noise_level.",
    "attn_qkv": "attention.qkv",
    "attn_out": "attention.out",
    "norm1": "attention_norm",
    "norm2": "mlp_norm",
    "adaLN_modulation": "modulation",
    "output_layer.norm_final": "norm",
    "output_layer.linear": "head",
    "output_layer.": "",
}


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    return load_file(FIXTURE / "expected.safetensors")


def network(time_conditioning: bool) -> DiT:
    settings = json.loads((FIXTURE / "config.json").read_text())
    config = DiT.Config(
        width=settings["hidden_dim"],
        depth=settings["n_blocks"],
        heads=settings["n_heads"],
        condition_width=settings["cond_dim"],
        time_conditioning=time_conditioning,
    )
    theirs = load_file(FIXTURE / "model.safetensors")
    del theirs["backbone.rotary_emb.inv_freq"]
    ours = {}
    for name, tensor in theirs.items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        ours[name] = tensor
    dit = DiT(config, Vocabulary(settings["vocab_size"], settings["vocab_size"] - 1))
    dit.load_state_dict(ours)
    return dit.eval()


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours.float(), theirs, rtol=1e-4, atol=1e-5)


def method_nll(kind, expected, time_conditioning=False, eps=0.0, **fields) -> torch.Tensor:
    dit = network(time_conditioning)
    size = dit.embedding.num_embeddings
    vocabulary = Vocabulary(size, size - 1)
    method = kind(kind.Config(**fields), dit, vocabulary, LogLinear(eps), Uniform())
    x, z_t = expected["x0"], expected["z_t"]
    t = expected["t"].double()
    masked = z_t == vocabulary.mask_id
    noise = Noise(t, masked, torch.ones_like(t), 0.0, torch.zeros_like(masked))
    losses = method.nll(Batch(x, torch.ones_like(masked)), noise)
    torch.testing.assert_close(losses.total.detach(), losses.per_token().sum())
    return losses.per_token()


@torch.no_grad()
def test_logits(expected):
    for conditioned, name in [(True, "logits_time_conditioned"), (False, "logits_unconditioned")]:
        dit = network(conditioned)
        close(dit.logits(dit.features(expected["z_t"], expected["sigma"])), expected[name])


def test_subs_log_probabilities(expected):
    z_t = expected["z_t"]
    ours = log_x_theta(expected["logits_unconditioned"], z_t, mask_id=97)
    close(ours.clamp(min=-1e6), expected["log_x_theta_subs"].clamp(min=-1e6))


def test_sedd_scores(expected):
    sigma = expected["sigma"][:, None].expand_as(expected["z_t"])
    ours = sedd_log_score(expected["logits_time_conditioned"], expected["z_t"], sigma)
    close(ours, expected["log_score_sedd"])


def test_continuous_mdlm(expected):
    close(method_nll(MDLM, expected, eps=1e-3), expected["nll_subs_continuous"])


def test_discrete_mdlm(expected):
    close(method_nll(MDLM, expected, steps=1000), expected["nll_subs_T1000"])


@pytest.mark.parametrize("zero_masking", [False, True])
def test_d3pm(expected, zero_masking):
    name = "nll_d3pm_T1000_zero_masking" if zero_masking else "nll_d3pm_T1000"
    close(method_nll(D3PM, expected, steps=1000, zero_masking=zero_masking), expected[name])


def test_sedd(expected):
    close(method_nll(SEDD, expected, time_conditioning=True, eps=1e-3), expected["nll_sedd"])


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("loglinear", {"eps": 1e-3}),
        ("cosine", {"eps": 1e-3}),
        ("cosine_squared", {"eps": 1e-3}),
        ("linear", {"sigma_min": 1e-3, "sigma_max": 7.0}),
        ("geometric", {"sigma_min": 1e-3, "sigma_max": 1.0}),
    ],
)
def test_schedules(expected, name, fields):
    schedule = SCHEDULES.build(name, **fields)
    t = expected["schedule_t"].double()
    close(schedule.sigma(t), expected[f"sigma_{name}"])
    close(schedule.sigma_prime(t), expected[f"dsigma_{name}"])
