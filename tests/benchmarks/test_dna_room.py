"""Benchmarks of the room `dna` at small sizes."""

import pytest
import torch
from benchmark_rows import parsed


def test_markov_models_of_dna(beside, tmp_path):
    """Smoothed counts as a loop computes them, and a context that decides the next base."""
    import numpy as np

    from benchmarks.dna import markov as dna_markov

    rows = np.random.default_rng(0).integers(0, 5, (40, 30)).astype(np.uint8)
    model = dna_markov.Markov.fit([rows], 2)
    nats = list(model.nats(rows))
    row, place = 3, next(i for i in range(2, 30) if (rows[3, i - 2 : i + 1] < 4).all())
    p = 0.25
    strands = [rows, np.where(rows < 4, 3 - rows, rows)[:, ::-1]]
    for k in range(3):
        context, base = tuple(rows[row, place - k : place]), rows[row, place]
        counts = np.zeros(4)
        for strand in strands:
            for line in strand:
                for i in range(k, 30):
                    if tuple(line[i - k : i]) == context and line[i] < 4:
                        counts[line[i]] += 1
        p = (counts[base] + model.alphas[k] * p) / (counts.sum() + model.alphas[k])
        assert nats[k][row, place] == pytest.approx(-np.log(p))
    assert all((found[rows == 4] == 0).all() for found in nats)
    repeat = np.tile([0, 1, 3, 3, 2], (40, 12)).astype(np.uint8)
    *_, last = dna_markov.Markov.fit([repeat], 4, strands=1).nats(repeat)
    assert last[:, 4:].max() < 0.1


def test_intervals_of_sequences(beside, monkeypatch):
    """Every position on either strand, also across two blocks and in lower case.
    Short sequences have none.
    """
    import numpy as np

    from benchmarks.dna import intervals as dna_intervals

    bases = "".join(np.random.default_rng(0).choice(list("ACGT"), 3000))
    genome = (bases + "N" * 50 + bases[100:160]).encode()
    other = dna_intervals.reverse_complement(bases[2000:2040])
    wanted = [bases[100:160].lower(), other, "N" + bases[990:1030], bases[:23], "A" * 30]
    found = {(100, 160), (3050, 3110), (2000, 2040)}
    assert dna_intervals.intervals(genome, wanted) == found
    monkeypatch.setattr(dna_intervals, "_BLOCK", 110)
    assert dna_intervals.intervals(genome, wanted) == found


@pytest.mark.slow
def test_dna_speed(here):
    """The scan alone, then each network in training and decoding."""
    measured = {row["row"]: row for row in parsed(here("dna", "speed", "--tiny"))}
    for name in ("mamba", "mamba-torch", "caduceus", "hyena", "dit"):
        assert measured[f"train-32-{name}"]["tokens_per_second"] > 0
    assert measured["decode-32-mamba"]["ms_per_token"] > 0
    assert 0 < measured["scan-32-torch"]["forward_bandwidth"] < 1


def test_measures_of_enhancers(beside):
    """Distance to the nearest sequence of either strand, spectra of k-mers,
    and the content of G and C.
    """
    import numpy as np

    from benchmarks.dna import enhancers as dna_enhancers
    from unmask.extensions.dna.dna_tokenizer import reverse_complement

    random = np.random.default_rng(0)
    train = ["".join(random.choice(list("ACGT"), 200)) for _ in range(20)]
    copy = reverse_complement(train[7])
    changed = "A" * 15 + copy[15:]
    expected = sum(a != b for a, b in zip(copy, changed, strict=True))
    bases, known = dna_enhancers.codes([copy, changed]), dna_enhancers.codes(train)
    assert dna_enhancers.nearest(bases, known, torch.device("cpu")).tolist() == [0, expected]
    one = dna_enhancers.spectrum(dna_enhancers.codes(["AC" * 100]))
    assert one.sum() == pytest.approx(1)
    assert dna_enhancers.divergence(one, one) == 0
    poly = [dna_enhancers.spectrum(dna_enhancers.codes([base * 200])) for base in "AC"]
    assert dna_enhancers.divergence(*poly) == pytest.approx(1)  # no k-mer in common
    assert dna_enhancers.gc(dna_enhancers.codes(["GCGCAAAA"])) == 0.5


def test_dna_enhancers(here, tmp_path):
    """The oracle finds planted motifs. Each cell type is measured at weight 1 first."""
    import numpy as np

    from benchmarks.dna import enhancers as dna_enhancers

    random = np.random.default_rng(0)
    motifs = {"K562": "AGATAAGGACCGTTA", "HepG2": "CAAAGTCCAGTTTGG"}

    def sequence(cell: str) -> str:
        bases = "".join(random.choice(list("ACGT"), 200))
        for start in random.choice(12, 3, replace=False) * 15:
            bases = bases[:start] + motifs[cell] + bases[start + 15 :]
        return bases

    rows = [(sequence(cell), cell) for _ in range(200) for cell in motifs]
    oracle = dna_enhancers.Oracle(sorted(motifs), torch.device("cpu"), 32)
    oracle.train(rows, 10)
    for cell in motifs:
        bases = dna_enhancers.codes([sequence(cell) for _ in range(50)])
        other = 3 - bases[:, ::-1]
        judged, turned = oracle.judge(bases, cell), oracle.judge(other, cell, "_real")
        assert judged["oracle"] > 0.9 and judged["oracle_probability"] > 0.8
        assert judged["oracle_answers"][cell] == judged["oracle"]
        assert turned["oracle_probability_real"] == pytest.approx(judged["oracle_probability"])

    data, splits = tmp_path / "data.tsv", ["training"] * 8 + ["validation", "test"]
    lines = [f"{bases}\t{cell}_1\t{splits[i // 2 % 10]}" for i, (bases, cell) in enumerate(rows)]
    data.write_text("\n".join(["sequence\tTAG\tdata_label", *lines[:100]]) + "\n")
    options = ["--tiny", "--data", data, "--runs", tmp_path / "runs", "--guidance", 2, 1]
    first, again = here("dna", "enhancers", *options), here("dna", "enhancers", *options)
    measured = parsed(first)
    assert [(row["guidance"], row["cell"]) for row in measured] == [
        (1, "HepG2"), (1, "K562"), (2, "HepG2"), (2, "K562"),
    ]  # fmt: skip
    shares = {row["cell"]: row["oracle_real"] for row in measured}
    assert measured[0]["oracle_real_balanced"] == pytest.approx(sum(shares.values()) / 2)
    assert "oracle, epoch" in first and "oracle, epoch" not in again
    assert parsed(again) == measured


@pytest.mark.slow
def test_dna_tables(here, tmp_path):
    """Every row of table 6 at a small size, and a second run that repeats none."""
    first = here("dna", "tables", "--tiny", "--runs", tmp_path)
    rows = {row["row"]: row for row in parsed(first) if row.get("table") == 6}
    assert {"markov-11", "mamba-ar", "hyena-ar", "caduceus-sedd", "caduceus-mdlm"} <= rows.keys()
    assert all(1 < row["perplexity"] < 20 for row in rows.values())
    assert not [
        row
        for row in parsed(here("dna", "tables", "--tiny", "--runs", tmp_path))
        if row.get("table") == 6
    ]
