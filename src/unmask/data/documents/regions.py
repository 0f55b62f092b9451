"""Intervals of chromosomes: the parts of a genome to read and to leave out."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from unmask.errors import UnmaskError

Interval = tuple[str, int, int]  # chromosome, start, end
Span = tuple[int, int]  # start and end in bases, from 0, without the end
Spans = dict[str, list[Span]]  # sorted spans of each chromosome, without overlaps


@dataclass(frozen=True)
class Regions:
    """The parts of a genome to read: all of it or some intervals, less the excluded intervals.

    A chromosome has the same name with and without "chr" in front.
    """

    source: str = ""  # BED files of the intervals, for errors
    intervals: Spans | None = None  # None: all of the genome
    exclude: Spans = field(default_factory=dict)
    seen: set[str] = field(default_factory=set, compare=False)  # chromosomes of the genome

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def of(
        cls, source: str, intervals: Iterable[Interval] | None, exclude: Iterable[Interval]
    ) -> "Regions":
        """The regions of intervals, which may overlap; `source` names their files."""
        return cls(source, None if intervals is None else _merged(intervals), _merged(exclude))

    @property
    def digest(self) -> str:
        """A hash of the intervals; empty without any."""
        if not self.source:
            return ""
        content = repr((self.intervals, sorted(self.exclude.items())))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def check_used(self, genome: str) -> None:
        """Raises an error if no interval is on a chromosome of the genome, which has been read."""
        named = {*(self.intervals or ()), *self.exclude}
        if named and not named & self.seen:
            some = [", ".join(sorted(names)[:3]) or "none" for names in (named, self.seen)]
            raise UnmaskError(
                f"{self.source} names chromosomes that {genome} lacks ({some[0]}; the genome has "
                f"{some[1]}): give intervals of this genome"
            )

    def spans(self, name: str, length: int, location: str) -> list[Span]:
        """The spans of a chromosome to read; an error if an interval ends behind the chromosome."""
        key = chromosome(name)
        self.seen.add(key)
        wanted = [(0, length)] if self.intervals is None else self.intervals.get(key, [])
        left_out = self.exclude.get(key, [])
        last = max((end for _, end in chain(wanted, left_out)), default=0)
        if last > length:
            raise UnmaskError(
                f"an interval of {self.source} ends at {last:,}, but {location} has {length:,} "
                "bases: give intervals of the same genome assembly"
            )
        return [part for span in wanted for part in _without(span, left_out)]


def chromosome(name: str) -> str:
    """The name of a chromosome without "chr" in front."""
    return name[3:] if name[:3].lower() == "chr" and len(name) > 3 else name


def _merged(intervals: Iterable[Interval]) -> Spans:
    spans: Spans = {}
    for name, start, end in sorted(intervals):
        known = spans.setdefault(name, [])
        if known and start <= known[-1][1]:
            known[-1] = known[-1][0], max(known[-1][1], end)
        else:
            known.append((start, end))
    return spans


def _without(span: Span, left_out: list[Span]) -> Iterator[Span]:
    """The parts of a span outside the spans `left_out`, which are sorted."""
    start, last = span
    for a, b in left_out:
        if b <= start or a >= last:
            continue
        if a > start:
            yield start, a
        start = b
    if start < last:
        yield start, last
