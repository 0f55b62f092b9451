"""Muon: batched updates equal those of torch's Muon,
and skipped and resumed steps change nothing.
"""

import math
import signal

import pytest
import torch
from same_runs import assert_same
from training_stand_in import VOCABULARY, TinyMethod, trainer

from unmask.backbones.dit import DiT
from unmask.backbones.pretrained import GPT2, Bert
from unmask.diffusion.schedule import LogLinear
from unmask.diffusion.time_sampler import Stratified
from unmask.errors import UnmaskError
from unmask.methods.mdlm import MDLM
from unmask.training import muon
from unmask.training.muon import NamedMuon, block_matrices, orthogonalize
from unmask.training.optimizer import NamedAdamW
from unmask.training.signals import Interrupted
from unmask.training.training_config import TrainingConfig
from unmask.vocabulary import Vocabulary

CONFIG = TrainingConfig(optimizer="muon", lr=0.01, muon_lr=0.04, weight_decay=0.1)
GO, STOP = torch.zeros(()), torch.ones(())


@pytest.fixture(autouse=True)
def single(monkeypatch):
    """The same precision on every machine."""
    monkeypatch.setattr(muon, "native_precisions", lambda device: ("fp32",))


def tiny() -> MDLM:
    torch.manual_seed(7)
    vocabulary = Vocabulary.over(VOCABULARY - 1)
    config = DiT.Config("", 16, 2, 2, condition_width=8, gate=1.0, zero_out=True)
    return MDLM(MDLM.Config(), DiT(config, vocabulary), vocabulary, LogLinear(), Stratified())


def with_gradients(method: torch.nn.Module, seed: int) -> None:
    drawn = torch.Generator().manual_seed(seed)
    for parameter in method.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=drawn)


def test_singular_values_come_near_one():
    torch.manual_seed(0)
    x = torch.randn(3, 12, 40)
    found = orthogonalize(x)
    assert torch.linalg.svdvals(found).sub(1).abs().max() < 0.35
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    assert torch.linalg.matrix_norm(found - u @ v).max() < 0.3 * math.sqrt(12)
    torch.testing.assert_close(found[1:2], orthogonalize(x[1:2]))
    assert not orthogonalize(torch.zeros(1, 2, 3)).any()


def test_the_update_is_that_of_torch_for_separate_queries_keys_and_values(bf16):
    method = tiny()
    optimizer = NamedMuon(method, CONFIG)
    optimizer.dtype = torch.bfloat16  # the only precision of torch's Muon
    named = dict(method.named_parameters())
    taken = block_matrices(method)
    apart = {
        name: [torch.nn.Parameter(x.clone()) for x in named[name].detach().chunk(parts)]
        for name, parts in taken.items()
    }
    oracle = torch.optim.Muon(
        [x for parts in apart.values() for x in parts], lr=0.02, weight_decay=0.1, momentum=0.95
    )
    for seed in range(3):
        with_gradients(method, seed)
        for name, parts in apart.items():
            for x, gradient in zip(parts, named[name].grad.chunk(len(parts)), strict=True):
                x.grad = gradient
        optimizer.step(0.005, GO)  # half of lr, so half of muon_lr
        oracle.step()
    assert sorted(parts for parts in taken.values()) == [1] * 6 + [3] * 2
    for name, parts in apart.items():
        torch.testing.assert_close(
            named[name].detach(), torch.cat(parts).detach(), rtol=0, atol=1e-3
        )
    assert all(parameter.grad is None for parameter in method.parameters())


def test_muon_updates_matrices_of_blocks_and_adamw_all_others():
    method = tiny()
    names = NamedMuon(method, CONFIG).tensors().keys()
    assert "backbone.blocks.1.attention.qkv.weight.momentum" in names
    of_adamw = {name.removesuffix(".exp_avg") for name in names if name.endswith(".exp_avg")}
    everything = {name for name, _ in method.named_parameters()}
    assert everything - of_adamw == set(block_matrices(method))
    assert {"backbone.embedding.weight", "backbone.blocks.0.modulation.weight"} < of_adamw
    assert all(".blocks." in name for name in block_matrices(method))


@pytest.mark.parametrize("kind", [Bert, GPT2])
def test_published_networks_have_matrices_too(kind):
    network = kind(kind.Config("", 8, 2, 2, positions=4), Vocabulary.over(5))
    assert len(block_matrices(network)) == 8


def test_a_network_without_named_matrices_is_refused():
    with pytest.raises(
        UnmaskError, match=r"needs a network whose blocks list .*: set training.optimizer adamw"
    ):
        NamedMuon(TinyMethod(), CONFIG)


def test_a_skipped_step_changes_nothing_without_a_host_sync():
    method = tiny()
    optimizer = NamedMuon(method, CONFIG)
    with_gradients(method, 0)
    optimizer.step(0.01, GO)
    before = {name: x.clone() for name, x in (method.state_dict() | optimizer.tensors()).items()}
    with_gradients(method, 1)
    next(p for p in method.parameters() if p.ndim == 2).grad.fill_(math.inf)
    for name in block_matrices(method):
        method.get_parameter(name).grad[0, 0] = math.nan
    optimizer.step(0.01, STOP)
    after = method.state_dict() | optimizer.tensors()
    assert all(torch.equal(after[name], x) for name, x in before.items())
    with_gradients(method, 2)
    optimizer.step(0.01, GO)
    assert not torch.equal(optimizer.tensors()[f"{name}.momentum"], before[f"{name}.momentum"])


def test_many_matrices_are_updated_in_several_batches(monkeypatch):
    found = []
    for most in (muon.STACK_SIZE, 300):
        monkeypatch.setattr(muon, "STACK_SIZE", most)
        method = tiny()
        optimizer = NamedMuon(method, CONFIG)
        with_gradients(method, 0)
        optimizer.step(0.01, GO)
        found.append((len(optimizer.batches), method.state_dict()))
    assert (found[0][0], found[1][0]) == (2, 4)
    torch.testing.assert_close(found[0][1], found[1][1])


def test_a_stopped_run_ends_with_the_same_bits(tmp_path):
    options = {
        "optimizer": "muon",
        "decay": "wsd",
        "steps": 8,
        "save_every": 3,
        "validate_every": 4,
    }
    options |= {"sample": None}
    trainer(tmp_path / "straight", tiny(), **options).fit()
    run = trainer(tmp_path / "stopped", tiny(), **options)
    batch = run.loader.batch

    def signalling(step, part):
        if step == 4:
            signal.raise_signal(signal.SIGTERM)
        return batch(step, part)

    run.loader.batch = signalling
    with pytest.raises(Interrupted):
        run.fit()
    trainer(tmp_path / "stopped", tiny(), **options).fit()
    assert_same(tmp_path / "stopped", tmp_path / "straight")


def test_adamw_is_the_default(tmp_path):
    assert type(trainer(tmp_path).optimizer) is NamedAdamW
