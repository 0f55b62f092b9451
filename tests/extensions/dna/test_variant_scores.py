"""Scores of variants: alternative against reference allele, on both strands."""

import gzip
import math

import numpy as np
import pytest
import torch

import unmask
from unmask.cli import main
from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.errors import UnmaskError
from unmask.extensions.dna.dna_tokenizer import DnaTokenizer, reverse_complement
from unmask.extensions.dna.fasta import read_genome
from unmask.extensions.dna.variant_scores import COLUMNS, score_variants
from unmask.extensions.dna.vcf import Variant, read_variants
from unmask.model import Model

BASES = "".join(np.random.default_rng(0).choice(list("ACGT"), 300))
SNV = Variant("chr20", 101, "rs1", BASES[100], "A" if BASES[100] != "A" else "C")
HEAD = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"


def model(method: str = "mdlm", backbone: str = "dit") -> Model:
    """A model without training, whose weights are not zero."""
    shape = {"width": 16, "depth": 1, "heads": 2, "dropout": 0}
    config = resolve(
        {"data": {"packing": "windows", "length": 32, "tokenizer": {"kind": "dna"}}},
        {"method": method, "backbone": backbone}
        | {f"backbone.{name}": value for name, value in shape.items()},
    )
    tokenizer = DnaTokenizer(ends=False)
    built = build_method(config, tokenizer.vocabulary)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return Model(built, tokenizer, config)


@pytest.fixture
def fasta(tmp_path):
    path = tmp_path / "chr20.fa.gz"
    path.write_bytes(gzip.compress(f">chr20\n{BASES.lower()}\n>chr21\nNNNNACGT\n".encode()))
    return path


def test_an_exact_likelihood_gives_the_exact_ratio():
    one = model("autoregressive", "causal")
    indel = Variant("20", 101, ".", BASES[100:102], BASES[100])
    for variant in (SNV, indel):
        [score] = score_variants(one, {"20": BASES}, [variant])
        end = 100 + len(variant.ref)
        room = 32 - len(variant.ref)
        left = BASES[100 - room // 2 : 100]
        right = BASES[end : end + room - len(left)]
        strands = []
        for turn in (str, reverse_complement):
            nats = [
                (bound := one.perplexity(turn(left + allele + right))).nats * bound.tokens
                for allele in (variant.ref, variant.alt)
            ]
            strands.append(nats[0] - nats[1])
        assert score.bound_forward == pytest.approx(strands[0], abs=1e-4)
        assert score.bound_reverse == pytest.approx(strands[1], abs=1e-4)
        assert score.bound == pytest.approx(sum(strands) / 2, abs=1e-4)
        assert score.bound_se == 0 and math.isnan(score.marginal)


def test_a_masked_allele_is_predicted_from_both_sides():
    one = model()
    [score] = score_variants(one, {"20": BASES}, [SNV], draws=4)
    window = BASES[85:117]  # 15 bases, the allele, 16 bases
    x = torch.tensor([one.tokenizer.encode(window)])
    x[0, 15] = one.tokenizer.vocabulary.mask_id
    with torch.no_grad():
        logits = one.method.backbone.logits(one.method.backbone.features(x))[0, 15]
    ref, alt = (one.tokenizer.encode(base)[0] for base in (SNV.ref, SNV.alt))
    assert score.marginal_forward == pytest.approx(float(logits[alt] - logits[ref]), abs=1e-5)
    assert score.bound_se > 0
    # the reverse complement of a genome of one window has swapped strands
    turned = Variant("20", 17, ".", *map(reverse_complement, (SNV.ref, SNV.alt)))
    [mirror] = score_variants(one, {"20": reverse_complement(window)}, [turned], draws=4)
    assert mirror.marginal_reverse == pytest.approx(score.marginal_forward, abs=1e-5)
    assert mirror.marginal_forward == pytest.approx(score.marginal_reverse, abs=1e-5)
    assert mirror.marginal_se == pytest.approx(score.marginal_se, abs=1e-5)
    assert mirror.bound_forward == pytest.approx(score.bound_reverse, abs=1e-4)
    assert math.isnan(next(score_variants(model("mlm"), {"20": BASES}, [SNV])).bound)


def test_the_window_ends_at_n_and_at_the_end_of_the_chromosome():
    bases = "NNACGTACGTN" + "ACGT"
    scores = score_variants(model(), {"1": bases}, [Variant("1", 4, ".", "C", "T")], draws=2)
    assert math.isfinite(next(scores).bound)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("20\t101\t.\tN\tA", r"REF is N at 20:101, but .*chr20.fa.gz has [ACGT]: give variants"),
        ("20\t301\t.\tA\tC", "the variant ends at 301, but 20 of .* has 300 bases"),
        ("22\t5\t.\tA\tC", "has no chromosome 22"),
        ("20\t0\t.\tA\tC", "POS is '0': give a position from 1"),
        (f"20\t101\t.\t{BASES[100]}\tQ", "ALT is 'Q': give other bases"),
        (f"20\t101\t.\t{BASES[100]}\t<DEL>", "holds no variant with bases"),
        ("20 101 . A C", "has 1 fields: separate them by tabs"),
    ],
)
def test_a_bad_vcf_is_one_line_and_writes_nothing(tmp_path, fasta, line, message, capsys):
    vcf, out = tmp_path / "bad.vcf", tmp_path / "scores.tsv"
    vcf.write_text(HEAD + line + "\n")
    with pytest.raises(UnmaskError, match=message) as error:
        read_variants(vcf, read_genome(fasta), str(fasta))
    assert "\n" not in str(error.value)
    files = ["--fasta", str(fasta), "--vcf", str(vcf), "--out", str(out)]
    assert main(["score-variants", "stories", *files]) == 2
    assert not out.exists()


