"""Ranges of the configuration, and the learning rate as a function of the step."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.errors import UnmaskError
from unmask.training.optimizer import learning_rate
from unmask.training.training_config import DECAYS, TrainingConfig


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("steps", 0, "must be 1 or more"),
        ("batch", 0, "must be 1 or more"),
        ("micro_batch", 33, "32 at most"),
        ("lr", 0.0, "above 0"),
        ("lr", float("nan"), "above 0"),
        ("lr", float("inf"), "finite"),
        ("betas", (0.9, 1.0), "must lie in [0, 1)"),
        ("weight_decay", -0.1, "0 or more"),
        ("min_lr", 1.0, "0.0003 at most"),
        ("ema", 1.0, "[0, 1)"),
        ("decay", "cosin", "did you mean 'cosine'"),
        ("decay_share", 0.0, "(0, 1]"),
        ("optimizer", "adam", "did you mean 'adamw'"),
        ("muon_lr", 0.0, "above 0"),
        ("muon_momentum", 1.0, "[0, 1)"),
        ("precision", "fp16", "did you mean 'bf16'"),
        ("device", "gpu", "did you mean 'cpu'"),
        ("keep", -1, "must be 0 or more"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(field, value, allowed):
    with pytest.raises(UnmaskError, match=rf"training\.{field} ") as caught:
        TrainingConfig(**{field: value})
    assert allowed in str(caught.value)


def test_patience_needs_validations():
    with pytest.raises(UnmaskError, match="validate_every"):
        TrainingConfig(patience=3, validate_every=0)


def test_a_weight_decay_that_forgets_most_of_the_run_has_a_note():
    config = TrainingConfig(steps=25_000, optimizer="muon", muon_lr=0.01, weight_decay=0.2)
    assert "after 500 steps, 1/50 of the run: 0.02 keeps it for a fifth" in config.note
    better = replace(config, weight_decay=0.02)
    assert better.note == replace(config, optimizer="adamw", lr=1e-3).note == ""


def test_warm_up_is_linear_then_constant():
    config = TrainingConfig(lr=1.0, warmup=4)
    assert [learning_rate(step, config) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_goes_from_lr_to_min_lr():
    config = TrainingConfig(lr=1.0, min_lr=0.1, warmup=10, steps=110, decay="cosine")
    assert learning_rate(10, config) == 1.0
    assert learning_rate(60, config) == pytest.approx(0.55)
    assert learning_rate(110, config) == pytest.approx(0.1)


def test_linear_decay_goes_from_lr_to_min_lr_over_all_steps_or_at_the_end():
    config = TrainingConfig(lr=1.0, min_lr=0.1, warmup=10, steps=110, decay="linear")
    assert [learning_rate(step, config) for step in (10, 60, 110)] == pytest.approx([1, 0.55, 0.1])
    stable = replace(config, decay="wsd", decay_share=0.5)
    rates = [learning_rate(step, stable) for step in (4, 10, 55, 82, 109)]
    assert rates == pytest.approx([0.5, 1, 1, 1 - 0.9 * 27 / 55, 0.1 + 0.9 / 55])
    # the warm-up comes first
    assert learning_rate(30, replace(stable, warmup=40, decay_share=1.0)) < 1


@given(st.integers(0, 300), st.integers(0, 50), st.sampled_from(DECAYS))
def test_the_rate_stays_between_zero_and_lr(step, warmup, decay):
    config = TrainingConfig(lr=0.5, warmup=warmup, steps=200, decay=decay)
    assert 0 <= learning_rate(step, config) <= 0.5
