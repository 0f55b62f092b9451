"""Loss of stored weights of fewer bits, in bits per byte, against the same model in fp32.

    python benchmarks/learning rounding MODEL --data wikipedia.valid.txt.xz --out rounding.jsonl --calibration FILE
    python benchmarks/learning rounding --table rounding.jsonl

All weights are measured on the same rows with the same noise. A row has the difference and its error, and the size of the folder.
"""

import argparse
import platform
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import unmask
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.data.rows.first_rows import FirstRows
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import likelihood, paired_difference
from unmask.likelihood.perplexity import rows_of

FORMS = {"int8": {}, "int4": {}, "int4, calibrated": {"calibration": ""}}


def measured(model: unmask.Model, args: argparse.Namespace) -> Bound:
    """The bound on the first rows, with the nats of each row."""
    config = replace(model.config.data, length=args.length, packing="wrap")
    bundle = replace(model, config=replace(model.config, data=config))
    rows = FirstRows(rows_of(bundle, str(args.data), "wrap"), args.rows)
    with model.method.arithmetic():
        return likelihood(model.method, rows, draws=args.draws, batch=args.batch, keep_rows=True)


def measure(args: argparse.Namespace) -> None:
    """Writes a row for each form of the weights."""
    report, began = Report(args.out), time.perf_counter()
    whole = unmask.load(args.model, precision=args.precision)
    before = measured(whole, args)
    scale = before.bits_per_byte / before.nats
    about = {
        "model": Path(args.model).stem,
        "parameters": sum(map(torch.numel, whole.method.parameters())),
    }
    about |= {"data": args.data.name, "rows": args.rows, "length": args.length}
    about |= {
        "date": time.strftime("%Y-%m-%d"),
        "machine": platform.machine(),
        "device": str(whole.device),
    }
    about |= {"torch": torch.__version__, "precision": whole.precision}
    report.write({"row": "fp32", "bits_per_byte": before.bits_per_byte, **about})
    for name, options in FORMS.items():
        if options and not args.calibration:
            continue
        with TemporaryDirectory() as folder:
            target, start = Path(folder) / "model", time.perf_counter()
            given = dict.fromkeys(options, args.calibration)
            whole.save(target, name.partition(",")[0], **given)
            took = time.perf_counter() - start
            rounded = measured(unmask.load(target, precision=args.precision), args)
            size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
        loss, error, _ = (scale * one for one in paired_difference(rounded, before))
        row = {"row": name, "bytes": size, "loss": loss, "error": error, "seconds": took}
        report.write({**row, "wall": time.perf_counter() - began, **about})


def table(files: list[Path]) -> None:
    """Prints the stored rows."""
    lines = [
        (
            *(each["model"], each["row"], f"{each['bytes'] / 1e6:.1f} MB"),
            f"{each['loss']:+.4f} ± {each['error']:.4f}",
        )
        for each in read_rows(*files)
        if "loss" in each
    ]
    print("\n".join(markdown(("model", "weights", "folder", "loss, bits per byte"), lines, 2)))


def main() -> None:
    parser = script_parser(__doc__, "out", "table")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--data", type=Path, help="held-out text")
    parser.add_argument("--calibration", type=Path, help="another text, which rounding reads")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8, help="rows of a pass of the measurement")
    parser.add_argument("--precision", default="fp32", help="of the computation")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    if args.model is None or args.data is None:
        parser.error("give MODEL and --data FILE")
    return measure(args)


if __name__ == "__main__":
    main()
