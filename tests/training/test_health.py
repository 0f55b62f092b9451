"""Steps that are not finite, jumps of the loss, and lack of memory: skips, rollbacks and messages."""

import json
import math
import signal
from pathlib import Path

import pytest
import torch
from same_runs import assert_same
from training_stand_in import Poisoned, TinyLoader, TinyMethod, TinyResult, trainer

from unmask.errors import UnmaskError
from unmask.files.storage import read_json
from unmask.files.tensors import read_weights
from unmask.training.checkpoints.checkpoint import newest
from unmask.training.health import review
from unmask.training.micro_batch import MicroBatch, out_of_memory_error
from unmask.training.optimizer import NamedAdamW
from unmask.training.signals import Interrupted
from unmask.training.train_state import TrainingState
from unmask.training.training_config import TrainingConfig

OPTIONS = {
    "steps": 30, "save_every": 4, "log_every": 2, "validate": None, "sample": None, "max_skips": 3,
}  # fmt: skip


def lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_step_that_is_not_finite_changes_nothing_and_is_counted(tmp_path, poison):
    said = []
    options = {**OPTIONS, "steps": 6, "ema": 0.0, "save_every": 1, "keep": 9}
    run = trainer(tmp_path, Poisoned(3, poison=poison), say=said.append, **options)
    assert run.fit().skipped == 1
    assert any("step 4: 1 steps were not finite" in line for line in said)
    skipped = [line for line in lines(tmp_path) if "skipped" in line]
    assert [(line["step"], line["skipped"]) for line in skipped] == [(4, 1)]
    assert math.isfinite(skipped[0]["loss"])  # the mean of the other step of this line
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert "step-00000003" in names
    assert "step-00000004" not in names  # nothing is saved between steps that are not finite
    before, after = (
        read_weights(tmp_path / "checkpoints" / name, "optimizer")
        for name in ("step-00000003", "step-00000005")
    )
    counts = [key for key in before if key.endswith("weight.step")]
    assert counts
    assert all(after[key] == before[key] + 1 for key in counts)  # one update in two steps


def test_the_fused_kernel_skips_on_the_device():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3)
    optimizer = NamedAdamW(model, TrainingConfig(weight_decay=0.1))
    assert optimizer.fused
    before = {}
    for skip in (0.0, 1.0, 0.0):
        model(torch.randn(2, 3)).sum().backward()
        if skip:
            model.weight.grad.fill_(math.nan)
        optimizer.step(0.1, torch.tensor(skip))
        now = {**model.state_dict(), **optimizer.tensors()}
        same = {name: torch.equal(now[name], old) for name, old in before.items()}
        assert set(same.values()) == ({True} if skip else {False} if before else set())
        before = {name: tensor.clone() for name, tensor in now.items()}
    assert before["weight.step"] == 2


def test_moments_are_loaded_in_the_layout_of_their_parameter():
    """The fused kernel of a CPU reads memory in one order for all tensors."""
    models = [torch.nn.Linear(3, 2, bias=False) for _ in range(2)]
    for model in models:
        model.weight = torch.nn.Parameter(torch.arange(6.0).view(3, 2).T)
    optimizers = [NamedAdamW(model, TrainingConfig()) for model in models]
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.tensor([1.0, 2.0, 4.0])).prod().backward()
            optimizer.step(0.1, torch.tensor(0.0))
        optimizers[1].load({k: v.clone().contiguous() for k, v in optimizers[1].tensors().items()})
    assert torch.equal(models[0].weight, models[1].weight)


def test_repeated_bad_steps_roll_back_and_continue_with_other_batches(tmp_path):
    said, method = [], Poisoned(*range(14, 19))
    state = trainer(tmp_path, method, say=said.append, **OPTIONS).fit()
    assert (state.step, state.rollbacks, state.passed) == (30, 1, 6)
    assert any(
        "4 steps in a row were not finite; the run returns to step 12" in line for line in said
    )
    # found at the log line of step 18; batches 12 to 17 are left out, and 18 is skipped
    assert method.drawn == [*range(18), *range(18, 36)]
    assert {"step": 12, "rollback": {"from": 18, "passed": 6}} in lines(tmp_path)
    steps = [line["step"] for line in lines(tmp_path) if "loss" in line]
    assert steps == sorted(set(steps))
    assert state.skipped == 5


