"""Trains a configuration in a run folder.

Configuration, data, method and trainer are made in this order, each from the ones before.
"""

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from unmask.config.run_config import RunConfig, dump_yaml
from unmask.data.load import Data, first_sources
from unmask.data.rows.stream_rows import StreamLoader
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError, misnamed
from unmask.files.jsonl import JsonLines
from unmask.files.storage import Damaged, seal, verify
from unmask.files.tensors import load_weights
from unmask.formats.native import write_folder
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import likelihood, paired_difference
from unmask.likelihood.figure_text import with_error
from unmask.methods.method import Method
from unmask.model import Model
from unmask.randomness import row_seeds
from unmask.runs.run_setup import OpenRun, Say, opened_run, set_up
from unmask.runs.shared_evaluation import Shard, sharded_bound, sharded_samples
from unmask.runs.training_models import Learner, build_learner, given_models, initial_model
from unmask.runs.training_rows import TrainingRows, read_rows
from unmask.runtime.device import autocast
from unmask.training.checkpoints.checkpoint import SEALED, run_weights
from unmask.training.logs.progress import MeasureProgress
from unmask.training.lora import merged, remove_adapters
from unmask.training.trainer import Trainer, TrainingRun


def _setting(name: str, value: Any) -> str | None:
    """The setting that an unknown argument of `train` means; None without one."""
    whole = RunConfig()
    for prefix, part in {"": whole, **{f"{key}.": one for key, one in vars(whole).items()}}.items():
        if is_dataclass(part) and name in vars(part):
            return f"give overrides={{{prefix + name!r}: {value!r}}}"
    return None


@misnamed(_setting)
def train(
    recipe: str | Path | Mapping[str, Any] | RunConfig,
    run: str | Path | None = None,
    *,
    data: str | Path | Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
    overrides: Mapping[str, Any] | None = None,
    say: Say = print,
    tokenizer: Tokenizer | None = None,
    auto_batch: bool = False,
) -> Model:
    """Trains a model in a run folder, or continues an interrupted run there.

    Args:
        recipe: a shipped recipe by name ("demo"), a YAML file, a dict of settings,
            or a configuration.
        run: the run folder; runs/RECIPE unless given.
        data: the text to train on: a file, a folder or another source, short for `data.train`; a
            Dataset or IterableDataset of Hugging Face; or an iterable of texts, pairs or records. A
            mapping has the parts "train" and "valid" or "validation".
        overrides: settings by dotted name, such as {"training.steps": 100, "data.train":
            "notes.txt"}.
        say: receives each line of progress.
        tokenizer: a tokenizer to use instead of learning one from the training text.
        auto_batch: True finds the largest micro-batch that fits in memory.

    Returns:
        The model with the best weights of the run.

    Example:
        >>> model = train("demo", "runs/x", overrides={"training.steps": 100})  # doctest: +SKIP
    """
    setup = set_up(recipe, run, data, overrides, say)
    with opened_run(setup, say) as opened:
        given = given_models(opened, tokenizer)
        rows = read_rows(opened, given)
        learner = build_learner(opened, given, rows.data)
        trainer = _trainer(opened, rows, learner, auto_batch)
        _write_settings(opened, rows)
        _say_sizes(opened, rows, learner)
        fresh = opened.config.init_from and not opened.checkpoint
        start = trainer.measure_start() if fresh else None
        trainer.fit(opened.checkpoint)
        best = _best_model(learner.model, trainer, opened.say)
        for line in _gains(opened, trainer, start, rows, best):
            opened.say(line)
        return best


def _trainer(run: OpenRun, rows: TrainingRows, learner: Learner, auto_batch: bool) -> Trainer:
    config, group, model = run.config, run.group, learner.model
    identity = TrainingRun(
        run.folder, config.seed, rows.fingerprint, run.say, group, config.distributed
    )

    def validate() -> Bound:
        progress = MeasureProgress("validation", run.say)
        measure = partial(_validation, run, rows, model.method, progress)
        return sharded_bound(group, len(rows.valid), measure)

    def sample() -> list[str]:
        sources = first_sources(rows.data, 2) if model.conditional else None
        count = 2 if sources is None else len(sources)
        return sharded_samples(group, model, sources, row_seeds(config.seed, count))

    return Trainer(
        learner.trained,
        rows.batches,
        config.training,
        identity,
        validate=validate,
        sample=sample if model.method.capabilities.generate else None,
        auto_batch=auto_batch,
        stream=rows.loader if isinstance(rows.loader, StreamLoader) else None,
    )


def _validation(
    run: OpenRun,
    rows: TrainingRows,
    method: Method,
    progress: Callable[[float], None] | None = None,
    shard: Shard = (0, 1),
) -> Bound:
    """The validation bound of a shard; of a run that starts from a model it keeps single rows."""
    config = run.config
    return likelihood(
        method,
        rows.valid,
        draws=config.training.validation_draws,
        seed=config.seed,
        batch=len(run.group.share(config.training.batch)),
        shard=shard,
        progress=progress,
        keep_rows=bool(config.init_from),
    )


def _write_settings(run: OpenRun, rows: TrainingRows) -> None:
    """Writes config.yaml and the tokenizer to the run folder."""
    if not run.group.main:
        return
    (run.folder / "config.yaml").write_text(dump_yaml(run.config), encoding="utf-8")
    rows.data.tokenizer.save(run.folder / "tokenizer")
    seal(run.folder, *SEALED)


