"""unmask plan: its arithmetic against measured rows, and its output."""

import re
import sys

import pytest
import torch

from benchmarks import operations
from benchmarks.speed import plan as predictions
from unmask.backbones.dit import DiT
from unmask.cli import main
from unmask.config.run_config import load_recipe, resolve
from unmask.errors import UnmaskError
from unmask.runs import plan as arithmetic
from unmask.runs.plan import GIB, Machine, memory, pass_seconds, plan, step_bytes, work_of
from unmask.vocabulary import Vocabulary

BILLION = [("backbone.size", ""), ("backbone.width", "2048"), ("backbone.depth", "16")]
BILLION += [("backbone.heads", "32")]


def test_every_measured_row_is_predicted_within_15_percent(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plan.py"])
    predictions.main()
    out = capsys.readouterr().out
    assert len(re.findall(r"^\| .*train", out, re.MULTILINE)) == 14
    for name, fitted, ours in re.findall(
        r"^([A-Z_]+) ([\d.e+]+), in the package ([\d.e+]+)$", out, re.MULTILINE
    ):
        assert float(ours) == pytest.approx(float(fitted), rel=0.01), name
    assert float(re.search(r"not fitted: ([\d.]+)%", out)[1]) < 15


def test_the_check_can_fail(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plan.py"])
    monkeypatch.setattr(arithmetic, "TRAFFIC", 2.5 * arithmetic.TRAFFIC)
    with pytest.raises(SystemExit, match="more than 15%"):
        predictions.main()


def test_parameters_are_those_of_the_network():
    config = resolve(load_recipe("demo"))
    work = work_of(config, 512)
    network = DiT(config.backbone.config, Vocabulary(512, 511))
    assert work.parameters == sum(p.numel() for p in network.parameters())
    assert work.body == sum(p.numel() for p in network.blocks.parameters())


def test_operations_are_those_of_the_benchmarks():
    work = work_of(resolve({}, [("backbone.size", "small"), ("data.length", "1024")]), 50_257)
    assert sum(work.operations().values()) == operations.training(operations.Setting())


def test_a_billion_parameters_on_64_gpus():
    found = plan(resolve(load_recipe("owt"), BILLION), 64)
    assert found.work.parameters == pytest.approx(1.04e9, rel=0.01)
    kinds = {(option.strategy, option.recompute): option for option in found.options}
    assert set(kinds) == {(s, r) for s in ("ddp", "fsdp") for r in (False, True)}
    plainly, sharded = kinds["ddp", False], kinds["fsdp", False]
    # 16 bytes for each parameter without gradients; 63 of 64 parts are on other GPUs
    states = [o.memory.weights + o.memory.optimizer + o.memory.averages
              for o in (plainly, sharded)]  # fmt: skip
    assert states == pytest.approx([16 * found.work.parameters, 16 * found.work.parameters / 64])
    assert kinds["fsdp", True].memory.activations < sharded.memory.activations / 3
    assert kinds["ddp", True].compute > plainly.compute
    assert plainly.communication == pytest.approx(2 * 63 / 64 * 4 * found.work.parameters / 200e9)
    assert found.best is not None
    assert found.best.least <= found.best.most


def test_batches_that_do_not_fit_are_split_into_passes_or_shards():
    config = resolve(load_recipe("owt"), [*BILLION, ("training.batch", "1024")])
    small = plan(config, 64, Machine(memory=24))
    whole = {option.strategy: option for option in small.options if not option.recompute}
    assert whole["ddp"].passes > 1
    assert whole["fsdp"].micro_batch > whole["ddp"].micro_batch
    assert all(option.memory.total <= 0.92 * 24 * GIB for option in small.options if option.fits)
    tiny = plan(config, 64, Machine(memory=8))
    assert not any(option.fits for option in tiny.options if option.strategy == "ddp")


def test_time_and_traffic_follow_the_machine():
    work = work_of(resolve({}, BILLION), 50_258)
    twice = Machine(rate=2 * Machine().rate, bandwidth=2 * Machine().bandwidth)
    assert pass_seconds(work, 8, Machine()) == pytest.approx(2 * pass_seconds(work, 8, twice))
    assert step_bytes(work, "ddp", 1, 1) == 0
    more = step_bytes(work, "fsdp", 64, 4) - step_bytes(work, "fsdp", 64, 1)
    assert more == pytest.approx(3 * 63 / 64 * (4 * work.body + 4 * work.rest))
    assert memory(work, 8, "fsdp", 64, passes=4).gradients > 4 * work.parameters


def test_the_command(capsys):
    assert main(["plan", "owt", "--gpus", "8", "--memory", "40"]) == 0
    out = capsys.readouterr().out
    assert "169.6M parameters" in out
    assert "--distributed.strategy" in out
    assert "assumed" in out
    assert main(["plan", "owt", "--gpus", "8", "--memory", "0.5"]) == 0
    assert "no strategy fits into memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["owt", "--gpus", "7"], "training.batch 512 does not split over 7 GPUs"),
        (["demo", "--data.tokenizer.kind", "characters"], "give --vocabulary"),
        (["demo", "--rate", "0"], "--rate must be above 0"),
    ],
)
def test_mistakes(arguments, told, capsys):
    assert main(["plan", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_planning_takes_no_memory():
    with pytest.raises(UnmaskError):
        plan(resolve({}), 0)
    before = torch.get_default_device()
    plan(resolve({}, [("backbone.width", "16384"), ("backbone.depth", "96"), ("backbone.heads", "128")]), 1)  # fmt: skip
    assert torch.get_default_device() == before
