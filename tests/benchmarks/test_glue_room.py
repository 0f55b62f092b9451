"""Benchmarks of the room `glue` at small sizes."""

from benchmark_rows import parsed


def test_glue_table(here, tmp_path):
    """Rows are trained, measured and scored, and a second call repeats nothing."""
    import transformers

    encoder, task = tmp_path / "encoder", tmp_path / "data" / "glue" / "RTE"
    task.mkdir(parents=True)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(encoder)
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *["the", "cat", "sat", "on", "mat", "a", "dog"],
    ]
    words += [f"w{i}" for i in range(40 - len(words))]
    (encoder / "vocab.txt").write_text("\n".join(words) + "\n")
    labels = ("entailment", "not_entailment")
    lines = [f"{i}\tthe cat sat\ta dog\t{labels[i % 2]}" for i in range(16)]
    for part in ("train", "dev"):
        (task / f"{part}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *lines]))
    runs = tmp_path / "runs"
    options = ["--tiny", "--data", tmp_path / "data", "--encoder", encoder, "--runs", runs]
    options += ["--rows", "encoder", "encoder-mdlm", "--seeds", 1]
    done = [(row["kind"], row["row"]) for row in parsed(here("glue", "glue_table", *options))]
    assert {("glue", "encoder"), ("glue", "encoder-mdlm"), ("pseudo", "encoder")} <= set(done)
    assert parsed(here("glue", "glue_table", *options)) == []
    table = here("glue", "glue_table", "--runs", runs, "--table")
    assert "| encoder-mdlm |" in table and "≤" in table
