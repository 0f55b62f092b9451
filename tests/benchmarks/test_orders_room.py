"""Benchmarks of the room `orders` at small sizes."""

import pytest
from benchmark_rows import parsed


@pytest.mark.slow
def test_learned_order(here, run, tmp_path):
    (tmp_path / "text.txt").write_text("the king sat on the hill and the queen ran.\n\n" * 40)
    small = ["--length", 16, "--calls", 2, 4, "--updates", 2, "--batch", 2, "--group", 2]
    file, policy = tmp_path / "rows.jsonl", tmp_path / "order.safetensors"
    small += ["--out", file, "--policy", policy]
    measured = parsed(here("orders", "learned_order", run, "--data", tmp_path / "text.txt", *small))
    orders = ["random", "confidence", "margin", "entropy", "learned"]
    assert [row["order"] for row in measured] == orders * 2 and policy.exists()
    assert all(row["nats"] > 0 and row["rows"] > 1 for row in measured)
    picture = tmp_path / "order.png"
    lines = here("orders", "learned_order", "--table", file, "--plot", picture).splitlines()
    assert sum(line.startswith("|") for line in lines) == 2 * 2 + 5 + 4
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_toy_orders(here):
    """The learned order loses nothing, and a random one does. One token at a time,
    every order is exact.
    """
    measured = {row["row"]: row for row in parsed(here("orders", "toy_orders", "--languages", 2))}
    assert abs(measured["learned"]["largest"]) < 0.02 < measured["random"]["loss"]
    assert all(row["error_one_by_one"] < 1e-5 for row in measured.values())
