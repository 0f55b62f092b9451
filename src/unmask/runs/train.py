"""Trains a configuration in a run folder."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unmask.config.components import build_method, outline
from unmask.config.run_config import (
    RunConfig,
    defaults,
    dump_yaml,
    load_recipe,
    resolve,
    to_dict,
)
from unmask.data.corpora import fields_of
from unmask.data.load import Data, first_sources, load_data
from unmask.data.loader import LabelDropout, Loader, ShortRows
from unmask.data.rows.first_rows import FirstRows
from unmask.data.rows.stream_rows import StreamLoader, StreamRows
from unmask.data.sources.corpus import ELSEWHERE, Corpus
from unmask.data.sources.python_objects import corpus_of
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files.lock import locked
from unmask.files.storage import Damaged, full_disk, seal, verify
from unmask.files.tensors import load_weights
from unmask.formats.read import read_bundle
from unmask.imports import extra
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import likelihood
from unmask.model import Model
from unmask.randomness import row_seeds
from unmask.runs.shared_evaluation import Shard, measured_together, written_together
from unmask.runtime.device import resolve_device
from unmask.training.checkpoints.checkpoint import SEALED, agree, carried, recovered, run_weights
from unmask.training.distributed.process_group import ProcessGroup, joined, local_device
from unmask.training.logs.loggers import LOGGERS
from unmask.training.lora import add_adapters, merged, remove_adapters
from unmask.training.trainer import Trainer

Say = Callable[[str], None]


def train(
    recipe: str | Path | Mapping[str, Any] | RunConfig,
    run: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    say: Say = print,
    tokenizer: Tokenizer | None = None,
    auto_batch: bool = False,
    data: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
) -> Model:
    """Trains a model in a run folder, or continues an interrupted run there.

    Args:
        recipe: a shipped recipe by name ("demo"), a YAML file, a dict of settings, or a configuration.
        run: the run folder; runs/RECIPE unless given.
        overrides: settings by dotted name, such as {"training.steps": 100, "data.train": "notes.txt"}.
        say: receives each line of progress.
        tokenizer: a tokenizer of the same text, which is then not learned again.
        auto_batch: True finds the largest micro-batch that fits in memory.
        data: a Dataset or IterableDataset of Hugging Face, or an iterable of texts, pairs or records, in
            place of `data.train`; or a mapping with "train" and "valid" or "validation".

    Returns:
        The model with the best weights of the run.

    Example:
        >>> model = train("demo", "runs/x", overrides={"training.steps": 100})  # doctest: +SKIP
    """
    config = _configured(recipe, overrides or {})
    given = _given(data, config)
    if given:
        names: Any = {part: f"{ELSEWHERE}{corpus.name}" for part, corpus in given.items()}
        config = replace(config, data=replace(config.data, **names))
    if run is None and isinstance(recipe, Mapping | RunConfig):
        raise UnmaskError("the run needs a folder: give run, such as runs/first")
    run = Path("runs") / Path(str(recipe)).stem if run is None else run
    run = Path(run)
    for name in config.training.log_to:
        LOGGERS[name]  # an unknown name raises an error before any work
    if config.lora.rank:
        extra("peft", "lora.rank", "lora")
        if not config.init_from:
            raise UnmaskError(
                "lora.rank trains adapters of a trained model: set init_from, such as stories"
            )
    outline(config)  # so does a method with an unsuitable network, before any data is read
    mend = f"nothing was lost; free some room and start {run} again"
    device = local_device(resolve_device(config.training.device))
    with full_disk(lambda: mend), joined(config.distributed, device) as group, ExitStack() as stack:
        stack.enter_context(group.watched(lambda: f"start {run} again"))
        group.broadcast(lambda: stack.enter_context(locked(run)) or "")
        heard = say if group.main else lambda _: None
        begun = _begun(run, heard, group)
        model, trainer = _prepared(config, run, heard, tokenizer, auto_batch, group, begun, given)
        trainer.fit(begun)
        return _best(model, trainer, heard)


def _configured(
    recipe: str | Path | Mapping[str, Any] | RunConfig, overrides: Mapping[str, Any]
) -> RunConfig:
    """The configuration of a recipe with overrides."""
    if isinstance(recipe, RunConfig):
        return resolve(to_dict(recipe), overrides) if overrides else recipe
    return resolve(recipe if isinstance(recipe, Mapping) else load_recipe(str(recipe)), overrides)


def _given(
    data: Iterable[Any] | Mapping[str, Iterable[Any]] | None, config: RunConfig
) -> dict[str, Corpus]:
    """The corpora of data that the caller gave, by the setting that they replace."""
    if data is None:
        return {}
    parts = data if isinstance(data, Mapping) else {"train": data}
    if "train" not in parts:
        raise UnmaskError(f"data has {', '.join(map(str, parts)) or 'no parts'}: give a part train")
    valid = parts.get("valid", parts.get("validation"))
    fields = fields_of(config.data)
    found = {"train": corpus_of(parts["train"], fields, "data")}
    if valid is not None:
        found["valid"] = corpus_of(valid, fields, "validation data")
    return found


def _prepared(
    config: RunConfig,
    run: Path,
    say: Say,
    tokenizer: Tokenizer | None,
    auto_batch: bool,
    group: ProcessGroup,
    begun: Path | None,
    given: Mapping[str, Corpus],
) -> tuple[Model, Trainer]:
    """The model and its trainer; reads the data and writes config.yaml and the tokenizer."""
    start = _starting(config, tokenizer) if config.init_from and not begun else None
    learned = start.tokenizer if start else tokenizer
    data = group.in_turn(lambda: _data(config, run, learned, begun, group, given))
    fingerprint = {**to_dict(config), "corpus": data.train.facts}
    if begun:  # before any file of the run changes
        group.broadcast(lambda: _agreed(run, begun, fingerprint, config))
    torch.manual_seed(config.seed)  # the initial weights
    method = start.method if start else build_method(config, data.tokenizer.vocabulary)
    if config.lora.rank:
        add_adapters(method, config.lora)
    model = Model(method, data.tokenizer, config)
    valid = FirstRows(data.valid, config.training.validation_rows)

    def validate() -> Bound:
        draws, seed = config.training.validation_draws, config.seed
        batch = len(group.share(config.training.batch))

        def measure(shard: Shard) -> Bound:
            return likelihood(method, valid, draws=draws, seed=seed, batch=batch, shard=shard)

        return measured_together(group, len(valid), measure)

    def sample() -> list[str]:
        sources = first_sources(data, 2) if model.conditional else None
        return written_together(group, model, sources, row_seeds(config.seed, 2))

    loader = _loader(data, config)
    trainer = Trainer(
        method,
        _shortened(loader, config, data.tokenizer),
        config.training,
        run,
        config.seed,
        fingerprint,
        validate,
        sample if method.capabilities.generate else None,
        say,
        auto_batch,
        config.distributed,
        group,
        loader if isinstance(loader, StreamLoader) else None,
    )
    if group.main:
        (run / "config.yaml").write_text(dump_yaml(config), encoding="utf-8")
        data.tokenizer.save(run / "tokenizer")
        seal(run, *SEALED)
    parameters = sum(p.numel() for p in method.parameters())
    trained = sum(p.numel() for p in method.parameters() if p.requires_grad)
    share = f", {trained / parameters:.1%} of them trained" if trained < parameters else ""
    say(
        f"{config.method.name}, {parameters / 1e6:.1f}M parameters{share}; {data.train.amount} of "
        f"{config.data.length} tokens to train on, {len(data.valid):,} to validate"
    )
    for note in data.notes:
        say(note)
    if data.train.left_out or data.valid.left_out:
        say(
            f"left out: {data.train.left_out:,} training and {data.valid.left_out:,} validation "
            f"pairs, which are longer than {config.data.length} tokens"
        )
    return model, trainer


def _best(model: Model, trainer: Trainer, say: Say) -> Model:
    """The model with the best weights of the run; exports it to the run folder."""
    method, run, group = model.method, trainer.run, trainer.group
    weights = group.in_turn(lambda: run_weights(run, say))
    if model.config.lora.rank:
        remove_adapters(method)
        weights = merged(weights, model.config.lora)
    load_weights(method.to(trainer.device), weights, run)
    if group.main:
        _clear_damage(run / "model", say)
        model.save(run / "model")
    method.eval().serve()
    return model


def _starting(config: RunConfig, tokenizer: Tokenizer | None) -> Model:
    """The model of a configuration with the weights and tokenizer of its initial model."""
    found = read_bundle(config.init_from)
    if tokenizer is not None and tokenizer.fingerprint != found.tokenizer.fingerprint:
        raise UnmaskError(
            f"init_from {config.init_from} has another tokenizer than the one given: give none"
        )
    method = build_method(config, found.tokenizer.vocabulary)
    load_weights(method, found.method.state_dict(), f"init_from {config.init_from}")
    return Model(method, found.tokenizer, config)


def _loader(data: Data, config: RunConfig) -> Loader | StreamLoader:
    """The batches of a run: shuffled rows, or a stream in its own order."""
    if isinstance(data.train, StreamRows):
        return StreamLoader(data.train, config.training.batch, config.seed)
    dropout = LabelDropout(data.tokenizer, config.data.label_dropout)
    return Loader(data.train, config.training.batch, config.seed, dropout)


def _shortened(
    loader: Loader | StreamLoader, config: RunConfig, tokenizer: Tokenizer
) -> Loader | StreamLoader | ShortRows:
    """The loader with some rows cut short, if `data.shorten` is set."""
    eos_id = tokenizer.vocabulary.eos_id
    if not config.data.shorten or eos_id is None:
        return loader
    return ShortRows(loader, config.data.shorten, eos_id)


def _begun(run: Path, say: Say, group: ProcessGroup) -> Path | None:
    """The newest intact checkpoint, which the main process finds for all."""
    found = group.broadcast(lambda: str(recovered(run, say) or ""))
    if found and group.main:
        _tell_damage(run, say)
    return Path(found) if found else None


def _agreed(run: Path, begun: Path, fingerprint: dict[str, object], config: RunConfig) -> str:
    agree(run, begun, fingerprint, defaults(config))
    return ""


def _data(
    config: RunConfig,
    run: Path,
    tokenizer: Tokenizer | None,
    begun: Path | None,
    group: ProcessGroup,
    given: Mapping[str, Corpus],
) -> Data:
    """The rows for training and validation; the main process learns the tokenizer for all."""
    if begun:
        tokenizer = load_tokenizer(carried(begun, run, "tokenizer"))
    elif not group.main:
        tokenizer = load_tokenizer(run / "tokenizer")
    data = load_data(config.data, tokenizer, given.get("train"), given.get("valid"))
    if group.world > 1 and group.main and not begun:
        data.tokenizer.save(run / "tokenizer")
    return data


def _tell_damage(run: Path, say: Say) -> None:
    """Prints a line if config.yaml or the tokenizer is damaged; the run writes them again."""
    try:
        verify(run)
    except Damaged as damage:
        say(f"{damage}: written again")


def _clear_damage(exported: Path, say: Say) -> None:
    """Deletes a damaged exported model, because saving refuses to replace an unknown folder."""
    if not exported.exists():
        return
    try:
        verify(exported)
    except Damaged as damage:
        say(f"{damage}: exported again")
        shutil.rmtree(exported)
