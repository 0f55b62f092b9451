"""Genomes: FASTA files, BED intervals, windows, and the other strand."""

import gzip
import lzma
import struct

import numpy as np
import pytest
import torch

from unmask.config.run_config import resolve
from unmask.data.load import load_data, rows_from
from unmask.data.loader import Loader, ReverseComplement
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.errors import UnmaskError
from unmask.extensions.dna.dna_tokenizer import DnaTokenizer, reverse_complement

GENOME = {
    name: "".join(np.random.default_rng(seed).choice(list("ACGT"), 4000))
    for seed, name in enumerate(("chr1", "chr2"))
}
BGZIP_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


def fasta(records: dict[str, str], width: int = 60) -> str:
    lines = []
    for name, bases in records.items():
        lines += [f">{name} a genome"]
        lines += [bases[start : start + width] for start in range(0, len(bases), width)]
    return "\n".join(lines) + "\n"


def config(path, **settings):
    plain = {"train": path, "tokenizer.kind": "dna", "length": 16, "packing": "windows"}
    return resolve({}, {f"data.{name}": value for name, value in (plain | settings).items()}).data


def load(path, **settings):
    return load_data(config(str(path), **settings))


def texts(rows, tokenizer) -> list[str]:
    x, _ = rows[range(len(rows))]
    return [tokenizer.decode(row) for row in x]


@pytest.fixture
def genome(tmp_path):
    path = tmp_path / "genome.fa"
    path.write_text(fasta(GENOME))
    return path


def bed(path, *intervals: str) -> str:
    path.write_text("track name=x\n" + "".join(f"{line}\n" for line in intervals))
    return str(path)


def bgzip(content: bytes) -> bytes:
    """Two gzip members with bgzip's extra field, and its end mark."""
    blocks = b""
    for part in (content[:5000], content[5000:]):
        member = bytearray(gzip.compress(part, mtime=0))
        extra = b"\x06\x00BC\x02\x00" + (len(member) + 7).to_bytes(2, "little")
        member[3] = 4
        blocks += bytes(member[:10]) + extra + bytes(member[10:])
    return blocks + BGZIP_END


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bgzip])
def test_every_base_is_in_one_window_however_the_file_is_compressed(tmp_path, pack):
    path = tmp_path / "genome.fa.packed"
    path.write_bytes(pack(fasta(GENOME).lower().replace(">CHR", ">chr").encode()))
    data = load(path)
    found = [*texts(data.train, data.tokenizer), *texts(data.valid, data.tokenizer)]
    windows = [
        bases[start : start + 16] for bases in GENOME.values() for start in range(0, 4000, 16)
    ]
    assert sorted(found) == sorted(windows)
    assert data.train.tokens + data.valid.tokens == 8000 == data.train.bytes + data.valid.bytes
    assert 0.05 < len(data.valid) / len(found) < 0.3
    assert data.tokenizer.vocabulary.bos_id is None


def test_held_out_intervals_and_excluded_ones_are_not_trained_on(genome, tmp_path):
    data = load(
        genome,
        intervals=bed(tmp_path / "train.bed", "1\t0\t2000", "chr1\t1600\t3200", "chr9\t0\t10"),
        holdout_intervals=bed(tmp_path / "valid.bed", "chr1\t320\t480", "chr2\t0\t64"),
        exclude=bed(tmp_path / "test.bed", "chr1\t1000\t1500"),
    )
    one, two = GENOME["chr1"], GENOME["chr2"]
    assert "".join(texts(data.valid, data.tokenizer)) == one[320:480] + two[:64]
    trained = "".join(texts(data.train, data.tokenizer))
    assert trained == one[:320] + one[480:1000] + one[1500:3200]
    other = load(genome, exclude=bed(tmp_path / "test.bed", "chr1\t0\t3984"))
    assert other.train.tokens + other.valid.tokens == 4016  # the cache does not mix up intervals


def test_n_is_padding(tmp_path):
    path = tmp_path / "gaps.fa"
    path.write_text(fasta({"1": "ACGTRACG" + "N" * 40 + "ACGTACGT" + "ACGTACGTACGTACGT" * 70}))
    data = load(path)
    rows = rows_from(str(path), data.tokenizer, config(str(path)))
    x, valid = rows[range(len(rows))]
    assert rows.tokens == int(valid.sum()) == rows.characters == 7 + 8 + 16 * 70
    assert rows.counted([0, 1, 71]).tolist() == [7, 16, 8] == valid[[0, 1, 71]].sum(1).tolist()
    assert len(rows) == 72  # two windows of N are left out
    assert data.tokenizer.decode(x[0]) == "ACGTNACG" + "N" * 8
    assert not valid[x == data.tokenizer.encode("N")[0]].any()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (">p\nMKTAYIAKQRQISFVK\n", "'I' at position 6: it may be protein"),
        (">p\nMKVSRHDWKY\n", "more ambiguity codes than bases: it may be protein"),
        (">r\nACGUACGUACGUACGUACGU\n", "'U' at position 4: it is RNA; replace U by T"),
        (">a\nACGT--ACGTACGTACGTACGT\n", "it is an alignment; remove the gaps"),
        (">a\nACGTACGTACGTACGTACGT\n>b\n", "record b is empty: remove it"),
        (">a\n>b\nACGTACGTACGTACGTACGT\n", "record a is empty: remove it"),
        (">a x\nACGTACGTACGTACGTACGT\n>a y\nACGT\n", "a second record has the name a"),
        ("ACGTACGT\n>a\nACGT\n", ":1 is no FASTA: a record begins with >NAME"),
        (">\nACGT\n", ":1 has no name"),
        (">a\nACGTACGT\n>b\nACGT\n", "record a has 8 bases, fewer than a window of 16"),
    ],
)
def test_a_bad_fasta_is_one_line_and_leaves_no_rows(tmp_path, content, message):
    path = tmp_path / "bad.fa"
    path.write_text(content)
    with pytest.raises(UnmaskError, match=message) as error:
        load(path, cache=str(tmp_path / "rows"))
    assert "\n" not in str(error.value) and "bad.fa" in str(error.value)
    assert not [file for file in (tmp_path / "rows").glob("*") if file.suffix == ".rows"]