def _say_sizes(run: OpenRun, rows: TrainingRows, learner: Learner) -> None:
    """Prints the numbers of parameters and rows, and notes about the data."""
    config, data, valid, say = run.config, rows.data, rows.valid, run.say
    sizes = [(p.numel(), p.requires_grad) for p in learner.model.method.parameters()]
    parameters = sum(size for size, _ in sizes)
    learned = sum(size for size, trained in sizes if trained)
    share = f", {learned / parameters:.1%} of them trained" if learned < parameters else ""
    say(
        f"{config.method.name}, {parameters / 1e6:.1f}M parameters{share}; {data.train.amount} of "
        f"{config.data.length} tokens to train on, {len(data.valid):,} to validate"
    )
    if len(valid) < len(data.valid):
        say(
            f"each validation measures {len(valid):,} of these rows, chosen by the seed "
            "(training.validation_rows; 0 = all)"
        )
    for note in (*data.notes, config.training.note):
        if note:
            say(note)
    if config.data.messages_field:
        for line in _about_chats(data, config.data.length):
            say(line)
    elif data.train.left_out or data.valid.left_out:
        say(
            f"left out: {data.train.left_out:,} training and {data.valid.left_out:,} validation "
            f"pairs, which are longer than {config.data.length} tokens"
        )


def _about_chats(data: Data, length: int) -> Iterator[str]:
    """Lines about the chats that are longer than a row."""
    parts = ("training", data.train), ("validation", data.valid)
    for name, rows in parts:
        if cut := getattr(rows, "cut", 0):
            yield (
                f"{name}: {cut:,} chats are longer than {length} tokens and cut there; "
                f"{rows.left_out:,} of them are left out, since no answer begins before the cut "
                "(data.length)"
            )


def _gains(
    run: OpenRun, trainer: Trainer, start: object, rows: TrainingRows, model: Model
) -> Iterator[str]:
    """The bounds before and after the training of a run that starts from a model."""
    amount = rows.valid.amount
    if isinstance(start, Bound) and isinstance(trainer.best, Bound):
        yield _gain(start, trainer.best, amount)
    elif run.config.init_from and run.checkpoint and run.group.world == 1:
        try:
            yield _gain(*_measured_again(run, trainer, rows, model), amount)
        except UnmaskError:  # the initial model is gone
            yield from _logged_gain(run.folder, amount)


def _measured_again(
    run: OpenRun, trainer: Trainer, rows: TrainingRows, model: Model
) -> tuple[Bound, Bound]:
    """The bounds of the initial and the best weights of a resumed run, on the same noise."""
    run.say("measuring the weights before and after training")
    method = initial_model(run.config, model.tokenizer).method.to(trainer.device)

    def measure() -> Bound:  # autocast keeps converted weights, so each has a context of its own
        with torch.no_grad(), autocast(trainer.device, trainer.config.precision):
            return _validation(run, rows, method)

    before = measure()
    method.load_state_dict(model.method.state_dict())
    return before, measure()


def _gain(before: Bound, after: Bound, rows: str) -> str:
    """The bounds before and after training,
    with the error of their difference on the same noise.
    """
    change, error, freedom = paired_difference(before, after)
    unit, scale = "nats/token", 1.0
    if before.bytes:
        unit, scale = "bits/byte", before.tokens / before.bytes / math.log(2)
    return (
        f"held-out text ({rows}): {before.nats * scale:.4f} {unit} before, "
        f"{after.nats * scale:.4f} after: {with_error(abs(change) * scale, error * scale, freedom)} "
        f"{'higher' if change < 0 else 'lower'}"
    )


def _logged_gain(run: Path, rows: str) -> Iterator[str]:
    """A line of the bounds before and after the training of a resumed run, if its log has both."""
    found = [each for each in JsonLines(run / "log.jsonl").read() if "validation" in each]
    nats = [(each["step"] == 0, each["validation"]["nats"]) for each in found]
    before, after = ([value for first, value in nats if first is want] for want in (True, False))
    if before and after:
        yield (
            f"held-out text ({rows}): {before[0]:.4f} nats/token before, {min(after):.4f} after, "
            "by the log of this resumed run"
        )


def _best_model(model: Model, trainer: Trainer, say: Say) -> Model:
    """The model with the best weights of the run; exports it to the run folder."""
    method, run, group = model.method, trainer.run, trainer.group
    weights = group.in_turn(lambda: run_weights(run, say))
    if model.config.lora.rank:
        remove_adapters(method)
        weights = merged(weights, model.config.lora)
    load_weights(method.to(trainer.device), weights, run)
    if group.main:
        _clear_damage(run / "model", say)
        write_folder(model, run / "model")
    method.eval().serve()
    return model


def _clear_damage(exported: Path, say: Say) -> None:
    """Deletes a damaged exported model, and reports a card that the new model does not have."""
    if not exported.exists():
        return
    if (exported / "card.json").exists():
        say(f"{exported}: the card of the earlier weights is removed")
    try:
        verify(exported)
    except Damaged as damage:
        say(f"{damage}: exported again")
        shutil.rmtree(exported)
