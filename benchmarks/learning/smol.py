"""Stages of `smol`: a pretrained autoregressive model of 135M parameters becomes one of block diffusion.

    python benchmarks/learning smol pack FILE ... --to PARTS         # files in parts that a small transfer can take
    python benchmarks/learning smol join PARTS --to FOLDER           # and back, on the machine with the GPU
    python benchmarks/learning smol stage NAME --folder FOLDER --start MODEL --seconds 420 --out OUT --set training.lr=1e-3
    python benchmarks/learning smol measure MODEL --folder FOLDER --out OUT

FOLDER holds wikipedia.train.txt.xz, wikipedia.valid.txt.xz and any other *.train.txt.xz; each source has a share of the
rows by its size. `stage` runs `unmask train adapt` and measures the bounds of blocks of 4 and 16 tokens and of whole rows
on all of wikipedia.valid. It writes a row to OUT/smol.jsonl, and the model in 8 bits to FOLDER/NAME-int8, from which the
next stage starts. `measure` writes the row of a model without training; of an autoregressive one it is the exact likelihood.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import unmask
from benchmarks.machine import peak_gib
from benchmarks.room import script_parser
from benchmarks.rows import Report

PART = 15 << 20  # bytes
BLOCKS = (4, 16, 0)
DRAWS = 4


def pack(files: list[Path], to: Path) -> None:
    """Writes the files in parts NAME.000, NAME.001, …"""
    to.mkdir(parents=True, exist_ok=True)
    for path in files:
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in filter(Path.is_file, found):
            name = str(file.relative_to(path.parent)).replace("/", "__")
            content = file.read_bytes()
            for number, start in enumerate(range(0, max(len(content), 1), PART)):
                (to / f"{name}.{number:03}").write_bytes(content[start : start + PART])


def join(parts: Path, to: Path) -> None:
    """Joins what `pack` wrote. Parts that come later complete the files."""
    to.mkdir(parents=True, exist_ok=True)
    kept = to / "parts"
    kept.mkdir(exist_ok=True)
    for part in parts.iterdir():
        (kept / part.name).write_bytes(part.read_bytes())
    for name in sorted({part.stem for part in kept.iterdir()}):
        file = to / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        pieces = sorted(kept.glob(f"{name}.[0-9][0-9][0-9]"))
        file.write_bytes(b"".join(piece.read_bytes() for piece in pieces))


def sources(folder: Path) -> list[dict[str, Any]]:
    """The training texts, each with a share of the rows by its size."""
    files = sorted(folder.glob("*.train.txt*"))
    total = sum(file.stat().st_size for file in files)
    return [{"text": str(file), "weight": round(file.stat().st_size / total, 4)} for file in files]


def stage(args: argparse.Namespace) -> None:
    """Trains for some seconds from a model, and measures and exports the result."""
    settings: dict[str, Any] = {
        "init_from": args.start,
        "data.train": sources(args.folder),
        "data.valid": str(args.folder / "wikipedia.valid.txt.xz"),
        "data.cache": str(args.folder / "rows"),
        "data.workers": args.workers,
        "training.seconds": args.seconds,
    }
    settings |= {name: json.loads(value) for name, _, value in (s.partition("=") for s in args.set)}
    began, lines = time.perf_counter(), []

    def say(line: str) -> None:
        lines.append(line)
        print(f"{time.perf_counter() - began:6.1f} {line}", flush=True)

    model = unmask.train("adapt", args.folder / args.name, overrides=settings, say=say)
    log = [line for line in lines if "tokens/s" in line or line.startswith("held-out")]
    row = {"seconds": args.seconds, "set": args.set, "log": log[-2:]}
    measured(model, args, args.name, began, **row)
    model.save(args.folder / f"{args.name}-int8", precision="int8")


def measured(
    model: unmask.Model, args: argparse.Namespace, name: str, began: float, **row: Any
) -> None:
    """Writes a row with the bits per byte of each block size."""
    valid = args.folder / "wikipedia.valid.txt.xz"
    data = replace(model.config.data, length=args.length, packing="wrap")
    model = replace(model, config=replace(model.config, data=data))
    causal = model.method.capabilities.causal
    for block in (None,) if causal else BLOCKS:
        options = {} if causal else {"block": block, "draws": DRAWS}
        bound = model.perplexity(valid, batch=args.batch, **options)
        row["left to right" if causal else f"block {block}"] = bound.bits_per_byte
        row["error" if causal else f"error {block}"] = bound.bits_per_byte_error
    wall = round(time.perf_counter() - began, 1)
    Report(args.out / "smol.jsonl").write(
        {"row": name, "wall": wall, "peak_gib": peak_gib(), **row}
    )


def main() -> None:
    parser = script_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    packs = commands.add_parser("pack")
    packs.add_argument("files", type=Path, nargs="+")
    packs.add_argument("--to", type=Path, required=True)
    joins = commands.add_parser("join")
    joins.add_argument("parts", type=Path)
    joins.add_argument("--to", type=Path, required=True)
    stages, measures = commands.add_parser("stage"), commands.add_parser("measure")
    stages.add_argument("name")
    stages.add_argument("--start", required=True, help="the model that the stage starts from")
    stages.add_argument("--seconds", type=float, required=True, help="of training steps")
    stages.add_argument("--set", action="append", default=[], metavar="FIELD=JSON")
    stages.add_argument("--workers", type=int, default=8)
    measures.add_argument("model")
    for one in (stages, measures):
        one.add_argument("--folder", type=Path, required=True)
        one.add_argument("--out", type=Path, required=True)
        one.add_argument("--length", type=int, default=512, help="tokens of a measured row")
        one.add_argument("--batch", type=int, default=64, help="rows of a pass of the measurement")
    args = parser.parse_args()
    if args.command == "pack":
        pack(args.files, args.to)
    elif args.command == "join":
        join(args.parts, args.to)
    elif args.command == "stage":
        stage(args)
    else:
        began = time.perf_counter()
        model = unmask.load(args.model, precision="auto")
        measured(model, args, Path(args.model).name, began)


if __name__ == "__main__":
    main()
