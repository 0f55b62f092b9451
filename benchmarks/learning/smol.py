"""Stages of `smol`: a pretrained autoregressive model of 135M parameters becomes one of block diffusion.

    python benchmarks/learning smol pack FILE ... --to PARTS         # files in parts that a small transfer can take
    python benchmarks/learning smol join PARTS --to FOLDER           # and back, on the machine with the GPU
    python benchmarks/learning smol rows --folder FOLDER --start MODEL        # tokenises before a stage, or beside one
    python benchmarks/learning smol tries FILE --folder FOLDER --start MODEL --out OUT --set training.steps=250
    python benchmarks/learning smol stage NAME --folder FOLDER --start MODEL --out OUT --set training.seconds=420
    python benchmarks/learning smol measure MODEL --folder FOLDER --out OUT
    python benchmarks/learning smol table smol.jsonl                          # the table of stored rows

FOLDER holds *.train.txt.xz, of which each has a share of the rows by its size, or the share that `--mix SOURCE=WEIGHT`
gives, and wikipedia.valid.txt.xz. `stage` runs `unmask train adapt` and writes the model in 8 bits to FOLDER/NAME-int8, from
which the next stage starts. Then it measures the bounds of blocks of 4 and 16 tokens and of whole rows on the validation text,
and writes a row to OUT/smol.jsonl. `tries` does this for each name of FILE, a JSON file {name: {field: value}}, in one process,
so that only the first compiles. `measure` writes the row of a model without training; of an autoregressive one it is the exact
likelihood.
"""

import argparse
import gc
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import unmask
from benchmarks.machine import peak_gib
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.config.run_config import load_recipe, resolve
from unmask.data.load import load_data

PART = 15 << 20  # bytes
BLOCKS = (4, 16, 0)


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


def sources(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The training texts with their shares of the rows."""
    if args.mix:
        given = (mix.rpartition("=") for mix in args.mix)
        return [{"text": text, "weight": float(weight)} for text, _, weight in given]
    files = sorted(args.folder.glob("*.train.txt*"))
    total = sum(file.stat().st_size for file in files)
    return [{"text": str(file), "weight": round(file.stat().st_size / total, 4)} for file in files]


def rows(args: argparse.Namespace) -> None:
    """Writes the cached rows of each training text."""
    tokenizer = unmask.load(args.start, device="cpu").tokenizer
    for source in sources(args):
        began = time.perf_counter()
        config = resolve(load_recipe("adapt"), fixed(args) | {"data.train": source["text"]})
        found = len(load_data(config.data, tokenizer).train)
        seconds = time.perf_counter() - began
        print(f"{found:,} rows of {source['text']} in {seconds:.1f} s", flush=True)


def fixed(args: argparse.Namespace) -> dict[str, Any]:
    """Settings of every stage."""
    valid = {"data.valid": str(args.folder / args.valid), "data.workers": args.workers}
    return valid | {"data.cache": str(args.folder / "rows"), "data.length": args.length}


def stage(args: argparse.Namespace, name: str, **more: Any) -> None:
    """Trains from a model, then exports and measures the result."""
    given = {field: json.loads(value) for field, _, value in (s.partition("=") for s in args.set)}
    settings = fixed(args) | {"init_from": args.start, "data.train": sources(args)} | given | more
    began, lines = time.perf_counter(), []

    def say(line: str) -> None:
        lines.append(line)
        print(f"{name} {time.perf_counter() - began:6.1f} {line}", flush=True)

    model = unmask.train("adapt", args.folder / name, overrides=settings, say=say)
    if args.command == "stage":
        model.save(args.folder / f"{name}-int8", precision="int8")
    log = [line for line in lines if "tokens/s" in line or line.startswith("held-out")]
    measured(model, args, name, began, set=given | more, log=log[-2:])
    del model
    gc.collect()  # the next one needs the memory


def measured(
    model: unmask.Model, args: argparse.Namespace, name: str, began: float, **row: Any
) -> None:
    """Writes a row with the bits per byte of each block size."""
    data = replace(model.config.data, length=args.length, packing="wrap")
    model = replace(model, config=replace(model.config, data=data))
    causal = model.method.capabilities.causal
    for block in (None,) if causal else BLOCKS:
        options = {} if causal else {"block": block, "draws": args.draws}
        bound = model.perplexity(args.folder / args.valid, batch=args.batch, **options)
        row["left to right" if causal else f"block {block}"] = bound.bits_per_byte
        row["error" if causal else f"error {block}"] = bound.bits_per_byte_error
    wall = round(time.perf_counter() - began, 1)
    Report(args.out / "smol.jsonl").write(
        {"row": name, "wall": wall, "peak_gib": peak_gib(), **row}
    )


def table(file: Path) -> None:
    """Prints the table of stored rows."""
    keys, lines = ("left to right", *map("block {}".format, BLOCKS)), []
    for row in read_rows(file):
        cost = [row.get("steps", 0), f"{row.get('tokens', 0) / 1e6:.1f}", row.get("peak_gib", "")]
        bits = (f"{row[key]:.3f}" if key in row else "" for key in keys)
        lines.append([row["row"], *cost, *bits])
    head = ["run", "steps", "million tokens", "GiB", "left to right"]
    head += ["blocks of 4", "blocks of 16", "whole rows"]
    print("\n".join(markdown(head, lines)))


def main() -> None:
    parser = script_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    packs = commands.add_parser("pack")
    packs.add_argument("files", type=Path, nargs="+")
    packs.add_argument("--to", type=Path, required=True)
    joins = commands.add_parser("join")
    joins.add_argument("parts", type=Path)
    joins.add_argument("--to", type=Path, required=True)
    commands.add_parser("table").add_argument("file", type=Path)
    names = {"rows": "", "tries": "file", "stage": "name", "measure": "model"}
    for command, argument in names.items():
        one = commands.add_parser(command)
        if argument:
            one.add_argument(argument)
        if command != "measure":
            one.add_argument("--start", required=True, help="the model that training starts from")
            one.add_argument("--mix", action="append", default=[], metavar="SOURCE=WEIGHT")
            one.add_argument("--set", action="append", default=[], metavar="FIELD=JSON")
        one.add_argument("--folder", type=Path, required=True)
        one.add_argument("--out", type=Path, default=Path("."))
        one.add_argument("--valid", default="wikipedia.valid.txt.xz", help="file of FOLDER")
        one.add_argument("--workers", type=int, default=8, help="processes that tokenise")
        one.add_argument("--draws", type=int, default=4, help="of the noise of a measured row")
        one.add_argument("--length", type=int, default=512, help="tokens of a row")
        one.add_argument("--batch", type=int, default=64, help="rows of a pass of the measurement")
    args = parser.parse_args()
    if args.command == "pack":
        pack(args.files, args.to)
    elif args.command == "join":
        join(args.parts, args.to)
    elif args.command == "table":
        table(args.file)
    elif args.command == "rows":
        rows(args)
    elif args.command == "stage":
        stage(args, args.name)
    elif args.command == "tries":
        for name, settings in json.loads(Path(args.file).read_text("utf-8")).items():
            stage(args, name, **settings)
    else:
        began = time.perf_counter()
        model = unmask.load(args.model, precision="auto")
        measured(model, args, Path(args.model).name, began)
