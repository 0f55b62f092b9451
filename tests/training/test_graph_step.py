"""A step in one CUDA graph: the same weights as step by step; other batches run without one."""

import signal
from dataclasses import replace
from functools import partial

import pytest
import torch
from same_runs import assert_same
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from training_stand_in import VOCABULARY, TinyLoader, trainer

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.causal import Causal
from unmask.backbones.dit import DiT
from unmask.backbones.layers import ops
from unmask.backbones.layers.dropout import dropout_keys
from unmask.diffusion.schedule import Learned, LogLinear
from unmask.diffusion.time_sampler import Stratified
from unmask.methods.compute.token_tensors import COUNTS, chosen_first
from unmask.methods.distilled import with_teacher
from unmask.methods.method import METHODS
from unmask.randomness import RowStream
from unmask.shapes import Batch
from unmask.training import muon
from unmask.training.graph_step import GraphStep
from unmask.training.signals import Interrupted
from unmask.vocabulary import Vocabulary

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
FIELDS = {
    "block_diffusion": {"blocks": (2,)},
    "d3pm": {"steps": 10, "carry_over": True},
    "d3pm_uniform": {"steps": 10},
    "duo": {"temperature": 0.01},
    "duo_distilled": {"round_steps": 2, "step_size": 0.2},
    "ssd_lm": {"block": 3},
}
# all methods that have a loss of tokens, and forms of them that compute other tensors
CASES = {
    **{
        name: (name, FIELDS.get(name, {}))
        for name in METHODS
        if not METHODS[name].capabilities.per_row
    },
    "uniform": ("mdlm", {"loss_weight": "uniform"}),
    "with a teacher": ("mdlm", {"loss_weight": "uniform"}),
    "d3pm, copied": ("d3pm", {"steps": 10, "copied": 0.5}),
    "given first": ("autoregressive", {"given_first": True}),
    "mlm, both strands": ("mlm", {}),
    "autoregressive, recurrent": ("autoregressive", {}),
    "learned schedule": ("mdlm", {}),
}


class FullRows(TinyLoader):
    """Rows without padding."""

    def _valid(self, row):
        return super()._valid(row) | True


def network_of(name: str, vocabulary: Vocabulary):
    """A tiny network with scans."""
    if name not in BACKBONES:
        pytest.skip(f"this tree has no network {name}")
    kind = BACKBONES[name]
    return kind(kind.Config(8, 1, states=2), vocabulary)


def small(name: str):
    torch.manual_seed(7)
    method_name, fields = CASES[name]
    kind = METHODS[method_name]
    vocabulary = Vocabulary.over(VOCABULARY - 1)
    if name == "mlm, both strands":
        same = tuple(range(vocabulary.size))
        vocabulary = replace(vocabulary, complement_ids=(1, 0, *same[2:]))
        network = network_of("caduceus", vocabulary)
    elif name == "autoregressive, recurrent":
        network = network_of("mamba", vocabulary)
    elif method_name == "autoregressive":
        network = Causal(Causal.Config("", 16, 2, 2), vocabulary)
    else:
        network = DiT(
            DiT.Config(
                "", 16, 2, 2, condition_width=8, time_conditioning=kind.capabilities.noise_level
            ),
            vocabulary,
        )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    schedule = Learned() if name == "learned schedule" else LogLinear()
    method = kind(kind.Config(**fields), network, vocabulary, schedule, Stratified())
    if name == "with a teacher":
        teacher = small("mdlm")
        with torch.no_grad():
            for parameter in teacher.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        method = with_teacher(method, teacher)
    method.begin_training()
    return method


def fitted(run, method, graph: bool, device: str = "cpu", **options):
    """A trainer after its steps, which are functions of tensors if `graph` is set."""
    # a large eps: a step must not depend on the sign of a gradient that is zero but for rounding
    fixed = {"validate": None, "sample": None, "eps": 0.1, "steps": 6}
    one = trainer(run, method, device=device, cuda_graph=graph, **fixed, **options)
    if graph:
        one.graph_step = GraphStep(one.optimizer_step, one.trained.loss_of)  # as on a GPU
    one.fit()
    return one


@pytest.fixture(autouse=True)
def single(monkeypatch):
    """Muon in the same precision on every machine."""
    monkeypatch.setattr(muon, "native_precisions", lambda device: ("fp32",))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [*((name, "adamw") for name in CASES), ("mdlm", "muon"), ("autoregressive", "muon")],
)
def test_the_weights_are_those_of_plain_steps(tmp_path, name, optimizer, device):
    make = partial(fitted, device=device, optimizer=optimizer, loader=FullRows())
    plain, graph = make(tmp_path / "a", small(name), False), make(tmp_path / "b", small(name), True)
    assert graph.graph_step is not None and len(graph.graph_step._graphs._kept) == 1
    start = small(name).state_dict()
    for key, value in plain.trained.state_dict().items():
        torch.testing.assert_close(graph.trained.state_dict()[key], value, atol=1e-4, rtol=1e-3)
    assert any(
        not torch.equal(start[key], v.cpu()) for key, v in plain.trained.state_dict().items()
    )