def test_best_weights_after_the_rollback_point_are_dropped(tmp_path):
    """The run validates at 6, 12 and 18, rolls back to 16, and reaches 18 again with a worse bound."""
    bounds = iter([5.0, 4.0, 1.0, 4.5, 4.6, 4.7])
    options = {**OPTIONS, "log_every": 10, "validate_every": 6, "steps": 30}
    options["validate"] = lambda: TinyResult(next(bounds))
    state = trainer(tmp_path, Poisoned(18, 19, 16, 17), **options).fit()
    assert (state.rollbacks, state.best_step, state.best_nats) == (1, 18, 4.5)
    assert read_json(tmp_path / "checkpoints" / "best" / "state.json")["nats"] == 4.5


def test_bad_steps_that_are_not_consecutive_never_roll_back(tmp_path):
    state = trainer(tmp_path, Poisoned(*range(5, 29, 2)), **{**OPTIONS, "log_every": 1}).fit()
    assert (state.skipped, state.rollbacks, state.streak) == (12, 0, 0)


def test_a_run_stopped_and_killed_around_a_rollback_ends_the_same(tmp_path):
    bad = range(14, 19)
    trainer(tmp_path / "straight", Poisoned(*bad), **OPTIONS).fit()
    for stop in (5, 13, 15, 16, 17, 19, 22):
        run = trainer(tmp_path / "stopped", Poisoned(*bad), **OPTIONS)
        step = run._step

        def stepping(step=step, run=run, stop=stop):
            step()
            if run.state.batch_number == stop:
                run.signals.note(15)

        run._step = stepping
        with pytest.raises(Interrupted):
            run.fit()
    trainer(tmp_path / "stopped", Poisoned(*bad), **OPTIONS).fit()
    assert_same(tmp_path / "stopped", tmp_path / "straight", best=False)


def test_a_signal_in_a_bad_step_is_not_lost(tmp_path):
    run = trainer(tmp_path / "stopped", Poisoned(*range(14, 19)), **OPTIONS)
    step = run._step

    def stepping():
        step()
        if run.state.batch_number == 18:
            signal.raise_signal(signal.SIGTERM)

    run._step = stepping
    with pytest.raises(Interrupted) as caught:
        run.fit()
    assert caught.value.step == 12  # the step of the rollback
    for name in ("stopped", "straight"):
        trainer(tmp_path / name, Poisoned(*range(14, 19)), **OPTIONS).fit()
    assert_same(tmp_path / "stopped", tmp_path / "straight", best=False)


@pytest.mark.parametrize("save_every", [2, 8])
def test_bad_steps_that_end_before_the_log_line_roll_back_too(tmp_path, save_every):
    """At step 16 the bad steps are over, but the log line of step 20 has not reported them yet."""
    options = {**OPTIONS, "log_every": 10, "save_every": save_every}
    state = trainer(tmp_path, Poisoned(*range(11, 15)), **options).fit()
    back = 10 if save_every == 2 else 8
    assert (state.rollbacks, state.passed) == (1, 20 - back)


def test_a_run_with_endless_bad_steps_stops_with_advice(tmp_path):
    endless = range(10, 1000)
    with pytest.raises(UnmaskError, match=r"\d steps in a row had a loss.*training\.lr") as caught:
        trainer(tmp_path / "a", Poisoned(*endless), **OPTIONS, max_rollbacks=2).fit()
    assert "step-00000008" in str(caught.value)
    assert read_json(newest(tmp_path / "a", pytest.fail) / "state.json")["state"]["streak"] == 0
    with pytest.raises(UnmaskError, match="none yet"):
        trainer(tmp_path / "b", Poisoned(*range(1000)), **OPTIONS).fit()
    state = trainer(tmp_path / "c", Poisoned(*endless), **{**OPTIONS, "max_skips": 0}).fit()
    assert (state.step, state.skipped) == (30, 20)