def test_a_file_that_is_cut_short_is_an_error(tmp_path):
    whole, path = fasta(GENOME).encode(), tmp_path / "genome.fa.gz"
    path.write_bytes(gzip.compress(whole)[:-900])
    with pytest.raises(UnmaskError, match="damaged or cut short in record chr2"):
        load(path)
    path.write_bytes(bgzip(whole)[: -len(BGZIP_END)])  # gzip alone reads it without an error
    with pytest.raises(UnmaskError, match="cut short: it lacks the end mark of bgzip"):
        load(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("chr1\t100\t4001", r"ends at 4,001, but .*record chr1 has 4,000 bases"),
        ("chr1\t100\t100", "bed:2 is no BED interval"),
        ("chr1\t100", "bed:2 is no BED interval"),
        ("chr7\t1\t100", "names chromosomes that .*genome.fa lacks"),
    ],
)
def test_bad_intervals_are_one_line(genome, tmp_path, line, message):
    with pytest.raises(UnmaskError, match=message):
        load(genome, exclude=bed(tmp_path / "x.bed", line))


def test_a_record_is_one_document_with_other_packings(tmp_path):
    path = tmp_path / "short.fa"
    path.write_text(fasta({str(i): "ACGT" * i for i in range(1, 40)}))
    data = load(path, packing="pad", length=24)
    x, valid = data.valid[[0]]
    v = data.tokenizer.vocabulary
    assert x[0][valid[0]].tolist() == [v.bos_id, *data.tokenizer.encode("ACGT"), v.eos_id]


def test_the_other_strand_is_a_function_of_seed_step_and_row(tmp_path):
    path = tmp_path / "short.fa"
    path.write_text(fasta({str(i): f"AACN{'ACG' * (i % 4)}T" for i in range(40)}))
    data = load(path, packing="pad", length=24)
    tokenizer = data.tokenizer
    plain = Loader(data.train, 16, 3)
    half = Loader(data.train, 16, 3, strands=ReverseComplement(tokenizer, 0.5))
    turned = 0
    for step in range(4):
        x, valid = plain.batch(step, range(16))
        other, real = half.batch(step, range(16))
        part = half.batch(step, range(5, 9))
        assert torch.equal(part[0], other[5:9]) and torch.equal(part[1], real[5:9])
        assert torch.equal(half.counted(step, range(16)), real.sum(1))
        for row, mask, found, kept in zip(x, valid, other, real, strict=True):
            text, now = tokenizer.decode(row), tokenizer.decode(found)
            assert now in (text, reverse_complement(text))
            turned += now != text
            special = row >= len("ACGTN")
            assert torch.equal(row[special], found[special])  # BOS, EOS and PAD stay
            assert torch.equal(kept, (found != tokenizer.encode("N")[0]) & (mask | (row == 4)))
    assert 16 < turned < 48
    with pytest.raises(UnmaskError, match="needs one sequence per row"):
        config("x.fa", packing="wrap", reverse_complement=0.5)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("ends", [True, False])
def test_the_dna_tokenizer(tmp_path, k, ends):
    tokenizer = DnaTokenizer(k, ends)
    for text in ("", "AC", "ACGTNACGGTA", "NNN", "ACGTAC"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.covered(text, 1000) == len(text)
    assert tokenizer.encode("acgry") == tokenizer.encode("ACGNN")
    complements = np.array(tokenizer.vocabulary.complement_ids)
    ids = tokenizer.encode("ACGTAG" * 4)
    assert tokenizer.decode(complements[ids][::-1]) == reverse_complement("ACGTAG" * 4)
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.vocabulary == tokenizer.vocabulary
    with pytest.raises(UnmaskError, match="character 3 of a sequence is 'U': it is RNA, write T"):
        tokenizer.encode("ACU")
    with pytest.raises(UnmaskError, match="character 1 of a sequence is 'X'"):
        tokenizer.encode("X")


def test_2bit_is_read_like_fasta(tmp_path, genome):
    pytest.importorskip("twobitreader")
    index, records = b"", b""
    start = 16 + sum(5 + len(name) for name in GENOME)
    for name, bases in GENOME.items():
        index += bytes([len(name)]) + name.encode() + struct.pack("<I", start + len(records))
        codes = np.array(["TCAG".index(base) for base in bases], np.uint8).reshape(-1, 4)
        packed = (codes @ [64, 16, 4, 1]).astype(np.uint8).tobytes()
        records += struct.pack("<4I", len(bases), 0, 0, 0) + packed
    path = tmp_path / "genome.2bit"
    path.write_bytes(struct.pack("<4I", 0x1A412743, 0, len(GENOME), 0) + index + records)
    found, expected = load(path), load(genome)
    assert texts(found.train, found.tokenizer) == texts(expected.train, expected.tokenizer)


def test_windows_are_for_dna(genome):
    with pytest.raises(UnmaskError, match=r"windows is for DNA, not for tokenizer\.kind bytes"):
        load(genome, **{"tokenizer.kind": "bytes"})
