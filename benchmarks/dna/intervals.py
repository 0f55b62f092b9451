"""Intervals of sequences in a genome: a BED file of every place at which one of them occurs, on either strand.

    python benchmarks/dna intervals GENOME.fa.xz genomic-benchmarks-subset.tar.xz --out exclude.bed

The coordinates of the Genomic Benchmarks are those of GRCh38. Their intervals in another assembly are found by content.
"""

import csv
import io
import lzma
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.room import script_parser
from unmask.extensions.dna.dna_tokenizer import reverse_complement

K = 24  # bases that find the candidates; a shorter sequence has no interval
_BLOCK = 1 << 22  # positions of the genome that are read at a time


def codes(bases: bytes) -> NDArray[np.uint8]:
    """Bases as numbers, 4 for all but A, C, G and T."""
    table = np.full(256, 4, np.uint8)
    table[list(b"ACGT")] = range(4)
    return table[np.frombuffer(bases, np.uint8)]


def kmers(bases: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The K-mer at each position as a number; -1 if it contains N."""
    count = max(0, len(bases) - K + 1)
    found, whole = np.zeros(count, np.int64), np.ones(count, bool)
    for shift in range(K):
        part = bases[shift : shift + count]
        found += part.astype(np.int64) << 2 * shift
        whole &= part < 4
    return np.where(whole, found, -1)


def intervals(genome: bytes, sequences: Iterable[str]) -> set[tuple[int, int]]:
    """Start and end of every place of the genome that equals a sequence or its reverse complement."""
    wanted: dict[int, list[tuple[int, bytes]]] = {}
    for sequence in sequences:
        for strand in (sequence.upper(), reverse_complement(sequence.upper())):
            found = kmers(codes(strand.encode()))
            known = np.flatnonzero(found >= 0)
            if len(known):
                at = int(known[0])
                wanted.setdefault(int(found[at]), []).append((at, strand.encode()))
    keys, places = np.array(sorted(wanted)), set()
    for start in range(0, len(genome), _BLOCK):
        found = kmers(codes(genome[start : start + _BLOCK + K - 1]))
        nearest = np.searchsorted(keys, found).clip(max=len(keys) - 1)
        for position in np.flatnonzero(keys[nearest] == found).tolist():
            for at, strand in wanted[int(found[position])]:
                first = start + position - at
                if genome[first : first + len(strand)] == strand:
                    places.add((first, first + len(strand)))
    return places


def chromosome(path: Path) -> bytes:
    """The bases of a FASTA file with one record, plain or xz."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rb") as file:
        _, _, bases = file.read().partition(b"\n")
    return bases.replace(b"\n", b"").upper()


def test_sequences(archive: Path) -> list[str]:
    """The sequences of the test part of every benchmark."""
    found = []
    with tarfile.open(archive) as members:
        for member in members:
            content = members.extractfile(member)
            if content is not None and member.name.endswith(".test.tsv"):
                lines = io.StringIO(content.read().decode())
                found += [row["sequence"] for row in csv.DictReader(lines, delimiter="\t")]
    return found


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("genome", type=Path, help="FASTA file with one record")
    add("archive", type=Path, help="tar archive of TASK.test.tsv")
    add("--name", default="20", help="name of the chromosome")
    add("--out", type=Path, required=True, help="BED file")
    args = parser.parse_args()
    found = sorted(intervals(chromosome(args.genome), test_sequences(args.archive)))
    args.out.write_text("".join(f"{args.name}\t{start}\t{end}\n" for start, end in found))