def test_a_jump_of_the_loss_is_reported_and_does_not_change_the_reference(tmp_path):
    state, config = TrainingState(), TrainingConfig()
    losses = [2 + 0.1 * (-1) ** step for step in range(150)] + [9.0, 2.0, 2.8]
    found = []
    for step, loss in enumerate(losses, 1):
        state.step = step
        state.pending.append((loss, 1.0))
        if step % 10 == 0 or step == len(losses):
            found += review(state, config).spikes
    assert [(spike["step"], spike["loss"]) for spike in found] == [(151, 9.0), (153, 2.8)]
    assert found[0]["usual"] == pytest.approx(2, abs=0.02)
    assert state.level == pytest.approx(2, abs=0.02)
    run = trainer(tmp_path, Poisoned(120, poison=50.0), **{**OPTIONS, "steps": 124}, spike=4.0)
    run.fit()
    assert [line["spike"]["step"] for line in lines(tmp_path) if "spike" in line] == [121]


class Crowded(TinyMethod):
    """A method that runs out of memory with more than `room` rows at once."""

    def __init__(self, room: int, error: Exception) -> None:
        super().__init__()
        self.room, self.error, self.seen = room, error, []

    def loss_of(self, tensors):
        self.seen.append(len(tensors["x"]))
        if self.training and self.seen[-1] > self.room:
            raise self.error
        return super().loss_of(tensors)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
        MemoryError(),
    ],
)
def test_lack_of_memory_is_one_line_or_a_micro_batch_that_fits(tmp_path, error):
    with pytest.raises(UnmaskError, match=r"8 rows.*training\.micro_batch to 4.*--auto-batch"):
        trainer(tmp_path / "told", Crowded(3, error), **OPTIONS).fit()
    said, method = [], Crowded(3, error)
    run = trainer(tmp_path / "found", method, say=said.append, auto_batch=True, **OPTIONS)
    run.fit()
    assert run.micro.size == 3
    assert method.seen[-3:] == [3, 3, 2]
    assert sum(size > 3 for size in method.seen) <= 3
    assert any("micro-batches of 3 rows fit: --training.micro-batch 3" in line for line in said)
    trainer(tmp_path / "set", TinyMethod(), **OPTIONS, micro_batch=3).fit()
    a, b = (read_weights(newest(tmp_path / name, pytest.fail)) for name in ("found", "set"))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    with pytest.raises(UnmaskError, match=r"a single row.*smaller backbone"):
        trainer(tmp_path / "none", Crowded(0, error), auto_batch=True, **OPTIONS).fit()


@pytest.mark.parametrize("room", range(1, 33))
@pytest.mark.parametrize("size", [0, 1, 5])
def test_the_search_ends_at_the_fewest_pieces_that_fit(room, size):
    micro = MicroBatch(32, size, True, lambda line: None)

    def attempt(rows):
        if rows > room:
            raise MemoryError
        return rows

    for _ in range(8):
        found = micro.run(attempt, lambda: None)
    pieces = next(pieces for pieces in range(1, 33) if -(-32 // pieces) <= room)
    assert found == -(-32 // pieces)


def test_no_micro_batch_is_larger_than_the_batch():
    """A network is compiled for one number of rows, and would not be compiled for others."""
    micro = MicroBatch(2, 4, False, print)
    assert micro.size == 2


def test_only_lack_of_memory_is_reported_as_such():
    with pytest.raises(RuntimeError, match="shapes"), out_of_memory_error(lambda: 1):
        raise RuntimeError("shapes do not fit")
    with pytest.raises(ZeroDivisionError):
        MicroBatch(4, 0, True, print).run(lambda size: size // 0, lambda: None)


def test_after_a_rollback_the_loader_gets_the_later_batches(tmp_path):
    loader = TinyLoader()
    batch, asked = loader.batch, []
    loader.batch = lambda step, part: asked.append(step) or batch(step, part)
    trainer(tmp_path, Poisoned(*range(14, 19)), loader=loader, **OPTIONS).fit()
    assert asked == [*range(18), *range(18, 36)]
