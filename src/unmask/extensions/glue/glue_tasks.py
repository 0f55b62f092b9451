"""The tasks of GLUE (Wang et al., 2018) and the reader of their files."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.errors import UnmaskError, unknown
from unmask.files.untrusted import foreign_text

Sentence = str | tuple[str, str]
_PARTS = 5  # a task without training file: one of this many parts is held out


@dataclass(frozen=True)
class GlueTask:
    """Files, columns and scores of a task. Its score is the mean of its scores, as in GLUE."""

    name: str
    sentences: tuple[str, ...]  # columns by name, or by number in a file without a header
    label: str
    labels: tuple[str, ...]  # class names in order; () is a regression
    scores: tuple[str, ...] = ("accuracy",)
    train: tuple[str, ...] = ("train.tsv",)  # the first one that exists
    dev: str = "dev.tsv"
    header: bool = True
    largest: float = 5.0  # of a regression

    @property
    def classes(self) -> int:
        """Number of outputs of a head for this task."""
        return len(self.labels) or 1


_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")

TASKS = {
    task.name: task
    for task in (
        GlueTask("CoLA", ("3",), "1", _BINARY, ("matthews",), header=False),
        GlueTask("SST-2", ("sentence",), "label", _BINARY),
        GlueTask(
            "MRPC",
            ("#1 String", "#2 String"),
            "Quality",
            _BINARY,
            ("f1", "accuracy"),
            train=("train_rebuilt.tsv", "train.tsv"),
        ),
        GlueTask("RTE", ("sentence1", "sentence2"), "label", _ENTAILMENT),
        GlueTask("STS-B", ("sentence1", "sentence2"), "score", (), ("pearson", "spearman")),
        GlueTask("QNLI", ("question", "sentence"), "label", _ENTAILMENT),
        GlueTask("QQP", ("question1", "question2"), "is_duplicate", _BINARY, ("f1", "accuracy")),
        GlueTask(
            "MNLI",
            ("sentence1", "sentence2"),
            "gold_label",
            ("entailment", "neutral", "contradiction"),
            dev="dev_matched.tsv",
        ),
    )
}


@dataclass(frozen=True)
class Examples:
    """Sentences with their labels: class numbers, or scores of a regression."""

    sentences: list[Sentence]
    targets: list[float]

    def __len__(self) -> int:
        return len(self.sentences)

    def first(self, limit: int | None) -> "Examples":
        """The first examples, or all of them without a limit."""
        return Examples(self.sentences[:limit], self.targets[:limit])


@dataclass(frozen=True)
class TaskData:
    """Training and development examples of a task."""

    task: GlueTask
    train: Examples
    dev: Examples
    note: str = ""  # difference from the task's own parts

    def limited(self, limit: int | None) -> "TaskData":
        """The first examples of both parts."""
        return replace(self, train=self.train.first(limit), dev=self.dev.first(limit))


def tasks_named(names: Sequence[str] | None) -> list[GlueTask]:
    """The tasks of some names, in any case; all tasks without names."""
    if not names:
        return list(TASKS.values())
    known = {name.lower(): task for name, task in TASKS.items()}
    known |= {name.replace("-", ""): task for name, task in known.items()}
    for name in names:
        if name.lower() not in known:
            raise unknown("task of GLUE", name, TASKS)
    return [known[name.lower()] for name in names]


def read_task(folder: Path, task: GlueTask) -> TaskData | None:
    """The examples of a task; None if the folder of GLUE has no folder of the task.

    A task with a development file and no training file is split: a fifth of its first sentences,
    with all pairs that share them, is held out.

    Args:
        folder: The folder of GLUE, with a folder for each task.
        task: The task.

    Returns:
        The examples.
    """
    home = folder / task.name
    if not home.is_dir():
        return None
    if not (home / task.dev).is_file():
        raise UnmaskError(f"{home} has no {task.dev}: put the development file there")
    dev = _read(home / task.dev, task)
    found = next((home / name for name in task.train if (home / name).is_file()), None)
    if found is not None:
        return TaskData(task, _read(found, task), dev)
    held = [zlib.crc32(_first(each).encode()) % _PARTS == 0 for each in dev.sentences]
    train = _where(dev, [not out for out in held])
    if not len(train) or len(train) == len(dev):
        raise UnmaskError(f"{home} has no {task.train[-1]}: put the training file there")
    note = (
        f"no {task.train[-1]}: {task.dev} is split into {len(train):,} and {sum(held):,} examples"
    )
    return TaskData(task, train, _where(dev, held), note)


def _first(sentence: Sentence) -> str:
    return sentence if isinstance(sentence, str) else sentence[0]


def _where(examples: Examples, kept: Sequence[bool]) -> Examples:
    rows = [i for i, keep in enumerate(kept) if keep]
    return Examples([examples.sentences[i] for i in rows], [examples.targets[i] for i in rows])


def _read(path: Path, task: GlueTask) -> Examples:
    """The examples of a tab-separated file. Quotes have no meaning in these files."""
    try:
        text = foreign_text(path)
    except UnicodeDecodeError:
        raise UnmaskError(f"{path} is not UTF-8 text: download it again") from None
    lines = text.removeprefix("\ufeff").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    columns = {str(i): i for i in range(100)}
    start = 0
    if task.header:
        columns, start = {name: i for i, name in enumerate(lines[0].split("\t"))}, 1
    for name in (*task.sentences, task.label):
        if name not in columns:
            raise UnmaskError(f"{path} has no column {name!r}: it is no file of {task.name}")
    at = [columns[name] for name in task.sentences]
    sentences: list[Sentence] = []
    targets: list[float] = []
    for number, line in enumerate(lines[start:], start=start + 1):
        if not line:
            continue
        fields = line.split("\t")
        if len(fields) <= max(*at, columns[task.label]):
            raise UnmaskError(f"{path}, line {number}: a column is missing; download it again")
        sides = [fields[i] for i in at]
        if not all(side.strip() for side in sides):
            raise UnmaskError(f"{path}, line {number}: a sentence is empty; remove the line")
        sentences.append((sides[0], sides[1]) if len(sides) == 2 else sides[0])
        targets.append(_target(fields[columns[task.label]], task, f"{path}, line {number}"))
    if not sentences:
        raise UnmaskError(f"{path} has no examples: download it again")
    return Examples(sentences, targets)


def _target(text: str, task: GlueTask, where: str) -> float:
    """The number of a class, or a score; an error if it is out of range."""
    if task.labels:
        if text not in task.labels:
            raise UnmaskError(f"{where}: label {text!r} is none of {', '.join(task.labels)}")
        return task.labels.index(text)
    try:
        value = float(text)
    except ValueError:
        raise UnmaskError(f"{where}: score {text!r} is no number") from None
    if not 0 <= value <= task.largest:
        raise UnmaskError(f"{where}: score {text} is outside 0 … {task.largest:g}")
    return value
