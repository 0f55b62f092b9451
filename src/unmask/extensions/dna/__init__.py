"""DNA: networks for long sequences, bases and their complements, files of genomes, scores of variants."""

from unmask.extension import Extension

EXTENSION = Extension(
    __name__,
    {
        "backbone": {
            "bimamba": ".backbones.mamba",
            "caduceus": ".backbones.caduceus",
            "hyena": ".backbones.hyena",
            "mamba": ".backbones.mamba",
        },
        "tokenizer kind": {"dna": ".dna_tokenizer"},
        "file form": {"2bit": ".genome_forms", "fasta": ".genome_forms"},
        "suite": {"genomic-benchmarks": ".genomic_benchmarks"},
    },
    commands={"score-variants": ".score_variants"},
    models=("dna",),
)
