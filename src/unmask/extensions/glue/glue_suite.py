"""The suite `glue`: fine-tuning on the tasks of GLUE, scored on their development sets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import SUITES, Progress, Suite, column
from unmask.extensions.glue.glue_tasks import TaskData, read_task, tasks_named
from unmask.options import option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unmask.model import Model

AVERAGE = "average"


@dataclass(frozen=True)
class GlueOptions:
    """Options of the suite `glue`. The defaults of the training are those of the MDLM paper."""

    data: Path | None = option(
        None, metavar="DIR", help="folder of GLUE with a folder for each task, such as RTE/dev.tsv"
    )
    tasks: list[str] | None = option(
        None, metavar="NAME", help="tasks, such as RTE CoLA; by default all that the folder has"
    )
    seeds: int = option(5, ge=1, help="trainings of each task; the median over them is reported")
    limit: int | None = option(None, ge=1, help="the first N examples of each part; by default all")
    lr: float = option(2e-5, gt=0, help="learning rate, which decays linearly to 0")
    epochs: int = option(3, ge=1, help="passes over the training examples")
    batch: int = option(16, ge=1, help="examples of an optimizer step")
    length: int = option(128, ge=8, help="most tokens of an example; longer ones are cut")
    pooling: Literal["cls", "mean", "last"] | None = option(
        None, help="vector of a text; by default cls, or last for a causal network"
    )
    frozen: bool = option(False, help="train the head only")
    training_precision: Literal["fp32", "bf16"] = option(
        "fp32", help="precision of the matrix products in training"
    )


@dataclass(frozen=True)
class GlueRow:
    """Scores of a task on its development set over several seeds, or their average over tasks."""

    task: str
    score: float | None = column(None, format=".2f")  # median over seeds
    low: float | None = column(None, format=".2f")
    high: float | None = column(None, format=".2f")
    scores: str = column("")  # names of the scores
    train: int | None = column(None, title="examples", format=",")
    dev: int | None = column(None, format=",")
    seeds: int = column(0, shown=False)
    by_seed: tuple[float, ...] = column((), shown=False)
    detail: Mapping[str, Sequence[float]] | None = column(None, shown=False)
    note: str = column("")


@SUITES.register("glue")
class Glue(Suite):
    """Understanding after fine-tuning: GLUE's tasks, median over seeds."""

    Options = GlueOptions
    Row = GlueRow
    examples = (
        "encoder --data glue",
        "encoder --data glue --tasks RTE --seeds 5 --limit 64",
    )

    def rows(self, model: "Model", options: GlueOptions, progress: Progress) -> Iterator[GlueRow]:
        from unmask.extensions.glue.class_scores import scores

        found, absent = task_data(options.data, options.tasks)
        names = [each.task.name for each in found]
        progress.expect([*names, AVERAGE] if len(names) > 1 else names)
        measured: list[GlueRow] = []
        for each in found:
            data, name = each.limited(options.limit), each.task.name
            progress.say(f"{name}: {len(data.train):,} training and {len(data.dev):,} dev examples")
            by_seed: list[float] = []
            detail: dict[str, list[float]] = {metric: [] for metric in each.task.scores}
            for seed in range(options.seeds):
                logits = predictions(model, data, options, seed)
                one = scores(each.task.scores, logits, data.dev.targets)
                by_seed.append(fmean(one.values()))
                progress.say(f"{name}, seed {seed + 1} of {options.seeds}: {by_seed[-1]:.2f}")
                for metric, value in one.items():
                    detail[metric].append(value)
            note = each.note
            if options.limit is not None:
                note = "; ".join(filter(None, (note, f"the first {options.limit:,} examples")))
            measured.append(
                summarised(each.task.name, by_seed, detail, len(data.train), len(data.dev), note)
            )
            yield measured[-1]
        if len(measured) > 1:
            averages = [
                fmean(values) for values in zip(*(m.by_seed for m in measured), strict=True)
            ]
            note = f"over {len(measured)} tasks"
            yield summarised(AVERAGE, averages, {}, None, None, note)
        for name in absent:
            yield GlueRow(name, note="absent")

    def notes(self, rows: Sequence[GlueRow]) -> list[str]:
        """The meaning of scores and intervals."""
        seeds = max((row.seeds for row in rows), default=0)
        interval = "its interval holds the true median in 93.75% of cases or more"
        if seeds < 5:
            interval = "fewer than 5 seeds give no interval"
        lines = [f"Median over {seeds} seeds on development sets, in percent; {interval}."]
        if any(row.task == AVERAGE for row in rows):
            lines.append("The average covers the tasks above only: published averages cover nine.")
        return lines


def task_data(folder: Path | None, names: Sequence[str] | None) -> tuple[list[TaskData], list[str]]:
    """The tasks that a folder of GLUE has, and the names of absent ones;
    an absent named task is an error.

    All files are read before any training, so that a mistake in them costs no time.
    """
    if folder is None:
        raise UnmaskError("GLUE is not part of the package: give its folder with --data")
    if not folder.is_dir():
        raise UnmaskError(f"there is no folder {folder}: give the folder of GLUE")
    found, absent = [], []
    for task in tasks_named(names):
        data = read_task(folder, task)
        if data is not None:
            found.append(data)
        elif names:
            raise UnmaskError(f"{folder} has no folder {task.name}: leave the task out")
        else:
            absent.append(task.name)
    if not found:
        raise UnmaskError(
            f"{folder} has no task of GLUE: give the folder with RTE, CoLA and others"
        )
    return found, absent


def predictions(
    model: "Model", data: TaskData, options: GlueOptions, seed: int
) -> "NDArray[np.float32]":
    """Logits of the development examples after fine-tuning with one seed.

    Args:
        model: The model to start from; it is not changed.
        data: The examples.
        options: Options of the suite.
        seed: Seed of the head, the order of examples and the dropout.

    Returns:
        Outputs of the head, [examples, classes].
    """
    from unmask.representation.classifier import class_logits, classifier_of, fine_tune
    from unmask.training.fine_tune import FineTuning

    settings: dict[str, Any] = {} if options.pooling is None else {"pooling": options.pooling}
    classifier = classifier_of(
        model,
        data.task.classes,
        seed=seed,
        names=data.task.labels,
        frozen=options.frozen,
        **settings,
    )
    training = FineTuning(
        lr=options.lr,
        epochs=options.epochs,
        batch=options.batch,
        precision=options.training_precision,
        seed=seed,
    )
    fine_tune(classifier, data.train.sentences, data.train.targets, training, length=options.length)
    return class_logits(classifier, data.dev.sentences, length=options.length).numpy()


def summarised(
    task: str,
    by_seed: list[float],
    detail: dict[str, list[float]],
    train: int | None,
    dev: int | None,
    note: str,
) -> GlueRow:
    """The row of a task from its score at each seed."""
    from unmask.extensions.glue.class_scores import median_interval

    middle, low, high = median_interval(by_seed)
    known = len(by_seed) >= 5
    return GlueRow(
        task,
        middle,
        low if known else None,
        high if known else None,
        ", ".join(detail),
        train,
        dev,
        len(by_seed),
        tuple(by_seed),
        detail or None,
        note=note,
    )
