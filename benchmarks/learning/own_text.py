"""Bits per byte of a text of one's own before and after `finetune` and `auto`, by the size of the text.

Each run has the default settings for the first characters of the text and measures the same held-out end of it. A
row that the file has is not measured again.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import unmask
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.likelihood.estimate import likelihood
from unmask.likelihood.perplexity import rows_of

HELD_OUT = 40_000  # characters at the end of the text
STARTS = ("stories", "wiki", "")  # "" is `auto`, which starts from nothing


def measure(text: str, characters: int, start: str, folder: Path, args: Any) -> dict[str, Any]:
    """A row: one run with default settings, and the bound of its start on the same held-out rows."""
    train, valid = folder / "train.txt", folder / "valid.txt"
    folder.mkdir(parents=True, exist_ok=True)
    train.write_text(text[:characters], "utf-8")
    valid.write_text(text[-args.held_out :], "utf-8")
    overrides = {"data.train": str(train), "data.valid": str(valid)}
    overrides |= {"init_from": start} if start else {}
    overrides |= {"training.steps": args.steps} if args.steps else {}
    lines: list[str] = []
    begin = time.perf_counter()
    model = unmask.train(
        "finetune" if start else "auto", folder / "run", overrides=overrides, say=lines.append
    )
    seconds = time.perf_counter() - begin
    rows = rows_of(model)
    before = {}
    if start:
        bound = likelihood(unmask.load(start).method, rows, draws=args.draws)
        scale = model.perplexity(draws=1)  # bytes of the same rows
        before = {"before": bound.nats / scale.nats * scale.bits_per_byte}
    after = model.perplexity(draws=args.draws)
    training = model.config.training
    seen = training.steps * training.batch * model.config.data.length
    return {
        "row": f"{args.name} {characters} {start or 'auto'}",
        "text": args.name,
        "characters": characters,
        "start": start,
        **before,
        "after": after.bits_per_byte,
        "after_error": after.bits_per_byte_error,
        "steps": training.steps,
        "tokens_read": seen,
        "seconds": seconds,
        "estimate": next((line for line in lines if line.startswith("estimated")), ""),
        "sample": str(model.generate(n=1, length=40, seed=0)[0]),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Prints the rows as a table."""
    head = ["text", "characters", "start", "steps", "bits/byte before", "after", "seconds"]
    lines = [
        [
            row["text"], f"{row['characters']:,}", row["start"] or "nothing (`auto`)", row["steps"],
            f"{row['before']:.2f}" if "before" in row else "–",
            f"{row['after']:.2f} ± {row['after_error']:.2f}", f"{row['seconds']:,.0f}",
        ]
        for row in rows
    ]  # fmt: skip
    print("\n".join(markdown(head, lines, left=(0, 2))))


def main() -> None:
    parser = script_parser(__doc__, "out", "table")
    parser.add_argument("--text", type=Path, help="UTF-8 text; documents end with <|endoftext|>")
    parser.add_argument("--name", default="text", help="kind of the text, for the table")
    parser.add_argument("--characters", type=int, nargs="+", default=[30_000, 300_000, 3_000_000])
    parser.add_argument("--starts", nargs="+", default=STARTS, help="models, '' for `auto`")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="characters at the end")
    parser.add_argument("--steps", type=int, default=0, help="0 leaves the choice to the recipe")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--runs", type=Path, default=Path("runs/own-text"))
    args = parser.parse_args()
    if args.table:
        table(read_rows(*args.table))
        return
    text = args.text.read_text("utf-8")
    report = Report(args.out)
    known = {row["row"] for row in read_rows(args.out)} if args.out and args.out.exists() else set()
    for characters in args.characters:
        for start in args.starts:
            if f"{args.name} {characters} {start or 'auto'}" not in known:
                folder = args.runs / f"{args.name}-{characters}-{start or 'auto'}"
                report.write(measure(text, characters, start, folder, args))
