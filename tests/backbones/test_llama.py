"""The transformer of Llama, Qwen and Mistral equals the classes of transformers."""

import pytest
import torch
from llama_models import FAMILIES, tiny

from unmask.backbones.layers.attention import Call
from unmask.backbones.llama import Llama
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

LENGTH = 40


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("frozen", [False, True])
@torch.no_grad()
def test_logits_equal_those_of_transformers(family, frozen):
    theirs, ours = tiny(family)
    if frozen:
        ours.freeze(torch.float32)
    x = torch.randint(0, 50, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    close(ours.logits(ours.features(x)), theirs(x).logits)


def network(**fields: object) -> Llama:
    """A small causal network in which heads share keys and values."""
    shape = {"width": 16, "depth": 2, "heads": 4, "kv_heads": 2, "causal": True}
    torch.manual_seed(0)
    built = Llama(Llama.Config(**{**shape, **fields}), Vocabulary(11, 10))
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return built.eval().requires_grad_(False)


X = torch.randint(0, 11, (3, 12), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("scaling", ["none", "yarn", "dynamic"])
@pytest.mark.parametrize("parts", [[1] * 12, [5, 7], [3, 1, 8]])
def test_cached_features_equal_uncached_ones(parts, scaling):
    built = network(scaling=scaling, factor=2.0, trained=12)
    state = built.new_state(len(X), 12)
    cached = [built.features(part, state=state) for part in X.split(parts, 1)]
    close(torch.cat(cached, 1), built.features(X))


def test_a_rule_at_the_call_replaces_the_direction_of_the_network():
    causal, full = network(), network(causal=False)
    everywhere = causal.features(X, rule=lambda q, k: (q >= 0) & (k >= 0))
    close(everywhere, full.features(X))
    close(full.features(X, rule=lambda q, k: k <= q), causal.features(X))
    assert not torch.allclose(causal.features(X), full.features(X))


def test_a_block_sees_all_of_itself_and_of_the_cache():
    built = network(causal=False)
    blocks = built.features(X, rule=lambda q, k: k // 4 <= q // 4)
    state = built.new_state(len(X), 12)
    cached = [built.features(part, state=state) for part in X.split(4, 1)]
    close(torch.cat(cached, 1), blocks)


def test_calls_of_several_lengths_share_one_pass():
    built = network(scaling="dynamic", factor=2.0, trained=6)
    calls = [Call(X[:2]), Call(X[2:, :5])]
    for h, call in zip(built.together(calls), calls, strict=True):
        close(h, built.features(call.inputs))


def test_a_tied_head_is_the_embedding_and_an_untied_one_has_no_bias():
    tied = network(tied_head=True)
    assert tied.head.weight is tied.embedding.weight
    assert set(network().state_dict()) - set(tied.state_dict()) == set()
    assert not [name for name in tied.state_dict() if name.endswith("bias")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"kv_heads": 3}, "4 heads cannot share 3 kv_heads evenly"),
        ({"head_width": 5}, "head_width must be even"),
        ({"width": 18}, "does not split into 4 heads"),
        ({"inner": 5000}, "inner must be 1,024 at most"),
        ({"scaling": "yarn"}, "scaling yarn needs the number of positions before it: set trained"),
        ({"fast": 0.5}, "fast must be above slow"),
        ({"scaling": "su"}, "su"),
    ],
)
def test_impossible_shapes_are_refused(fields, reason):
    with pytest.raises(UnmaskError, match=reason):
        network(**fields)
