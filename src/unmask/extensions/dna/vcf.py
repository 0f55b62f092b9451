"""Variants of VCF and TSV files, checked against the genome."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from unmask.data.documents.read_errors import ReadErrors
from unmask.data.documents.regions import chromosome
from unmask.data.sources.line_reader import decoded_lines, opened
from unmask.errors import UnmaskError

_VCF = ("chrom", "pos", "id", "ref", "alt")
_NEEDED = ("chrom", "pos", "ref", "alt")


@dataclass(frozen=True)
class Variant:
    """One alternative allele. `pos` is the position of the first reference base, from 1."""

    chrom: str
    pos: int
    id: str
    ref: str
    alt: str


def read_variants(path: Path, genome: Mapping[str, str], fasta: str) -> list[Variant]:
    """The variants of a VCF or TSV file, one for each alternative allele.

    Symbolic alleles such as <DEL> and the allele * are left out.

    Args:
        path: the file, plain or compressed. A TSV file names its columns chrom, pos, ref and alt.
        genome: the bases of each chromosome, from `read_genome`.
        fasta: the name of the genome's file, for errors.

    Returns:
        The variants in the order of the file; each reference allele agrees with the genome.
    """
    if not path.is_file():
        raise UnmaskError(f"no VCF file {path}")
    found = []
    with opened(path) as stream:
        lines = decoded_lines(stream, str(path), ReadErrors())
        for number, fields in _records(lines, str(path)):
            location = f"{path}:{number}"
            for alt in fields["alt"].split(","):
                variant = _variant(fields | {"alt": alt}, location)
                _check(variant, genome, fasta, location)
                if alt.upper().strip("ACGT") == "" and alt.upper() != variant.ref:
                    found.append(variant)
                elif alt.upper().strip("ACGTN") == "" or alt[:1] not in "<*.[]":
                    raise UnmaskError(
                        f"{location}: ALT is {alt[:20]!r}: give other bases of A, C, G and T than REF"
                    )
    if not found:
        raise UnmaskError(f"{path} holds no variant with bases: give REF and ALT as bases")
    return found


def _records(lines: Iterator[str | None], name: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and fields of each record."""
    columns: tuple[str, ...] = ()
    for number, line in enumerate(lines, start=1):
        text = (line or "").rstrip("\n")
        if not text or text.startswith("##"):
            continue
        fields = text.split("\t")
        if not columns:
            columns = tuple(field.lstrip("#").lower() for field in fields)
            if missing := [field for field in _NEEDED if field not in columns]:
                raise UnmaskError(
                    f"{name}:{number} has no column {missing[0]}: give a VCF, or a TSV whose first "
                    "line names chrom, pos, ref and alt"
                )
            continue
        if len(fields) < len(_VCF) and len(fields) < len(columns):
            raise UnmaskError(f"{name}:{number} has {len(fields)} fields: separate them by tabs")
        yield number, dict(zip(columns, fields, strict=False))


def _variant(fields: Mapping[str, str], location: str) -> Variant:
    pos = fields["pos"]
    if not (pos.isascii() and pos.isdigit()) or int(pos) < 1:
        raise UnmaskError(f"{location}: POS is {pos[:20]!r}: give a position from 1")
    ref = fields["ref"].upper()
    if not ref or ref.strip("ACGTN"):
        raise UnmaskError(f"{location}: REF is {ref[:20]!r}: give bases of A, C, G and T")
    return Variant(fields["chrom"], int(pos), fields.get("id", "."), ref, fields["alt"].upper())


def _check(variant: Variant, genome: Mapping[str, str], fasta: str, location: str) -> None:
    """Raises an error if the genome has another base at the position of the variant."""
    bases = genome.get(chromosome(variant.chrom))
    if bases is None:
        raise UnmaskError(f"{location}: {fasta} has no chromosome {variant.chrom}")
    end = variant.pos - 1 + len(variant.ref)
    if end > len(bases):
        raise UnmaskError(
            f"{location}: the variant ends at {end:,}, but {variant.chrom} of {fasta} has "
            f"{len(bases):,} bases"
        )
    here = bases[variant.pos - 1 : end]
    if here != variant.ref:
        raise UnmaskError(
            f"{location}: REF is {variant.ref[:20]} at {variant.chrom}:{variant.pos}, but {fasta} has "
            f"{here[:20]}: give variants of this genome assembly"
        )
