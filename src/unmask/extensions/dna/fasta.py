"""Sequences of FASTA and 2bit files, cut into documents for windows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.documents.regions import chromosome
from unmask.data.sources.line_reader import DAMAGE, opened
from unmask.errors import UnmaskError
from unmask.imports import extra

SUFFIXES = (".fa", ".fasta", ".fna", ".ffn", ".fas")
TWO_BIT = (b"\x1a\x41\x27\x43", b"\x43\x27\x41\x1a")  # the first bytes in both byte orders
BASES = b"ACGTN"
AMBIGUOUS = b"RYSWKMBDHV"  # IUPAC codes of several bases
_TO_N = bytes.maketrans(AMBIGUOUS, b"N" * len(AMBIGUOUS))
_FASTA = re.compile(rb">\S[^\n]*\n[ACGTUNacgtun]+\s*(\n|$)")
_BGZIP = re.compile(rb"\x1f\x8b\x08\x04.{8}BC\x02\x00", re.DOTALL)
_BGZIP_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_BLOCK = 64  # windows of a document: train and validation parts are divided between documents


def is_fasta(head: bytes) -> bool:
    """True if a file begins with a FASTA record of nucleotides."""
    return bool(_FASTA.match(head))


def check_bgzip(path: Path) -> None:
    """Raises an error for a bgzip file without its end mark:
    gzip reads such a file without error.
    """
    with path.open("rb") as file:
        if not _BGZIP.match(file.read(16)):
            return
        file.seek(-min(len(_BGZIP_END), path.stat().st_size), 2)
        if file.read() != _BGZIP_END:
            raise UnmaskError(f"{path} is cut short: it lacks the end mark of bgzip; copy it again")


def read_fasta(stream: Any, name: str) -> Iterator[tuple[str, str]]:
    """Name and bases of each record, in upper case, with N for IUPAC codes of several bases.

    Args:
        stream: a binary stream of lines.
        name: the name of the file, for errors.
    """
    seen: set[str] = set()
    record, bases = "", bytearray()
    try:
        for number, line in enumerate(stream, start=1):
            if not line.startswith(b">"):
                if not record and not line.isspace():
                    raise UnmaskError(f"{name}:{number} is no FASTA: a record begins with >NAME")
                bases += b"".join(line.split())
                continue
            if record:
                yield record, checked_bases(bytes(bases), f"{name}, record {record}")
            words = line[1:].split()
            if not words:
                raise UnmaskError(f"{name}:{number} has no name: write >NAME")
            record, bases = words[0].decode("utf-8", "replace"), bytearray()
            if record in seen:
                raise UnmaskError(
                    f"{name}:{number}: a second record has the name {record}: rename one of them"
                )
            seen.add(record)
    except (*DAMAGE, OSError) as error:
        after = f" in record {record}" if record else ""
        raise UnmaskError(
            f"{name} is damaged or cut short{after}: {error}; copy it again"
        ) from None
    if not record:
        raise UnmaskError(f"{name} holds no FASTA record: a record begins with >NAME")
    yield record, checked_bases(bytes(bases), f"{name}, record {record}")


def checked_bases(bases: bytes, location: str) -> str:
    """The bases of a record in upper case, with N for ambiguous ones; an error if it is no DNA."""
    bases = bases.upper()
    if not bases:
        raise UnmaskError(f"{location} is empty: remove it")
    other = bases.translate(None, BASES + AMBIGUOUS)
    if other:
        letter, place = other[:1].decode("latin-1"), bases.index(other[:1]) + 1
        found = f"{location} has {letter!r} at position {place:,}"
        if letter == "U":
            raise UnmaskError(f"{found}: it is RNA; replace U by T")
        if letter in "-.":
            raise UnmaskError(f"{found}: it is an alignment; remove the gaps")
        kind = "it may be protein" if letter in "EFILPQXZJO*" else "this is no base"
        raise UnmaskError(f"{found}: {kind}; give DNA of A, C, G, T, N and IUPAC codes")
    if 2 * len(bases.translate(None, BASES)) > len(bases):
        raise UnmaskError(
            f"{location} has more ambiguity codes than bases: it may be protein; give DNA"
        )
    return bases.translate(_TO_N).decode("ascii")


def read_two_bit(path: Path) -> Iterator[tuple[str, str]]:
    """Name and bases of each sequence of a 2bit file, in upper case."""
    library = extra("twobitreader", str(path), "dna")
    try:
        with library.TwoBitFile(str(path)) as file:
            for record in file:
                yield record, checked_bases(str(file[record]).encode(), f"{path}, record {record}")
    except UnmaskError:
        raise
    except Exception as error:  # the library raises struct.error, IndexError and its own
        raise UnmaskError(f"{path} is damaged or no 2bit file: {error}") from None


def read_genome(path: Path) -> dict[str, str]:
    """The bases of each chromosome of a FASTA or 2bit file; its name has no "chr" in front."""
    if not path.is_file():
        raise UnmaskError(f"no FASTA file {path}")
    with path.open("rb") as file:
        two_bit = file.read(4) in TWO_BIT
    if two_bit:
        return {chromosome(name): bases for name, bases in read_two_bit(path)}
    check_bgzip(path)
    with opened(path) as stream:
        return {chromosome(name): bases for name, bases in read_fasta(stream, str(path))}


def genome_documents(
    records: Iterator[tuple[str, str]], name: str, fields: Fields, faults: ReadErrors
) -> Iterator[str]:
    """The documents of a genome: its records or intervals, cut into blocks of windows.

    A record that is shorter than a window counts as a read error. A shorter interval is left out.
    """
    for record, bases in records:
        location = f"{name}, record {record}"
        for start, end in fields.regions.spans(record, len(bases), location):
            faults.seen += 1
            if end - start >= fields.window:
                yield from _blocks(bases, start, end, fields.window)
            elif end - start == len(bases):
                faults.add(
                    f"{location} has {len(bases):,} bases, fewer than a window of "
                    f"{fields.window:,}: lower data.length or set data.packing pad"
                )


def _blocks(bases: str, start: int, end: int, window: int) -> Iterator[str]:
    """A span, whole or in blocks of windows; a short rest belongs to the last block."""
    size = _BLOCK * window or end - start
    for first in range(start, end, size):
        yield bases[first : min(first + size, end)]