def gradients(method, loss) -> list[torch.Tensor]:
    """The loss and its gradients."""
    method.zero_grad()
    total = loss()
    total.backward()
    return [total.detach(), *(p.grad.clone() for p in method.parameters() if p.grad is not None)]


@pytest.mark.parametrize("rows", ["whole", "padded", "given"])
@pytest.mark.parametrize("name", CASES)
def test_few_shapes_change_neither_loss_nor_gradients(name, rows):
    method, (x, valid) = small(name), TinyLoader().batch(3, range(8))
    valid = valid | (rows == "whole")
    given = (torch.arange(x.shape[1]) < 2) & valid if rows == "given" else None
    batch, stream = Batch(x, valid, given), RowStream(0, 0, range(8), 8)
    method.backbone.dropout_keys = dropout_keys(stream, torch.device("cpu"))
    plain = gradients(method, lambda: method(batch, stream).total)
    method.few_shapes = True
    graph = gradients(method, lambda: method(batch, stream).total)
    assert plain[0] > 0 and len(plain) > 2
    for one, other in zip(graph, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


class OnDevice(TorchDispatchMode):
    """Refuses operations that copy between the CPU and a GPU, or whose shape depends on values."""

    refused = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "unique")

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        assert not any(name in op.name() for name in self.refused), op.name()
        indices = args[1] if op.name().partition(".")[0] == "aten::index" else ()
        assert all(each is None or each.dtype != torch.bool for each in indices), "a mask as index"
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_stay_on_the_device(name, monkeypatch):
    monkeypatch.setattr(ops, "gelu", partial(F.gelu, approximate="tanh"))  # as on a GPU
    method, (x, _) = small(name), TinyLoader().batch(3, range(8))
    method.few_shapes = True
    stream, valid = RowStream(0, 0, range(8), 8), torch.ones_like(x, dtype=torch.bool)
    method.backbone.dropout_keys = dropout_keys(stream, torch.device("cpu"))
    tensors = method.loss_tensors(Batch(x, valid), stream)
    method.loss_of(tensors)  # tables of positions are made once
    with OnDevice():
        method.loss_of(tensors).total.backward()
    with pytest.raises(AssertionError), OnDevice():
        torch.tensor([1.0])


@pytest.mark.parametrize("name", CASES)
def test_the_shapes_of_a_run_are_few(name):
    method, valid = small(name), torch.ones(64, 16, dtype=torch.bool)
    method.few_shapes = True
    x, shapes = torch.randint(0, 5, valid.shape), set()
    for step in range(40):
        tensors = method.loss_tensors(Batch(x, valid), RowStream(0, step, range(64), 64))
        shapes.add(tuple(tensor.shape for tensor in tensors.values()))
    assert len(shapes) <= 6


def test_a_network_that_no_graph_can_hold_is_trained_step_by_step(tmp_path):
    hooked = small("sedd")
    hooked.backbone.head.register_forward_hook(lambda module, inputs, output: None)
    run = fitted(tmp_path, hooked, True)
    assert run.state.step == 6 and not run.graph_step._graphs._kept


def test_masked_tokens_come_first_and_their_numbers_are_few():
    torch.manual_seed(0)
    sizes = set()
    for share in torch.rand(200):
        masked = torch.rand(8, 16) < share
        at, count = chosen_first(masked)
        assert count == masked.sum() and len(at.unique()) == len(at)
        assert masked.flatten()[at[:count]].all() and not masked.flatten()[at[count:]].any()
        sizes.add(len(at))
    assert len(sizes) <= COUNTS


@needs_gpu
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_that_is_stopped_and_resumed_ends_with_the_same_bits(tmp_path, optimizer):
    options = {
        "optimizer": optimizer,
        "device": "cuda",
        "cuda_graph": True,
        "loader": FullRows(),
        "steps": 20,
        "validate": None,
        "sample": None,
        "deterministic": True,
        "save_every": 5,
    }
    trainer(tmp_path / "straight", small("mdlm"), **options).fit()
    stopped = trainer(tmp_path / "stopped", small("mdlm"), **options)
    step = stopped._step

    def counting():
        step()
        if stopped.state.step == 9:
            signal.raise_signal(signal.SIGINT)

    stopped._step = counting
    with pytest.raises(Interrupted):
        stopped.fit()
    trainer(tmp_path / "stopped", small("mdlm"), **options).fit()
    assert_same(tmp_path / "stopped", tmp_path / "straight", best=False)
