"""Intervals of BED files."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from unmask.data.documents.read_errors import ReadErrors
from unmask.data.documents.regions import Interval, Regions, chromosome
from unmask.data.sources.line_reader import decoded_lines, opened
from unmask.errors import UnmaskError


def read_regions(intervals: str, exclude: Iterable[str] = ()) -> Regions:
    """The regions of BED files.

    Args:
        intervals: the BED file of the intervals to read; "" for all of the genome.
        exclude: BED files of the intervals to leave out; empty names are ignored.

    Returns:
        The regions, without overlaps.
    """
    left_out = [name for name in exclude if name]
    return Regions.of(
        ", ".join(filter(None, (intervals, *left_out))),
        read_bed(Path(intervals)) if intervals else None,
        chain.from_iterable(read_bed(Path(name)) for name in left_out),
    )


def read_bed(path: Path) -> Iterator[Interval]:
    """Chromosome, start and end of each line of a BED file, plain or compressed."""
    if not path.is_file():
        raise UnmaskError(f"no BED file {path}")
    empty = True
    with opened(path) as stream:
        for number, line in enumerate(decoded_lines(stream, str(path), ReadErrors()), start=1):
            parts = (line or "").split()
            if not parts or parts[0].startswith("#") or parts[0] in ("track", "browser"):
                continue
            try:
                start, end = int(parts[1]), int(parts[2])
            except (IndexError, ValueError):
                start = end = -1
            if not 0 <= start < end:
                raise UnmaskError(
                    f"{path}:{number} is no BED interval: give chromosome, start and a larger end"
                )
            empty = False
            yield chromosome(parts[0]), start, end
    if empty:
        raise UnmaskError(f"{path} holds no intervals")
