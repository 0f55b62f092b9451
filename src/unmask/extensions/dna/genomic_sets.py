"""Files of the Genomic Benchmarks: labelled sequences with their official test part."""

import csv
import io
import random
import tarfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from unmask.errors import UnmaskError
from unmask.extensions.dna.fasta import checked_bases

# official rows of the training and test parts
OFFICIAL = {
    "human_enhancers_cohn": (20_843, 6_948),
    "human_enhancers_ensembl": (123_872, 30_970),
    "human_ensembl_regulatory": (231_348, 57_713),
    "human_nontata_promoters": (27_097, 9_034),
    "human_ocr_ensembl": (139_804, 34_952),
}
FEWEST = 50  # training rows of a class without which a task measures nothing
Labelled = list[tuple[str, int]]  # sequences with the number of their class


@dataclass(frozen=True)
class Examples:
    """Training and test rows of a task; `rows` counts those of the files."""

    classes: tuple[str, ...]
    train: Labelled
    test: Labelled
    rows: int
    fewest: int  # training rows of the smallest class


def read_task(source: Path, task: str, limit: int = 0) -> Examples | None:
    """The rows of a task; None if its files are not there.

    Args:
        source: a folder of TASK.train.tsv and TASK.test.tsv with the columns label and sequence, or
            an archive of them. A folder may hold the archive.
        task: the name of the task.
        limit: most rows of each part, chosen at random with a fixed seed; 0 takes all.

    Returns:
        The rows with classes in alphabetical order.
    """
    if not source.exists():
        raise UnmaskError(f"no folder or archive {source}: give the files of the benchmarks")
    parts = {}
    for part in ("train", "test"):
        content = _content(source, f"{task}.{part}.tsv")
        if content is None:
            return None
        parts[part] = _labelled(content, f"{source}/{task}.{part}.tsv")
    classes = tuple(sorted({label for _, label in parts["train"]}))
    other = {label for _, label in parts["test"]} - set(classes)
    if other or len(classes) < 2:
        raise UnmaskError(f"{source}: the classes of {task} differ between training and test rows")
    chosen = {}
    for part, rows in parts.items():
        some = random.Random(0).sample(rows, limit) if 0 < limit < len(rows) else rows
        chosen[part] = [(sequence, classes.index(label)) for sequence, label in some]
    fewest = min(Counter(label for _, label in parts["train"]).values())
    return Examples(classes, chosen["train"], chosen["test"], sum(map(len, parts.values())), fewest)


def _content(source: Path, name: str) -> str | None:
    """The text of a file in a folder, in an archive, or in an archive in a folder."""
    if source.is_dir():
        if (source / name).is_file():
            return (source / name).read_text(encoding="utf-8")
        archives = sorted(source.glob("genomic-benchmarks*.tar*"))
        return _content(archives[0], name) if archives else None
    try:
        with tarfile.open(source) as archive:
            for member in archive:
                if member.isreg() and Path(member.name).name == name:
                    file = archive.extractfile(member)
                    assert file is not None
                    return file.read().decode("utf-8")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UnmaskError(f"{source} is no archive or a damaged one: {error}") from None
    return None


def _labelled(content: str, name: str) -> list[tuple[str, str]]:
    """Sequence and label of each line."""
    found = []
    reader = csv.DictReader(io.StringIO(content), delimiter="\t", quoting=csv.QUOTE_NONE)
    if not {"label", "sequence"} <= set(reader.fieldnames or ()):
        raise UnmaskError(f"{name} has no columns label and sequence")
    for number, row in enumerate(reader, start=2):
        bases = checked_bases((row["sequence"] or "").encode(), f"{name}:{number}")
        found.append((bases, row["label"]))
    if not found:
        raise UnmaskError(f"{name} holds no rows")
    return found
