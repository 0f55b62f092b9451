"""Benchmarks of the room `pairs` at small sizes."""

import pytest
from benchmark_rows import rows


@pytest.mark.slow
def test_encoder_decoder(here, tmp_path):
    """Two models train side by side and write targets, which are scored and printed as a table."""
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for side, word in {"de": "Zahl", "en": "number"}.items():
            lines = (
                f"{word} {n} und {word} {n + 1} .\n" for n in range(60 if name == "train" else 5)
            )
            (tmp_path / f"{name}.{side}").write_text("".join(lines))
    file, small = tmp_path / "rows.jsonl", ["--steps", 4, "--batch", 8, "--sources", 5]
    options = ["--tiny", "--data", tmp_path, "--runs", tmp_path / "runs", "--out", file, *small]
    models = ["encoder MDLM, length", "encoder AR"]
    found = rows("pairs", "encoder_decoder", *map(str, options), "--only", *models)
    assert {row["model"] for row in found if row["row"] == "training"} == set(models)
    assert not [row for row in found if row["row"] == "error"]
    scored = tmp_path / "scored.jsonl"
    here("pairs", "encoder_decoder", "--score", file, "--out", scored)
    lines = here("pairs", "encoder_decoder", "--table", scored).splitlines()
    assert len(lines) == 2 + 3  # two decodings of the diffusion model, one of the other


def test_the_gain_of_a_length_head(beside):
    """Whole targets against cut ones, over the same sources; equal targets have no gain."""
    from benchmarks.pairs.encoder_decoder import gain

    whole = [f"a dog and {n} cats sit on the wide mat" for n in range(8)]
    ours = {"hypotheses": whole, "references": [[text] for text in whole]}
    other = {"hypotheses": [text[:20] for text in whole]}
    found = gain(ours, other, draws=20)
    assert 0 < found["low"] <= found["difference"] <= 100 and found["sources"] == 8
    assert gain(ours, ours, draws=20)["high"] == 0
