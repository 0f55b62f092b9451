"""The training loop: the computation of a step, and all ways in which a run ends."""

import math
import time
from pathlib import Path

import pytest
import torch
from training_stand_in import LENGTH, TinyLoader, TinyMethod, TinyResult, trainer

from unmask.errors import UnmaskError
from unmask.files.jsonl import JsonLines
from unmask.files.rounding import expand, quantize
from unmask.files.storage import verify
from unmask.files.tensors import read_weights
from unmask.shapes import Batch
from unmask.training.checkpoints.checkpoint import newest
from unmask.training.logs.progress import ProgressDisplay
from unmask.training.logs.run_log import read_log

QUIET = {"steps": 6, "save_every": 100, "validate": None, "sample": None, "log_every": 1}


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in JsonLines(run / "log.jsonl").read() if "loss" in line]


@pytest.mark.parametrize("micro_batch", [1, 3, 4, 8])
def test_micro_batches_give_the_loss_and_gradient_of_the_whole(tmp_path, micro_batch):
    whole, split = (
        trainer(tmp_path / name, TinyMethod(dropout=0.1), micro_batch=size, **QUIET)
        for name, size in [("whole", 0), ("split", micro_batch)]
    )
    whole.fit()
    split.fit()
    torch.testing.assert_close(
        losses(tmp_path / "whole"), losses(tmp_path / "split"), rtol=1e-5, atol=0
    )
    torch.testing.assert_close(whole.weights(), split.weights(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("round_weights", ["none", "int4"])
def test_one_step_is_adamw_on_the_mean_over_valid_tokens(tmp_path, round_weights):
    method, twin = (TinyMethod(dropout=0, width=32) for _ in range(2))
    settings = {**QUIET, "steps": 1, "warmup": 0, "clip": 0.0, "round_weights": round_weights}
    run = trainer(tmp_path, method, **settings)
    start = {name: tensor.clone() for name, tensor in twin.state_dict().items()}
    if round_weights == "int4":  # the gradient is that of the stored weights
        stored = quantize(start, "int4")
        packed = {name for name, tensor in stored.items() if tensor.dtype == torch.uint8}
        assert packed
        twin.load_state_dict(start | {name: expand(stored, "")[name] for name in packed})
    x, valid = run.loader.batch(0, range(8))
    from unmask.randomness import RowStream

    loss = (
        twin.nll(Batch(x, valid), twin.noise(RowStream(3, 0, range(8), 8), valid)).total
        / valid.sum()
    )
    loss.backward()
    twin.load_state_dict(start)
    torch.optim.AdamW(twin.parameters(), lr=0.01, weight_decay=0).step()
    run.fit()
    assert losses(tmp_path) == [pytest.approx(loss.item(), rel=1e-6)]
    torch.testing.assert_close(method.state_dict(), twin.state_dict())


class PairLoader(TinyLoader):
    """Rows whose first tokens are given. Half of the other tokens are counted."""

    def given(self, step: int, part: range) -> torch.Tensor:
        return torch.arange(LENGTH) < torch.tensor([[1 + row % 2] for row in part])

    def count(self, step: int, part: range) -> int:
        return 2 * len(part)


class Listening(TinyMethod):
    """A method that records the given tokens of each call."""

    def __init__(self) -> None:
        super().__init__(dropout=0)
        self.heard, self.totals = [], []

    def noise(self, stream, valid):
        self.heard.append(valid)
        return super().noise(stream, valid)

    def forward(self, batch, stream):
        found = super().forward(batch, stream)
        self.heard += [batch.valid, batch.given]
        self.totals.append(found.total.item())
        return found


def test_given_tokens_are_not_masked_and_the_mean_is_over_counted_tokens(tmp_path):
    method, loader = Listening(), PairLoader()
    run = trainer(tmp_path, method, loader=loader, micro_batch=3, **{**QUIET, "steps": 1})
    assert run.fit().tokens == 16
    _, valid = loader.batch(0, range(8))
    given = loader.given(0, range(8))
    asked, seen, told = (torch.cat(method.heard[kind::3]) for kind in range(3))
    assert torch.equal(asked, valid & ~given)
    assert torch.equal(seen, valid)
    assert torch.equal(told, given)
    assert losses(tmp_path) == [pytest.approx(sum(method.totals) / 16, rel=1e-6)]


def test_clipping_limits_the_update_and_the_log_keeps_the_true_norm(tmp_path):
    run = trainer(tmp_path, **{**QUIET, "steps": 1}, clip=1e-3)
    seen = []
    step = run.optimizer.step

    def spy(lr, skip):
        grads = [p.grad for p in run.method.parameters() if p.grad is not None]
        seen.append(torch.nn.utils.get_total_norm(grads).item())
        step(lr, skip)

    run.optimizer.step = spy
    run.fit()
    assert seen == [pytest.approx(1e-3, rel=1e-3)]
    assert JsonLines(tmp_path / "log.jsonl").read()[0]["norm"] > 1e-2


def test_weight_decay_touches_matrices_only(tmp_path):
    method = TinyMethod(dropout=0)
    with torch.no_grad():
        method.unused.fill_(1.0)
    run = trainer(tmp_path, method, **QUIET, weight_decay=0.5)
    groups = run.optimizer.adamw.param_groups
    assert {p.ndim for p in groups[0]["params"]} == {2}
    assert (groups[0]["weight_decay"], groups[1]["weight_decay"]) == (0.5, 0.0)


def test_it_learns_and_keeps_the_best_average(tmp_path, pictures):
    run = trainer(tmp_path, TinyMethod(dropout=0), steps=150, validate_every=50, log_every=1)
    seen = []
    validate = run.validate

    def watched():
        assert not run.method.training
        assert not torch.is_grad_enabled()
        assert torch.equal(run.method.head.weight, run.ema.tensors()["head.weight"])
        seen.append((validate().nats, run.method.head.weight.clone()))
        return TinyResult(seen[-1][0])

    run.validate = watched
    state = run.fit()
    assert run.method.training
    late = losses(tmp_path)[-50:]
    assert sum(late) / 50 < 1.1 * math.log(5)  # five tokens occur; an untrained network has log 11
    nats, weight = min(seen, key=lambda pair: pair[0])
    assert (state.best_nats, state.best_step) == (nats, 50 * (1 + [n for n, _ in seen].index(nats)))
    best = tmp_path / "checkpoints" / "best"
    verify(best)
    assert torch.equal(read_weights(best)["head.weight"], weight)
    assert (tmp_path / "loss.png").stat().st_size > 5000


def test_patience_ends_the_run_and_is_kept_on_resume(tmp_path):
    bounds = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    options = {"steps": 100, "validate_every": 2, "patience": 2}
    run = trainer(tmp_path, validate=lambda: TinyResult(next(bounds)), **options)
    state = run.fit()
    assert (state.step, state.best_step, state.best_nats) == (8, 4, 2.0)
    said = []
    trainer(tmp_path, say=said.append, **options).fit()
    assert "already trained: no better bound in 2 validations since step 4" in said[-1]


def test_the_last_checkpoints_are_kept(tmp_path):
    trainer(tmp_path, **{**QUIET, "steps": 11, "save_every": 2}, keep=3).fit()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000008", "step-00000010", "step-00000011"]


def test_a_complete_run_may_keep_its_best_weights_only(tmp_path):
    options = QUIET | {"keep": 0, "validate_every": 3, "validate": lambda: TinyResult(2.0)}
    trainer(tmp_path, **options).fit()
    assert [path.parent.name for path in tmp_path.rglob("*.safetensors")] == ["best"]
    said = []
    assert trainer(tmp_path, say=said.append, **options).fit().step == 6
    assert "already trained: all 6 steps are done" in said[-1]
    with pytest.raises(UnmaskError, match="kept no checkpoint to resume from"):
        trainer(tmp_path, **{**options, "steps": 8}).fit()


def test_the_remaining_time_includes_validations(monkeypatch):
    lines, clock = [], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    display = ProgressDisplay(0, 10, lines.append, validate_every=5, pause=100.0)
    display.bar.disable = True
    for step, now in ((1, 0.0), (2, 2.0)):
        clock[0] = now
        display.advance(step, lambda: 1.0)
    assert "3:36 left" in lines[-1]  # 8 steps of 2 s, 2 of 100 s
    clock[0] = 58.0  # step 5 at 8 s, then a validation
    display.paused(50.0)
    clock[0] = 60.0
    display.show(6, 1.0, "", 1.0)
    assert "0:58 left" in lines[-1]


def test_bf16_and_no_average(tmp_path, bf16):
    run = trainer(tmp_path, **QUIET, precision="bf16", ema=0.0)
    run.fit()
    folder = newest(tmp_path, pytest.fail)
    assert not (folder / "ema.safetensors").exists()
    assert {tensor.dtype for tensor in read_weights(folder).values()} == {torch.float32}
    again = trainer(tmp_path, **{**QUIET, "steps": 8}, precision="bf16", ema=0.0)
    assert again.fit().step == 8


def test_compiling_replaces_features_and_keeps_every_name(tmp_path, monkeypatch):
    def compile(features, dynamic):
        return lambda z: calls.append(len(z)) or features(z)

    monkeypatch.setattr(torch, "compile", compile)
    calls = []
    run = trainer(tmp_path, **QUIET, compile=True)
    names = list(run.method.state_dict())
    run.fit()
    assert len(calls) == 6
    assert list(run.method.state_dict()) == names


def test_the_log_names_a_loss_that_is_not_the_bound(tmp_path):
    method = TinyMethod()
    method.loss_weight = "uniform"
    trainer(tmp_path / "uniform", method, steps=2, log_every=1).fit()
    trainer(tmp_path / "bound", steps=2, log_every=1).fit()
    told = [
        {line.get("loss_weight") for line in read_log(tmp_path / name) if "loss" in line}
        for name in ("uniform", "bound")
    ]
    assert told == [{"uniform"}, {None}]
