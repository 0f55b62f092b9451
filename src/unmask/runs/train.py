"""Trains a configuration in a run folder."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from unmask.backbones.backbone import Backbone
from unmask.bundle import Bundle
from unmask.config.components import build_method, outline
from unmask.config.run_config import (
    RunConfig,
    defaults,
    dump_yaml,
    resolve,
    to_dict,
)
from unmask.data.corpora import fields_of
from unmask.data.documents.fields import Fields
from unmask.data.load import Data, first_sources, load_data
from unmask.data.loader import LabelDropout, Loader, ReverseComplement, ShortRows
from unmask.data.rows.first_rows import FirstRows
from unmask.data.rows.stream_rows import StreamLoader, StreamRows
from unmask.data.sources.corpus import ELSEWHERE, Corpus
from unmask.data.sources.hub_dataset import corpus_of
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files.jsonl import JsonLines
from unmask.files.lock import locked
from unmask.files.storage import Damaged, full_disk, seal, verify
from unmask.files.tensors import load_weights
from unmask.formats.native import write_folder
from unmask.formats.read import read_bundle
from unmask.imports import extra
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import likelihood, paired_difference
from unmask.likelihood.figure_text import with_error
from unmask.likelihood.measured_rows import token_counts
from unmask.methods.distilled import with_teacher
from unmask.methods.method import METHODS, Method, check_lengths
from unmask.model import Model
from unmask.randomness import row_seeds, torch_seed
from unmask.runs.auto_recipe import fitted
from unmask.runs.shared_evaluation import Shard, sharded_bound, sharded_samples
from unmask.runtime.device import resolve_device
from unmask.training.checkpoints.checkpoint import SEALED, agree, recovered, run_file, run_weights
from unmask.training.distributed.process_group import ProcessGroup, joined, local_device
from unmask.training.logs.loggers import LOGGERS
from unmask.training.logs.progress import MeasureProgress
from unmask.training.lora import add_adapters, merged, remove_adapters
from unmask.training.trainer import Trainer

Say = Callable[[str], None]
_NETWORK = "backbone."
_ENDS = ("backbone.embedding.", "backbone.head.")
_BLOCK = 4096  # rows of pairs that are checked at once


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
        recipe: a shipped recipe by name ("demo"), a YAML file, a dict of settings, or a configuration.
        run: the run folder; runs/RECIPE unless given.
        data: the text to train on: a file, a folder or another source, short for `data.train`; a Dataset
            or IterableDataset of Hugging Face; or an iterable of texts, pairs or records. A mapping has
            the parts "train" and "valid" or "validation".
        overrides: settings by dotted name, such as {"training.steps": 100, "data.train": "notes.txt"}.
        say: receives each line of progress.
        tokenizer: a tokenizer to use instead of learning one from the training text.
        auto_batch: True finds the largest micro-batch that fits in memory.

    Returns:
        The model with the best weights of the run.

    Example:
        >>> model = train("demo", "runs/x", overrides={"training.steps": 100})  # doctest: +SKIP
    """
    if run is None and isinstance(recipe, Mapping | RunConfig):
        raise UnmaskError("the run needs a folder: give run, such as runs/first")
    run = Path("runs") / Path(str(recipe)).stem if run is None else run
    run = Path(run)
    source, objects = None, None
    if isinstance(data, str | Path):
        source = str(data)
    elif data is not None:
        objects = cache(partial(_given, data))  # an iterator can be read only once
    changed = {**({} if source is None else {"data.train": source}), **(overrides or {})}
    config = _configured(recipe, changed, run, say, objects)
    given = objects(fields_of(config.data)) if objects else {}
    if given:
        names: Any = {part: f"{ELSEWHERE}{corpus.name}" for part, corpus in given.items()}
        config = replace(config, data=replace(config.data, **names))
    for name in config.training.log_to:
        LOGGERS[name]  # raises an error for an unknown name before any work
    if config.lora.rank:
        extra("peft", "lora.rank", "lora")
        if not config.init_from:
            raise UnmaskError(
                "lora.rank trains adapters of a trained model: set init_from, such as stories"
            )
    if METHODS[config.method.name].capabilities.distills and not config.init_from:
        raise UnmaskError(
            f"method {config.method.name} distils a trained model: set init_from, such as runs/demo-duo"
        )
    outline(config)  # raises an error if method and network do not fit, before any data is read
    hint = f"nothing was lost; free some room and start {run} again"
    device = local_device(resolve_device(config.training.device))
    with full_disk(lambda: hint), joined(config.distributed, device) as group, ExitStack() as stack:
        stack.enter_context(group.watched(lambda: f"start {run} again"))
        group.broadcast(lambda: stack.enter_context(locked(run)) or "")
        report = say if group.main else lambda _: None
        checkpoint = _newest_checkpoint(run, report, group)
        report(f"{run}: reading {config.data.trained_on}")
        model, trainer, valid = _prepared(
            config, run, report, tokenizer, auto_batch, group, checkpoint, given
        )
        start = trainer.measure_start() if config.init_from and not checkpoint else None
        trainer.fit(checkpoint)
        if isinstance(start, Bound) and isinstance(trainer.best, Bound):
            report(_gain(start, trainer.best, valid.amount))
        elif config.init_from and checkpoint:
            for line in _logged_gain(run, valid.amount):
                report(line)
        return _best_model(model, trainer, report)


