"""Mixtures of experts: the router of transformers, training, and settings that do not fit."""

import json

import pytest
import safetensors.torch
import torch
import transformers

import unmask
from benchmarks.quality.families import logits, noisy
from benchmarks.quality.family_models import write_family
from unmask.backbones.layers.experts import Experts, Routing
from unmask.errors import UnmaskError
from unmask.formats.format import FORMATS
from unmask.formats.read import read_bundle


@pytest.mark.parametrize("normalized", [True, False])
@torch.no_grad()
def test_logits_with_experts_are_those_of_transformers(normalized, tmp_path):
    write_family(tmp_path / "sdar", "sdar_moe", norm_topk_prob=normalized)
    write_family(tmp_path / "qwen", "sdar_moe", norm_topk_prob=normalized, model_type="qwen3_moe")
    ours = unmask.load(tmp_path / "sdar")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "qwen").eval()
    number = torch.arange(noisy().shape[1]) // 4
    hidden = torch.zeros(len(number), len(number)).masked_fill(number > number[:, None], -torch.inf)
    wanted = theirs(noisy(), attention_mask=hidden.expand(2, 1, -1, -1)).logits
    torch.testing.assert_close(logits(ours), wanted, rtol=0, atol=1e-5)
    FORMATS["decoder"].write(ours, tmp_path / "back")
    tree = json.loads((tmp_path / "back" / "config.json").read_text())
    assert tree["model_type"] == "sdar_moe" and tree["norm_topk_prob"] == normalized
    held = [
        safetensors.torch.load_file(tmp_path / side / "model.safetensors")
        for side in ("sdar", "back")
    ]
    assert held[0].keys() == held[1].keys()
    assert all(torch.equal(held[0][name], held[1][name]) for name in held[0])


def test_gradients_reach_the_router_and_the_experts_that_were_chosen():
    torch.manual_seed(0)
    experts = Experts(
        8,
        6,
        4,
        Routing(experts=6, active=2, router="sigmoid", groups=3, active_groups=2, scale=2.5),
    )
    experts.initialize(0.3)
    x = torch.randn(1, 3, 8, dtype=torch.float64, requires_grad=True)
    experts.double()(x).square().sum().backward()
    chosen = experts.up.grad.abs().sum((1, 2)) > 0
    assert 2 <= chosen.sum() <= 6 and experts.router.weight.grad.abs().sum() > 0
    assert torch.equal(chosen, experts.down.grad.abs().sum((1, 2)) > 0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"n_group": 3}, "8 experts have no 3 groups"),
        ({"num_experts_per_tok": 5}, "active_experts must be 4 at most, not 5"),
        ({"use_bias": True}, "use_bias is True; only False"),
        (
            {"num_experts": 9, "n_group": 1, "topk_group": 1},
            "experts.8.gate_proj.weight is missing",
        ),
    ],
)
def test_experts_that_do_not_fit_are_one_line(settings, reason, tmp_path):
    write_family(tmp_path, "llada2_moe", **settings)
    with pytest.raises(UnmaskError, match=reason):
        read_bundle(tmp_path)
