"""FASTA and 2bit as forms of files: reading for training, and FASTA for generated sequences."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.registered_forms import FILE_FORMS, FileForm
from unmask.extensions.dna.fasta import (
    SUFFIXES,
    TWO_BIT,
    check_bgzip,
    genome_documents,
    is_fasta,
    read_fasta,
    read_two_bit,
)
from unmask.vocabulary import Vocabulary

_WIDTH = 60  # bases in a line of FASTA


@FILE_FORMS.register("fasta")
class Fasta(FileForm):
    """Sequences of nucleotides with names."""

    suffixes = SUFFIXES
    writes = True

    @classmethod
    def matches(cls, head: bytes) -> bool:
        return is_fasta(head)

    @classmethod
    def check(cls, path: Path) -> None:
        check_bgzip(path)

    @classmethod
    def documents(
        cls, content: Any, name: str, fields: Fields, faults: ReadErrors
    ) -> Iterator[str]:
        return genome_documents(read_fasta(content, name), name, fields, faults)

    @classmethod
    def suits(cls, vocabulary: Vocabulary) -> bool:
        return vocabulary.complement_ids is not None

    @classmethod
    def record(cls, text: str, number: int, seed: int, label: str | None) -> str:
        about = "" if label is None else f" label={label}"
        body = [text[start : start + _WIDTH] for start in range(0, len(text), _WIDTH)]
        return "\n".join([f">sequence_{number} length={len(text)} seed={seed}{about}", *body])


@FILE_FORMS.register("2bit")
class TwoBit(FileForm):
    """Sequences of nucleotides in two bits each."""

    suffixes = (".2bit",)
    magic = TWO_BIT

    @classmethod
    def documents(
        cls, content: Any, name: str, fields: Fields, faults: ReadErrors
    ) -> Iterator[str]:
        return genome_documents(read_two_bit(content), name, fields, faults)
