"""Genomic Benchmarks: a fine-tuned model of DNA on a fixed test part."""

import tarfile

import numpy as np
import pytest
import torch

from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import SUITES
from unmask.extensions.dna.dna_tokenizer import DnaTokenizer, reverse_complement
from unmask.model import Model
from unmask.representation.classifier import classifier_of, rows_for
from unmask.training.fine_tune import predict

TASK = "human_enhancers_cohn"


def tasks(folder, rows: int = 120) -> None:
    """Sequences that are rich in G and C, or in A and T."""
    random = np.random.default_rng(0)
    for part, count in (("train", rows), ("test", 40)):
        lines = ["label\tid\tsequence"]
        for number in range(count):
            rich = number % 2
            weights = [0.1, 0.4, 0.4, 0.1] if rich else [0.4, 0.1, 0.1, 0.4]
            bases = "".join(random.choice(list("ACGT"), 24 + number % 5, p=weights))
            lines.append(f"{'enhancer' if rich else 'other'}\t{number}\t{bases}")
        (folder / f"{TASK}.{part}.tsv").write_text("\n".join(lines) + "\n")


def model(backbone: str, **settings) -> Model:
    data = {"packing": "windows", "length": 26, "tokenizer": {"kind": "dna"}}
    shape = {"width": 16, "depth": 1} | settings
    config = resolve(
        {"data": data},
        {"backbone": backbone} | {f"backbone.{name}": value for name, value in shape.items()},
    )
    tokenizer = DnaTokenizer(ends=False)
    return Model(build_method(config, tokenizer.vocabulary), tokenizer, config)


@pytest.mark.parametrize(("backbone", "settings"), [("dit", {"heads": 2}), ("caduceus", {})])
def test_a_task_is_learned_and_the_model_is_not_changed(tmp_path, capsys, backbone, settings):
    tasks(tmp_path)
    one = model(backbone, **settings)
    before = one.digest
    suite = SUITES.build("genomic-benchmarks")
    [row] = suite.measure(one, data=str(tmp_path), seeds=2, epochs=4, batch=16, lr=5e-3)
    assert row.accuracy > 0.8 and len(row.by_seed) == row.seeds == 2
    assert row.spread == pytest.approx(max(row.by_seed) - min(row.by_seed))
    assert row.low < row.accuracy <= row.high + 1e-9
    assert (row.train, row.test) == (120, 40)
    assert row.cut == sum(24 + number % 5 > 26 for number in range(40))
    assert one.digest == before
    assert "160 of 27,791 rows (0.6%) are here" in capsys.readouterr().err
    settings = {"data": str(tmp_path), "epochs": 4, "batch": 16, "lr": 5e-3}
    [second] = suite.measure(one, seed=1, seeds=1, **settings)
    assert second.by_seed == row.by_seed[1:]


def test_a_caduceus_classifier_sees_no_strand():
    classifier = classifier_of(model("caduceus"), 3, pooling="mean", pooler=False)
    texts = ["ACGTTTGACA", "CCGATTAC", "TTTTTTGACCAGTA"]  # shorter ones are padded
    strands = (texts, [reverse_complement(text) for text in texts])
    plus, minus = (predict(classifier.method, rows_for(classifier, strand)) for strand in strands)
    assert plus.std(0).min() > 1e-4
    torch.testing.assert_close(plus, minus, rtol=1e-4, atol=1e-5)


def test_parts_that_are_missing_or_too_small(tmp_path, capsys):
    suite, one = SUITES.build("genomic-benchmarks"), model("dit", heads=2)
    with pytest.raises(UnmaskError, match="holds no TASK"):
        suite.measure(one, data=str(tmp_path))
    tasks(tmp_path, rows=60)
    assert suite.measure(one, data=str(tmp_path)) == []
    assert "left out: a class has 30 training rows" in capsys.readouterr().err
    with tarfile.open(tmp_path / "genomic-benchmarks.tar.xz", "w:xz") as archive:
        for part in ("train", "test"):
            archive.add(tmp_path / f"{TASK}.{part}.tsv", f"{TASK}.{part}.tsv")
            (tmp_path / f"{TASK}.{part}.tsv").unlink()
    [row] = suite.measure(one, data=str(tmp_path), limit=20, epochs=1, seeds=1)
    assert (row.train, row.test) == (20, 20)
    with pytest.raises(UnmaskError, match="give --data"):
        suite.measure(one)
    with pytest.raises(UnmaskError, match="unknown task"):
        suite.measure(one, data=str(tmp_path), tasks=("x",))
