"""Seconds of a training step and of a run, from a few measured passes of the network."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from unmask.backbones.layers.dropout import dropout_keys
from unmask.config.components import build_method
from unmask.config.run_config import RunConfig
from unmask.randomness import RowStream
from unmask.runtime.device import resolve_device, resolve_precision
from unmask.shapes import Batch
from unmask.training.distributed.process_group import ProcessGroup
from unmask.training.distributed.single_process import SingleProcess
from unmask.training.ema import EMA
from unmask.training.muon import OPTIMIZERS
from unmask.training.step import OptimizerStep
from unmask.vocabulary import Vocabulary

# operations of a measured pass: some seconds of a CPU core, less of a GPU
_CPU_OPERATIONS, _GPU_OPERATIONS = 150e9, 3e12
_ROUNDS = 2


def run_seconds(step: float, config: RunConfig, valid_rows: int) -> float:
    """Seconds of a run with its validations, where a forward pass is a third of a step's passes.

    Args:
        step: the seconds of a training step.
        config: the configuration.
        valid_rows: the number of held-out rows.

    Returns:
        The seconds.
    """
    training = config.training
    rows = min(valid_rows, training.validation_rows or valid_rows) * training.validation_draws
    validations = bool(config.init_from) - (
        -training.steps // (training.validate_every or training.steps)
    )
    return step * (training.steps + validations * rows / training.batch / 3)


def step_seconds(config: RunConfig, vocabulary: int, operations: float) -> float:
    """Seconds of a training step of random rows on this machine.

    A step with many operations is measured with fewer rows than the batch has.

    Args:
        config: the configuration.
        vocabulary: the size of the vocabulary.
        operations: floating-point operations of a row in a step.

    Returns:
        The seconds of forward pass, backward pass and update.
    """
    device = resolve_device(config.training.device)
    precision = resolve_precision(config.training.precision, device)
    training = replace(config.training, precision=precision)
    most = training.micro_batch or training.batch
    budget = _CPU_OPERATIONS if device.type == "cpu" else _GPU_OPERATIONS
    rows = min(most, max(1, round(budget / operations)))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        method = build_method(
            config, Vocabulary(vocabulary, vocabulary - 1, pad_id=0, bos_id=0, eos_id=0)
        )
    method.to(device).train()
    one = SingleProcess(ProcessGroup(), device, precision)
    step = OptimizerStep(
        *(method, OPTIMIZERS[training.optimizer](method, training), one, training.clip),
        rounds=training.round_weights != "none",
    )
    ema = EMA(method, training.ema) if training.ema else None
    x = torch.arange(rows * config.data.length) % (vocabulary - 1)
    x = x.view(rows, -1)  # [rows, length]
    batch = Batch(x, torch.ones_like(x, dtype=torch.bool))
    mean = torch.zeros((), device=device)

    def passes() -> None:
        stream = RowStream(config.seed, 0, range(rows), rows)
        keys = dropout_keys(stream, device)
        step.add(partial(method, batch, stream), keys, x.numel())

    def update() -> None:
        step.finish(mean, training.lr)
        if ema:
            ema.update(1)

    passes()  # slower than later ones, since it allocates memory
    update()
    rounds = [(_seconds(passes, device), _seconds(update, device)) for _ in range(_ROUNDS)]
    each, once = (sum(times) / _ROUNDS for times in zip(*rounds, strict=True))
    return each * training.batch / rows + once


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """Seconds of a call, until the device has finished it."""
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
