"""All carriers of an attention rule give the same features."""

import pytest
import torch

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.layers import attention, attention_rules
from unmask.backbones.layers.attention_rules import (
    BlockRule,
    NoisyCleanRule,
    causal_rule,
    full_rule,
)
from unmask.vocabulary import Vocabulary

RULED = [name for name in BACKBONES if BACKBONES[name].rules]


def network(name: str):
    """A small network with no weight at zero."""
    kind = BACKBONES[name]
    grouped = {"kv_heads": 1} if hasattr(kind.Config, "kv_heads") else {}
    config = kind.Config(width=32, depth=2, heads=2, dropout=0.0, **grouped)
    built = kind(config, Vocabulary.over(11))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return built.eval().requires_grad_(False)


def tokens() -> torch.Tensor:
    return torch.randint(0, 11, (3, 8), generator=torch.Generator().manual_seed(0))


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", RULED)
def test_a_rule_without_a_tensor_equals_its_dense_mask(name):
    built = network(name)
    same = causal_rule if built.causal else full_rule
    masked = built.features(tokens(), rule=lambda q, k: same(q, k))
    close(built.features(tokens()), masked)
    if built.causal:
        everywhere = built.features(tokens(), rule=lambda q, k: (q + k) >= 0)
        close(built.features(tokens(), rule=full_rule), everywhere)
        assert not torch.allclose(everywhere, masked)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("rule", [BlockRule(2), BlockRule(3), NoisyCleanRule(4, 2)])
@pytest.mark.parametrize("name", RULED)
def test_flex_attention_equals_the_dense_mask(name, rule, monkeypatch):
    built = network(name)
    dense = built.features(tokens(), rule=rule)
    monkeypatch.setattr(attention, "takes_block_mask", lambda rule, device: rule is not None)
    if hasattr(built.config, "rotary"):
        carried = attention.Call(tokens(), rule=rule).attention(built.config.rotary, built.causal)
        assert carried.mask is None and carried.by_blocks is not None
    close(built.features(tokens(), rule=rule), dense)


def test_equal_rules_share_one_block_mask():
    device = torch.device("cpu")
    first = attention_rules.block_mask(BlockRule(2), 8, device)
    assert attention_rules.block_mask(BlockRule(2), 8, device) is first
    assert attention_rules.block_mask(BlockRule(4), 8, device) is not first
    assert not attention_rules.takes_block_mask(BlockRule(2), device)
    assert attention_rules.takes_block_mask(BlockRule(2), torch.device("cuda"))
    assert not attention_rules.takes_block_mask(causal_rule, torch.device("cuda"))
