"""unmask train adapt: stages of block diffusion that start from an autoregressive model."""

import json
from pathlib import Path

import pytest
import torch

import unmask
from unmask.errors import UnmaskError
from unmask.runs.auto_recipe import fitted
from unmask.training.optimizer import learning_rate
from unmask.training.training_config import TrainingConfig

TEXT = "\n".join(f"Number {number} follows number {number - 1}." for number in range(1, 60))
PARENT = {
    "method": "autoregressive",
    "backbone": {"name": "llama", "causal": "true", "width": "16", "depth": "1", "heads": "2"},
    "data": {"separator": "line", "tokenizer": {"kind": "characters"}, "length": "16"},
    "training": {"steps": "2", "batch": "4", "validation_rows": "4", "device": "cpu"},
}
STAGE = {
    "data.separator": "line",
    "method.blocks": "4,0",
    "training.batch": "4",
    "training.warmup": "2",
    "training.validation_rows": "4",
    "training.device": "cpu",
    "training.compile": "false",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a text and an autoregressive run."""
    folder = tmp_path_factory.mktemp("adapt")
    (folder / "text.txt").write_text(TEXT)
    unmask.train(PARENT, folder / "parent", data=folder / "text.txt", say=lambda line: None)
    return folder


def stage(folder: Path, start: str, run: str, **more: str) -> tuple[unmask.Model, list[str]]:
    """A stage of training; returns the model and the lines of the run."""
    said: list[str] = []
    settings = {**STAGE, **more, "init_from": str(folder / start)}
    settings["data.cache"] = str(folder / "cache")
    model = unmask.train(
        "adapt", folder / run, data=str(folder / "text.txt"), overrides=settings, say=said.append
    )
    return model, said


def test_a_stage_starts_from_an_autoregressive_model_and_the_next_from_the_last(folder):
    parent = unmask.load(str(folder / "parent"), "cpu")
    first, said = stage(folder, "parent", "first", **{"training.steps": "3"})
    config = first.config
    assert (config.method.name, config.backbone.name) == ("block_diffusion", "llama")
    assert config.data.length == 16 and config.training.seconds == 0
    assert first.tokenizer.fingerprint == parent.tokenizer.fingerprint
    assert "all 3 steps are done" in said[-2]
    assert "before" in said[-1]
    second, _ = stage(folder, "first", "second", seed="1", **{"training.steps": "3"})
    assert second.digest != first.digest
    bounds = [second.perplexity("Number 3", draws=2, block=block).of for block in (1, 4, 0)]
    assert [of.split(",")[0] for of in bounds] == ["blocks of 1", "blocks of 4", "whole rows"]
    assert len(second.generate("Num", length=40, stop=False)[0].ids) == 40
    assert str(second.fill("Num[MASK:2]r 3")[0]).endswith("r 3")


def test_mask_starts_at_the_mean_embedding(folder):
    from unmask.config.components import build_method
    from unmask.runs.training_models import start_mask

    parent = unmask.load(str(folder / "parent"), "cpu")
    method = build_method(parent.config, parent.tokenizer.vocabulary)
    before = method.backbone.embedding.weight.detach().clone()
    start_mask(method)
    after, mask = method.backbone.embedding.weight, method.vocabulary.mask_id
    others = torch.arange(len(before)) != mask
    assert torch.equal(after[others], before[others])
    torch.testing.assert_close(after[mask], before[others].mean(0))


def test_seconds_end_a_run_with_validation_and_a_finished_checkpoint(folder):
    limits = {"training.seconds": "0.5", "training.validate_every": "0"}
    model, said = stage(folder, "parent", "timed", **limits)
    assert any("all 0.5 seconds are spent" in line for line in said)
    records = [
        json.loads(line)
        for line in (folder / "timed" / "log.jsonl").read_text().split("\n")
        if line
    ]
    assert [r for r in records if "validation" in r and r["step"] > 0]
    rates = [r["lr"] for r in records if "lr" in r]
    assert rates[-1] < 0.2 * max(rates[0], model.config.training.lr)
    _, again = stage(folder, "parent", "timed", **limits)
    assert any("already trained: all 0.5 seconds are spent" in line for line in again)


def test_a_decay_follows_the_seconds_or_the_steps_whichever_are_further():
    config = TrainingConfig(steps=1000, seconds=100.0, lr=1.0, warmup=10, decay="linear")
    assert learning_rate(5, config, 99.0) == 0.6  # the warm-up counts steps
    assert learning_rate(10, config, 0.0) == 1.0
    halves = learning_rate(505, config, 0.0), learning_rate(20, config, 50.5)
    assert halves == pytest.approx((0.5, 0.5), abs=1e-9)
    assert learning_rate(20, config, 100.0) == learning_rate(20, config, 200.0) == 0.0
    forever = TrainingConfig(steps=1000, lr=1.0, warmup=10, decay="linear")
    assert learning_rate(20, forever, 1e9) == learning_rate(20, forever)


def test_a_start_that_cannot_be_adapted_is_named(folder):
    text = {"data.train": str(folder / "text.txt")}
    for settings, message in (
        (text, "give --init-from MODEL"),
        ({"init_from": str(folder / "parent")}, "give --data.train FILE"),
        ({**text, "init_from": str(folder / "none")}, "no model"),
    ):
        with pytest.raises(UnmaskError, match=message):
            fitted("adapt", settings, say=None)
    with pytest.raises(UnmaskError, match="blocks of 3 tokens do not divide rows of 16"):
        stage(folder, "parent", "uneven", **{"training.steps": "3", "method.blocks": "3"})


def test_a_model_of_blocks_only_refuses_gaps(folder):
    model, _ = stage(folder, "parent", "small", **{"training.steps": "2", "method.blocks": "4"})
    with pytest.raises(UnmaskError, match="give sampler blocks"):
        model.fill("Num[MASK:2]r 3")
    assert str(model.fill("Num[MASK:2]r 3", sampler="blocks")[0]).endswith("r 3")