def test_the_command_writes_the_documented_columns(tmp_path, fasta, capsys):
    model().save(tmp_path / "model")
    alleles = f"{SNV.alt},{BASES[100]}GG,<DEL>"
    files = {"vcf": HEAD + f"20\t101\trs1\t{BASES[100]}\t{alleles}\t.\t.\t.\n"}
    files["tsv"] = f"pos\tchrom\tref\talt\n101\tchr20\t{BASES[100]}\t{SNV.alt}\n"
    found = {}
    for ending, content in files.items():
        (tmp_path / f"v.{ending}").write_text(content)
        arguments = [str(tmp_path / "model"), "--fasta", str(fasta), "--draws", "2"]
        out = tmp_path / f"{ending}.scores"
        arguments += ["--vcf", str(tmp_path / f"v.{ending}"), "--out", str(out)]
        assert main(["score-variants", *arguments, "--device", "cpu"]) == 0
        head, *rows = (line.split("\t") for line in out.read_text().splitlines())
        assert tuple(head) == COLUMNS
        found[ending] = [dict(zip(head, row, strict=True)) for row in rows]
    first, insertion = found["vcf"]
    assert first["id"] == "rs1" and insertion["marginal"] == "NA" != first["marginal"]
    assert float(first["bound_se"]) > 0
    assert found["tsv"][0]["marginal"] == first["marginal"]


def test_generated_sequences_are_printed_as_fasta(tmp_path, capsys):
    model().save(tmp_path / "model")
    written = ["generate", str(tmp_path / "model"), "--n", "2", "--length", "70", "--steps", "4"]
    written += ["--seed", "3", "--device", "cpu"]
    assert main(written) == 0
    printed = capsys.readouterr().out
    assert main([*written, "--out", str(tmp_path / "x.fa")]) == 0
    assert (tmp_path / "x.fa").read_text() == printed
    records = read_genome(tmp_path / "x.fa")
    assert list(records) == ["sequence_1", "sequence_2"]
    assert all(len(bases) == 70 and set(bases) <= set("ACGT") for bases in records.values())
    assert printed.splitlines()[0].startswith(">sequence_1 length=70 seed=3")
    assert main([*written, "--format", "text"]) == 0
    assert capsys.readouterr().out.split() == list(records.values())
    [locus] = unmask.load(tmp_path / "model", device="cpu").fill("ACGT[MASK:12]TTGA", seed=1)
    assert locus.text[:4] == "ACGT" and locus.text[16:] == "TTGA" and len(locus.text) == 20
