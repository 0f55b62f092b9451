"""Each logger gets numbers and texts, and training continues without a logger that is missing."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from training_stand_in import trainer

import unmask
from unmask.config.run_config import load_recipe, resolve
from unmask.errors import UnmaskError
from unmask.files.tensors import read_weights
from unmask.imports import install_command
from unmask.training.logs.loggers import LOGGERS, Logger

QUIET = {"steps": 4, "validate_every": 2, "log_every": 1, "sample_every": 2}


class Wandb:
    """A fake of wandb that records its calls."""

    class Error(Exception):
        pass

    def __init__(self, refusal: str = "") -> None:
        self.refusal, self.opened, self.metrics = refusal, [], []
        self.logged: list[dict[str, Any]] = []
        self.finished = 0

    def init(self, **options: Any) -> "Wandb":
        if self.refusal:
            raise self.Error(self.refusal)
        json.dumps(options)  # wandb takes plain values only
        self.opened.append(options)
        return self

    def define_metric(self, name: str, **options: Any) -> None:
        self.metrics.append((name, options))

    def Table(self, columns: list[str], data: list[list[str]]) -> tuple[str, ...]:
        assert columns == ["text"]
        return tuple(text for (text,) in data)

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished += 1


class Interval:
    """A validation result with a pair of numbers and an unknown number."""

    nats, error = 1.5, 0.1

    def to_dict(self) -> dict[str, Any]:
        return {"interval": (1.0, 2.0), "draws_to_halve": None}


@pytest.fixture
def wandb(monkeypatch) -> Wandb:
    for name in ("WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    stub = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", stub)
    return stub


def curve(logged: list[dict[str, Any]], name: str) -> list[tuple[int, Any]]:
    return [(values["step"], values[name]) for values in logged if name in values]


def losses(run: Path) -> list[tuple[int, float]]:
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return curve(list(lines), "loss")


def test_tensorboard_gets_the_curves(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer(tmp_path, **QUIET, log_to=("tensorboard",)).fit()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    steps, values = zip(*losses(tmp_path), strict=True)
    assert [event.step for event in events.Scalars("loss")] == list(steps)
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(values)
    assert [event.step for event in events.Scalars("validation/nats")] == [2, 4]
    assert events.Tensors("samples/text_summary")[-1].tensor_proto.string_val == [b"a\n\n---\n\nb"]


def test_wandb_gets_curves_texts_and_the_configuration(tmp_path, wandb):
    trainer(tmp_path / "mine", **QUIET, validate=Interval, log_to=("wandb",)).fit()
    (options,) = wandb.opened
    assert (options["project"], options["name"]) == ("unmask", "mine")
    assert options["dir"] == str(tmp_path / "mine")
    assert options["config"]["training"]["steps"] == 4
    assert curve(wandb.logged, "loss") == losses(tmp_path / "mine")
    assert curve(wandb.logged, "validation/nats") == [(2, 1.5), (4, 1.5)]
    assert curve(wandb.logged, "validation/interval/1") == [(2, 2.0), (4, 2.0)]
    assert curve(wandb.logged, "samples") == [(2, ("a", "b")), (4, ("a", "b"))]
    assert ("*", {"step_metric": "step"}) in wandb.metrics
    assert wandb.finished == 1


def test_a_resumed_run_is_the_same_run_to_wandb(tmp_path, wandb, monkeypatch):
    trainer(tmp_path / "a", **QUIET, log_to=("wandb",)).fit()
    monkeypatch.setenv("WANDB_PROJECT", "another")
    trainer(tmp_path / "a", **{**QUIET, "steps": 6}, log_to=("wandb",)).fit()
    trainer(tmp_path / "b", **QUIET, log_to=("wandb",)).fit()
    first, again, other = wandb.opened
    assert first["id"] == again["id"] != other["id"]
    assert again["resume"] == "allow"
    assert again["project"] == "another"
    assert [step for step, _ in curve(wandb.logged, "loss")][:6] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("name", "package", "line"),
    [
        (
            "tensorboard",
            "torch.utils.tensorboard",
            f"no log to tensorboard: it is not installed; {install_command('log')}",
        ),
        ("wandb", "wandb", f"no log to wandb: it is not installed; {install_command('wandb')}"),
    ],
)
def test_a_missing_library_is_one_line_and_training_continues(
    tmp_path, monkeypatch, name, package, line
):
    monkeypatch.setitem(sys.modules, package, None)
    said: list[str] = []
    trainer(tmp_path / "plain", **QUIET).fit()
    trainer(tmp_path / "asked", **QUIET, log_to=(name,), say=said.append).fit()
    assert said.count(line) == 1
    plain, asked = (
        read_weights(tmp_path / name / "checkpoints" / "step-00000004")
        for name in ("plain", "asked")
    )
    torch.testing.assert_close(plain, asked, rtol=0, atol=0)


def test_training_continues_if_wandb_cannot_be_reached(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", Wandb("api_key not configured\nmore about it"))
    said: list[str] = []
    assert trainer(tmp_path, **QUIET, log_to=("wandb",), say=said.append).fit().step == 4
    (line,) = (line for line in said if "wandb" in line)
    assert line.startswith("no log to wandb: api_key not configured; WANDB_MODE=offline logs to")


def test_without_matplotlib_there_is_no_curve_and_one_line_is_printed(
    tmp_path, monkeypatch, pictures
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said: list[str] = []
    trainer(tmp_path, **QUIET, say=said.append).fit()
    assert said[-1] == f"no loss curve: matplotlib is missing; {install_command('log')}"


class Memory(Logger):
    """A logger that stores records, and fails in the function `failing`."""

    def __init__(self, run, step, config):
        Memory.steps, Memory.closed = [], 0
        self.fails("open")

    def write(self, record):
        Memory.steps.append(record["step"])
        self.fails("write", record["step"] >= 3)

    def close(self):
        Memory.closed += 1
        self.fails("close")

    def fails(self, where, now=True):
        if Memory.failing == where and now:
            raise RuntimeError(f"cannot {where}\nmore about it")


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setattr(LOGGERS, "_entries", {name: LOGGERS[name] for name in LOGGERS})
    LOGGERS.register("memory")(Memory)
    Memory.failing, Memory.steps, Memory.closed = "", [], 0
    return Memory


def test_a_custom_logger_is_closed_even_if_training_fails(tmp_path, memory):
    def breaks():
        raise ZeroDivisionError

    options = {**QUIET, "sample_every": 3, "validate": None, "log_to": ("memory",)}
    with pytest.raises(ZeroDivisionError):
        trainer(tmp_path, **options, sample=breaks).fit()
    assert set(memory.steps) == {1, 2, 3}
    assert memory.closed == 1


@pytest.mark.parametrize(
    ("failing", "line", "last"),
    [
        ("open", "no log to memory: RuntimeError: cannot open", None),
        ("write", "no more log to memory from step 3: RuntimeError: cannot write", 3),
        ("close", "the log to memory may lack its last records: RuntimeError: cannot close", 4),
    ],
)
def test_a_logger_that_fails_is_reported_once_and_training_continues(
    tmp_path, memory, failing, line, last
):
    memory.failing = failing
    said: list[str] = []
    assert trainer(tmp_path, **QUIET, log_to=("memory",), say=said.append).fit().step == 4
    assert [told for told in said if "memory" in told] == [line]
    assert max(memory.steps, default=None) == last
    assert failing != "write" or memory.steps.count(3) == 1
    assert memory.closed == (failing != "open")
    assert [step for step, _ in losses(tmp_path)] == [1, 2, 3, 4]


def test_an_unknown_logger_is_an_error_before_any_work(tmp_path):
    config = resolve(load_recipe("demo"), [("training.log_to", "tensorboard,wandbb")])
    assert config.training.log_to == ("tensorboard", "wandbb")
    with pytest.raises(UnmaskError, match="unknown logger 'wandbb'; did you mean 'wandb'"):
        unmask.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
