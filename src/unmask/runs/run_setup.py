"""The configuration of a run, and its folder while a process group trains there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from unmask.config.components import outline
from unmask.config.run_config import RunConfig, resolve, to_dict
from unmask.data.corpora import fields_of
from unmask.data.documents.fields import Fields
from unmask.data.sources.corpus import ELSEWHERE, Corpus
from unmask.data.sources.hub_dataset import corpus_of
from unmask.errors import UnmaskError
from unmask.files.lock import locked
from unmask.files.storage import Damaged, full_disk, verify
from unmask.imports import extra
from unmask.methods.method import METHODS
from unmask.runs.auto_recipe import fitted
from unmask.runtime.device import resolve_device
from unmask.training.checkpoints.checkpoint import recovered
from unmask.training.distributed.process_group import ProcessGroup, joined, local_device
from unmask.training.logs.loggers import LOGGERS

Say = Callable[[str], None]
Recipe = str | Path | Mapping[str, Any] | RunConfig
GivenData = str | Path | Iterable[Any] | Mapping[str, Iterable[Any]]


@dataclass(frozen=True)
class RunSetup:
    """The checked configuration of a run, its folder, and the corpora that the caller gave."""

    config: RunConfig
    folder: Path
    given: Mapping[str, Corpus]


@dataclass(frozen=True)
class OpenRun(RunSetup):
    """A run whose folder this process group holds."""

    group: ProcessGroup
    say: Say  # prints lines of the main process only
    checkpoint: Path | None  # the newest intact one


def set_up(
    recipe: Recipe,
    folder: str | Path | None,
    data: GivenData | None,
    overrides: Mapping[str, Any] | None,
    say: Say,
) -> RunSetup:
    """The configuration of a run. An error is raised for settings that do not fit, before any work.

    Args:
        recipe: a recipe by name, a YAML file, settings or a configuration.
        folder: the run folder; runs/RECIPE if it is None.
        data: the text to train on, if the configuration does not name it.
        overrides: settings by dotted name.
        say: prints a line.

    Returns:
        The setup.
    """
    if folder is None and isinstance(recipe, Mapping | RunConfig):
        raise UnmaskError("the run needs a folder: give run, such as runs/first")
    run = Path("runs") / Path(str(recipe)).stem if folder is None else Path(folder)
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
    _check(config)
    return RunSetup(config, run, given)


@contextmanager
def opened_run(setup: RunSetup, say: Say) -> Iterator[OpenRun]:
    """Joins the processes of a run and holds its folder.

    Args:
        setup: the configuration.
        say: prints a line.

    Yields:
        The run.
    """
    config, run = setup.config, setup.folder
    hint = f"nothing was lost; free some room and start {run} again"
    device = local_device(resolve_device(config.training.device))
    with full_disk(lambda: hint), joined(config.distributed, device) as group, ExitStack() as stack:
        stack.enter_context(group.watched(lambda: f"start {run} again"))
        group.broadcast(lambda: stack.enter_context(locked(run)) or "")
        report = say if group.main else lambda _: None
        checkpoint = _newest_checkpoint(run, report, group)
        report(f"{run}: reading {config.data.trained_on}")
        yield OpenRun(config, run, setup.given, group, report, checkpoint)


def _check(config: RunConfig) -> None:
    """Raises an error for an unknown logger, a missing model to start from,
    or parts that do not fit.
    """
    for name in config.training.log_to:
        LOGGERS[name]  # raises an error for an unknown name
    if config.lora.rank:
        extra("peft", "lora.rank", "lora")
        if not config.init_from:
            raise UnmaskError(
                "lora.rank trains adapters of a trained model: set init_from, such as stories"
            )
    start = METHODS[config.method.name].capabilities.distills
    if start and not config.init_from:
        raise UnmaskError(
            f"method {config.method.name} distils a trained model: set init_from, such as {start}"
        )
    outline(config)  # raises an error if method and network do not fit


def _configured(
    recipe: Recipe,
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


def _newest_checkpoint(run: Path, say: Say, group: ProcessGroup) -> Path | None:
    """The newest intact checkpoint, found by the main process; None if there is none."""
    found = group.broadcast(lambda: str(recovered(run, say) or ""))
    if found and group.main:
        _report_damage(run, say)
    return Path(found) if found else None


def _report_damage(run: Path, say: Say) -> None:
    """Prints a line if config.yaml or the tokenizer is damaged. Training writes both again."""
    try:
        verify(run)
    except Damaged as damage:
        say(f"{damage}: written again")
