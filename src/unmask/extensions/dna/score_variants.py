"""unmask score-variants: log-likelihood ratios of the variants of a VCF or TSV file."""

import argparse
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands, add_arithmetic, add_examples, given

GROUP = "measure"

_COLUMNS = """\
columns of the output, in nats; positive scores favour the alternative allele:
  chrom pos id ref alt   the variant, one line for each alternative allele
  bound                  log p(window with alt) - log p(window with ref), mean of both strands
  bound_se               its standard error over the draws of the noise; 0 for an exact likelihood
  bound_forward          the score of the strand of the FASTA file
  bound_reverse          the score of the other strand
  marginal               the same difference at the masked allele, given the bases around it
  marginal_se            half of the difference of the two strands
  marginal_forward       the score of the strand of the FASTA file
  marginal_reverse       the score of the other strand
NA is a score that does not exist: marginals of insertions, deletions and autoregressive models, and
bounds of mlm models.
"""


def add(commands: Commands) -> None:
    summary = "score the variants of a VCF file with a model of DNA"
    parser = commands.add_parser(
        "score-variants", help=summary, description=summary, epilog=_COLUMNS
    )
    parser.add_argument("model", metavar="MODEL", help="run folder or exported model of DNA")
    parser.add_argument(
        "--fasta", type=Path, required=True, metavar="FILE", help="genome as FASTA or 2bit"
    )
    parser.add_argument(
        "--vcf",
        type=Path,
        required=True,
        metavar="FILE",
        help="variants as VCF, or as TSV with the columns chrom, pos, ref and alt",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="TSV file; by default the terminal"
    )
    parser.add_argument("--draws", type=int, default=16, metavar="N", help="noise draws per allele")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the noise")
    parser.add_argument(
        "--batch", type=int, default=32, metavar="N", help="variants computed at a time"
    )
    group = parser.add_argument_group("model", argument_default=argparse.SUPPRESS)
    group.add_argument("--device", help="cpu, cuda or mps; by default the fastest available")
    add_arithmetic(group)
    add_examples(
        parser,
        "unmask score-variants runs/dna --fasta chr20.fa.gz --vcf variants.vcf --out scores.tsv",
        "unmask score-variants runs/dna --fasta chr20.2bit --vcf variants.tsv --draws 64",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.extensions.dna.fasta import read_genome
    from unmask.extensions.dna.variant_scores import COLUMNS, score_variants
    from unmask.extensions.dna.vcf import read_variants
    from unmask.files.storage import check_place, replace
    from unmask.likelihood.estimate import checked
    from unmask.model import load

    draws, batch = checked("--draws", args.draws), checked("--batch", args.batch)
    if args.out is not None:
        check_place(args.out)
    genome = read_genome(args.fasta)
    variants = read_variants(args.vcf, genome, str(args.fasta))
    model = load(args.model, **given(args, "device", "precision", "compile"))
    scores = score_variants(model, genome, variants, draws=draws, seed=args.seed, batch=batch)
    head = "\t".join(COLUMNS)
    if args.out is None:
        print(head)
        for score in scores:
            print(score.line(), flush=True)
        return
    lines = [head, *(score.line() for score in scores)]
    replace(args.out, "".join(f"{line}\n" for line in lines).encode())
    print(f"{args.out}: {len(variants):,} variant{'s' if len(variants) > 1 else ''}")
