"""Weights that are prepared for inference have the outputs of the original weights,
and change with them.
"""

import copy
import pickle

import pytest
import torch
from builders import known

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.compile import compile_backbone, compile_blocks
from unmask.backbones.layers.ops import _Normal, taken
from unmask.vocabulary import Vocabulary

SIZE, ROWS, LENGTH = 11, 3, 8
VOCABULARY = Vocabulary(SIZE, SIZE - 1)
FORMS = {
    "": {},
    "modern": {
        "qk_norm": True,
        "norm": "rms",
        "mlp": "swiglu",
        "tied_head": True,
        "value_residual": True,
    },
    "grouped": {"kv_heads": 1, "qkv_bias": True, "qk_norm": True, "head_width": 12},
}
KINDS = [
    *(("dit", False), ("dit", True), ("causal", False)),
    *(("modern dit", False), ("modern dit", True), ("modern causal", False)),
    *(("llama", False), ("grouped llama", False)),
]


def network(name: str, timed: bool = False):
    """A small network in double precision, with no weight at zero."""
    form, _, name = name.rpartition(" ")
    kind = BACKBONES[name]
    shape = {"width": 16, "depth": 2, "heads": 2, "dropout": 0.0, "condition_width": 8}
    fields = {**shape, **FORMS[form], "time_conditioning": timed}
    built = kind(kind.Config(**known(kind.Config, fields)), VOCABULARY)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return built.eval().double()


def tokens() -> torch.Tensor:
    return torch.randint(0, SIZE, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))


def said(built, **options: object) -> torch.Tensor:
    condition = torch.tensor([0.1, 1.0, 5.0]) if built.time_conditioning else None
    return built.logits(built.features(tokens(), condition, **options))


@pytest.mark.parametrize(("name", "timed"), KINDS)
def test_frozen_weights_have_the_same_outputs(name, timed):
    built = network(name, timed)
    expected = said(built)
    built.freeze(torch.float64)
    assert all(block.frozen is not None or block.kept for block in built.blocks)
    torch.testing.assert_close(said(built), expected)


@pytest.mark.parametrize("name", ["dit", "modern dit"])
def test_a_folded_condition_has_the_outputs_and_gradients_of_one_by_row(name):
    folded, by_row = network(name), network(name, timed=True)
    condition = torch.zeros(ROWS)  # the condition of a network without time conditioning
    outputs = folded.features(tokens()), by_row.features(tokens(), condition)
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.sin().sum().backward()
    for ours, theirs in zip(folded.parameters(), by_row.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("name", "timed"), KINDS)
def test_features_of_some_tokens_equal_those_of_all(name, timed, frozen):
    built, at = network(name, timed), torch.tensor([20, 3, 4])
    if frozen:
        built.freeze(torch.float64)
    torch.testing.assert_close(said(built, at=at), said(built).flatten(0, 1)[at])
    alike = built.features(tokens())  # without a condition all rows share one
    torch.testing.assert_close(built.features(tokens(), at=at), alike.flatten(0, 1)[at])


class Doubled(torch.nn.Module):
    """A layer that wraps another one, like an adapter."""

    def __init__(self, base: torch.nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.base(x)


LAYERS = ["blocks.0.attention.qkv", "blocks.1.attention.out", "blocks.0.mlp.0", "blocks.1.mlp.2"]
OF_DIT = ["blocks.0.modulation", "modulation", "noise_level.mlp.0"]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("name", "timed"), KINDS)
def test_wrapped_and_hooked_layers_are_called(name, timed, frozen):
    built, seen = network(name, timed), []
    expected = said(built).detach()
    for layer in [*LAYERS, "blocks.0.attention_norm", "blocks.1.mlp", "head"] + (
        OF_DIT if name.endswith("dit") else []
    ):
        built.freeze(torch.float64)
        module = built.get_submodule(layer)
        hook = module.register_forward_hook(lambda *_: seen.append(1))
        with torch.set_grad_enabled(not frozen):
            torch.testing.assert_close(said(built), expected)
        hook.remove()
        assert seen, layer
        seen.clear()
    assert built.blocks[0].frozen is not None or built.blocks[0].kept
    for layer in LAYERS:
        wrapped, scaled = network(name, timed), network(name, timed)
        parent, _, leaf = layer.rpartition(".")
        setattr(wrapped.get_submodule(parent), leaf, Doubled(wrapped.get_submodule(layer)))
        with torch.no_grad():
            for parameter in scaled.get_submodule(layer).parameters():
                parameter.mul_(2)
        wrapped.freeze(torch.float64)
        at = torch.tensor([20, 3, 4])
        with torch.set_grad_enabled(not frozen):
            torch.testing.assert_close(said(wrapped), said(scaled))
            torch.testing.assert_close(said(wrapped, at=at), said(scaled, at=at))


CHANGES = {
    "loaded": lambda built, other: built.load_state_dict(other.state_dict()),
    "cast": lambda built, other: built.float(),
    "trained": lambda built, other: built.train().eval(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(("name", "timed"), KINDS)
def test_frozen_weights_follow_changes_of_the_weights(name, timed, change):
    built, plain, other = (network(name, timed) for _ in range(3))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    built.freeze(torch.float64)
    edition = built.edition
    change(built, other)
    change(plain, other)
    assert built.edition != edition
    assert built.frozen is None
    assert torch.equal(said(built), said(plain))


@pytest.mark.parametrize("compile", [compile_backbone, compile_blocks])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda built: pickle.loads(pickle.dumps(built))])
def test_a_copy_of_a_compiled_network_has_its_own_weights(copied, compile, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    built = network("dit")
    expected = said(built)
    compile(built)
    compile(built)
    other = copied(built)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    assert not torch.allclose(said(other), expected)
    torch.testing.assert_close(said(built), expected)


def test_compiling_again_replaces_the_compiled_function(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: seen.append(function) or function)
    built = network("dit")
    compile_backbone(built, rows={2})
    compile_backbone(built)
    assert seen == [type(built).trunk.__get__(built)] * 2


def test_blocks_are_compiled_only_for_the_rows_of_training(monkeypatch):
    sizes = []

    def compiled(function, **_):
        return lambda x, *args: sizes.append(len(x)) or function(x, *args)

    monkeypatch.setattr(torch, "compile", compiled)
    built = network("dit")
    expected = said(built)
    compile_blocks(built, rows={ROWS})
    torch.testing.assert_close(said(built), expected)
    built.features(tokens()[:1])
    assert sizes == [ROWS] * len(built.blocks)


def test_gradients_equal_finite_differences():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64).requires_grad_()
    at = torch.tensor([4, 0])
    assert torch.autograd.gradcheck(lambda x: _Normal.apply(x, torch.float64), (x,))
    assert torch.autograd.gradcheck(lambda x: taken(x, at), (x,))
    y = _Normal.apply(x, torch.float64)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