def _configured(
    recipe: str | Path | Mapping[str, Any] | RunConfig,
    overrides: Mapping[str, Any],
    run: Path,
    say: Say,
    objects: Callable[[Fields], dict[str, Corpus]] | None,
) -> RunConfig:
    """The configuration of a recipe with overrides; `objects` opens data that are no files."""
    if isinstance(recipe, RunConfig):
        return resolve(to_dict(recipe), overrides) if overrides else recipe
    if isinstance(recipe, Mapping):
        return resolve(recipe, overrides)
    if objects is None:
        return fitted(str(recipe), overrides, run, say)
    return fitted(str(recipe), overrides, run, say, lambda data: objects(fields_of(data))["train"])


def _given(data: Iterable[Any] | Mapping[str, Iterable[Any]], fields: Fields) -> dict[str, Corpus]:
    """The corpora of data that the caller gave, by the setting that they replace."""
    parts = data if isinstance(data, Mapping) else {"train": data}
    if "train" not in parts:
        raise UnmaskError(f"data has {', '.join(map(str, parts)) or 'no parts'}: give a part train")
    valid = parts.get("valid", parts.get("validation"))
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
    checkpoint: Path | None,
    given: Mapping[str, Corpus],
) -> tuple[Model, Trainer, FirstRows]:
    """The model, its trainer and the validation rows; writes config.yaml and the tokenizer."""
    initial = _initial_model(config, tokenizer) if config.init_from and not checkpoint else None
    teacher = read_bundle(config.teacher) if config.teacher else None
    known = initial.tokenizer if initial else tokenizer
    if teacher is not None:
        if known is not None and known.fingerprint != teacher.tokenizer.fingerprint:
            raise UnmaskError(f"the teacher {config.teacher} has another tokenizer than this run")
        known = teacher.tokenizer
        _check_teacher(config, teacher)
    data = group.in_turn(lambda: _data(config, run, known, checkpoint, group, given))
    corpus = {**data.train.facts, "held_out_text": data.valid.digest}
    corpus |= {"teacher": teacher.digest} if teacher else {}
    fingerprint = {**to_dict(config), "corpus": corpus}
    if checkpoint:  # before any file of the run changes
        group.broadcast(lambda: _check_agreement(run, checkpoint, fingerprint, config))
    with torch_seed(config.seed):
        method = initial.method if initial else build_method(config, data.tokenizer.vocabulary)
        if config.lora.rank:
            add_adapters(method, config.lora)
    trained = with_teacher(method, teacher.method) if teacher else method
    for network in trained.networks:
        _check_pairs(network, data)
    if method.capabilities.token_schedule:
        counted = data.valid if isinstance(data.train, StreamRows) else data.train
        method.set_frequencies(token_counts(counted, data.tokenizer.vocabulary.size))
    measured = replace(config.data, held_out_digest=data.valid.digest)
    own = replace(config, data=measured)
    model = Model(method, data.tokenizer, own, _usual(config, initial))
    valid = FirstRows(data.valid, config.training.validation_rows, config.seed)

    def validate() -> Bound:
        draws, seed = config.training.validation_draws, config.seed
        batch = len(group.share(config.training.batch))
        progress = MeasureProgress("validation", say)

        def measure(shard: Shard) -> Bound:
            return likelihood(
                method,
                valid,
                draws=draws,
                seed=seed,
                batch=batch,
                shard=shard,
                progress=progress,
                keep_rows=initial is not None,
            )

        return sharded_bound(group, len(valid), measure)

    def sample() -> list[str]:
        sources = first_sources(data, 2) if model.conditional else None
        rows = 2 if sources is None else len(sources)
        return sharded_samples(group, model, sources, row_seeds(config.seed, rows))

    loader = _loader(data, config)
    trainer = Trainer(
        trained,
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
    learned = sum(p.numel() for p in method.parameters() if p.requires_grad)
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
    if data.train.left_out or data.valid.left_out:
        say(
            f"left out: {data.train.left_out:,} training and {data.valid.left_out:,} validation "
            f"pairs, which are longer than {config.data.length} tokens"
        )
    return model, trainer, valid


def _check_teacher(config: RunConfig, teacher: Bundle) -> None:
    """Raises an error before any data is read if a run cannot learn from the teacher."""
    with_teacher(outline(config, teacher.tokenizer.vocabulary), teacher.method)
    longest = teacher.method.backbone.longest
    if longest is not None and longest < config.data.length:
        raise UnmaskError(
            f"the teacher {config.teacher} reads {longest} tokens, but rows have "
            f"{config.data.length}: set data.length {longest}"
        )


def _check_pairs(backbone: Backbone, data: Data) -> None:
    """Raises an error before the first step if a source or a target is longer than the network reads."""
    for rows in (data.train, data.valid):
        if isinstance(rows, StreamRows) or not backbone.pairs:
            continue
        for start in range(0, len(rows), _BLOCK):
            index = range(start, min(start + _BLOCK, len(rows)))
            check_lengths(backbone, rows[index][1], rows.given(index))


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


def _gain(before: Bound, after: Bound, rows: str) -> str:
    """The bounds before and after training, with the error of their difference on the same noise."""
    change, error, freedom = paired_difference(before, after)
    return (
        f"held-out text ({rows}): {before.nats:.4f} nats/token before, {after.nats:.4f} after: "
        f"{with_error(abs(change), error, freedom)} {'higher' if change < 0 else 'lower'}"
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


def _initial_model(config: RunConfig, tokenizer: Tokenizer | None) -> Model:
    """A model of this configuration with the weights and the tokenizer of `init_from`."""
    found = read_bundle(config.init_from)
    if tokenizer is not None and tokenizer.fingerprint != found.tokenizer.fingerprint:
        raise UnmaskError(
            f"init_from {config.init_from} has another tokenizer than the one given: give none"
        )
    with torch_seed(config.seed):
        method = build_method(config, found.tokenizer.vocabulary)
    fresh, network = (
        method.state_dict(),
        method.backbone.adapted(found.method.backbone.state_dict()),
    )
    given = {
        **{n: t for n, t in found.method.state_dict().items() if not n.startswith(_NETWORK)},
        **{f"{_NETWORK}{name}": tensor for name, tensor in network.items()},
    }
    own, other = _own_tensors(method), _own_tensors(found.method)
    given = {name: tensor for name, tensor in given.items() if name in fresh or name not in other}
    if method.capabilities.latent != found.method.capabilities.latent:
        # tokens and vectors have different first and last layers: only the layers between are taken
        own |= {name for name in fresh if not name.startswith(_NETWORK) or name.startswith(_ENDS)}
        given = {name: tensor for name, tensor in given.items() if name in fresh.keys() - own}
    weights = {name: fresh[name] for name in own} | given
    load_weights(method, weights, f"init_from {config.init_from}")
    return Model(method, found.tokenizer, config, found.defaults)


def _own_tensors(method: Method) -> set[str]:
    """Names of the method's buffers and learned schedule, which a model of another method does not have."""
    names = {name for name, _ in method.named_buffers()} | {
        name for name, _ in method.named_parameters() if name.startswith("schedule.")
    }
    return {name for name in names if not name.startswith(_NETWORK)}


def _usual(config: RunConfig, start: Model | None) -> Mapping[str, Any]:
    """The default options of `generate` of the initial model; none if a resumed run has lost it."""
    if start or not config.init_from:
        return start.defaults if start else {}
    try:
        return read_bundle(config.init_from).defaults
    except (UnmaskError, OSError):
        return {}


def _loader(data: Data, config: RunConfig) -> Loader | StreamLoader:
    """The batches of a run: shuffled rows, or a stream in its own order."""
    if isinstance(data.train, StreamRows):
        return StreamLoader(data.train, config.training.batch, config.seed)
    dropout = LabelDropout(data.tokenizer, config.data.label_dropout, config.data.label_given)
    strands = ReverseComplement(data.tokenizer, config.data.reverse_complement)
    return Loader(data.train, config.training.batch, config.seed, dropout, strands)


def _shortened(
    loader: Loader | StreamLoader, config: RunConfig, tokenizer: Tokenizer
) -> Loader | StreamLoader | ShortRows:
    """The loader with some rows cut short, if `data.shorten` is set."""
    eos_id = tokenizer.vocabulary.eos_id
    if not config.data.shorten or eos_id is None:
        return loader
    return ShortRows(loader, config.data.shorten, eos_id)


def _newest_checkpoint(run: Path, say: Say, group: ProcessGroup) -> Path | None:
    """The newest intact checkpoint, found by the main process; None if there is none."""
    found = group.broadcast(lambda: str(recovered(run, say) or ""))
    if found and group.main:
        _report_damage(run, say)
    return Path(found) if found else None


def _check_agreement(
    run: Path, checkpoint: Path, fingerprint: dict[str, object], config: RunConfig
) -> str:
    """Raises an error if the checkpoint is of other settings; the result is for `broadcast`."""
    # a checkpoint of an older version has no digests of the texts
    agree(run, checkpoint, fingerprint, {**defaults(config), "corpus": fingerprint["corpus"]})
    return ""


def _data(
    config: RunConfig,
    run: Path,
    tokenizer: Tokenizer | None,
    checkpoint: Path | None,
    group: ProcessGroup,
    given: Mapping[str, Corpus],
) -> Data:
    """The rows for training and validation. The main process learns the tokenizer for all processes."""
    if checkpoint:
        tokenizer = load_tokenizer(run_file(checkpoint, run, "tokenizer"))
    elif not group.main:
        tokenizer = load_tokenizer(run / "tokenizer")
    data = load_data(config.data, tokenizer, given.get("train"), given.get("valid"))
    if group.world > 1 and group.main and not checkpoint:
        data.tokenizer.save(run / "tokenizer")
    return data


def _report_damage(run: Path, say: Say) -> None:
    """Prints a line if config.yaml or the tokenizer is damaged. Training writes both again."""
    try:
        verify(run)
    except Damaged as damage:
        say(f"{damage}: written again")


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
