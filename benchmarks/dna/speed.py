"""Speed and memory of the DNA networks from 1,024 to 131,072 bases, in training and decoding.

Rows of JSON, one a measurement:
- `machine`: the device, and the bandwidth of a copy in its memory.
- `scan-LENGTH-FORM`: the selective scan alone, with the share of that bandwidth that it reaches. Bytes
  are those that any form must move: inputs read once, outputs written once.
- `train-LENGTH-NETWORK`: tokens a second and peak memory of forward and backward pass.
- `decode-LENGTH-NETWORK`: milliseconds of one more token after LENGTH tokens.

FORM is `kernels` (Triton, on a GPU) or `torch`. NETWORK is `mamba` (with kernels on a GPU), `mamba-torch`,
`caduceus`, `hyena`, `dit` or `causal` with about as many parameters, or `mambapy` if it is installed.
On a GPU, `mamba-compiled` and `caduceus-compiled` train at the first length, as with `training.compile`.

    python benchmarks/dna speed --out dna_speed.jsonl   # adds the rows that the file does not have
    python benchmarks/dna speed --out dna_speed.jsonl --table
    python benchmarks/dna speed --tiny
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.machine import (
    DEVICE,
    alone,
    machine_row,
    median_seconds,
    peak_gib,
    reset_peak,
    wall_seconds,
)
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.backbones.compile import compile_blocks
from unmask.extensions.dna.layers import gated_sum as gates
from unmask.extensions.dna.layers import selective_scan as scans
from unmask.extensions.dna.layers import short_convolution as convolutions
from unmask.runtime.device import autocast, emulation
from unmask.vocabulary import Vocabulary

VOCABULARY = Vocabulary(12, 3, complement_ids=(0, 1, 2, 3, 4, 5, 6, 10, 9, 8, 7, 11))
CHANNELS, STATES = 256, 16  # of a Mamba of width 128
COMPILED = ("mamba-compiled", "caduceus-compiled")
# part and network or form, the most important first: a run that is cut short has the others
ORDER = (
    *(("scan", "kernels"), ("train", "mamba"), ("decode", "mamba"), ("train", "mamba-torch")),
    *(("train", "dit"), ("train", "caduceus"), ("decode", "causal"), ("train", "hyena")),
    *(("train", "mambapy"), ("scan", "torch"), ("decode", "mamba-torch")),
    *(("train", name) for name in COMPILED),
)


@contextmanager
def form(name: str) -> Iterator[None]:
    """Mamba in plain torch if the name ends in `torch`; else as the package chooses."""
    choices = {
        scans: "scan_kernels_available",
        convolutions: "block_kernels_available",
        gates: "block_kernels_available",
    }
    before = {module: getattr(module, choice) for module, choice in choices.items()}
    if name.endswith("torch"):
        for module, choice in choices.items():
            setattr(module, choice, lambda: False)
    try:
        yield
    finally:
        for module, choice in choices.items():
            setattr(module, choice, before[module])


class MambaPy(nn.Module):
    """A network of mambapy, with our embedding and head."""

    def __init__(self, width: int, depth: int) -> None:
        from mambapy.mamba import Mamba, MambaConfig

        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY.size, width)
        self.body = Mamba(MambaConfig(d_model=width, n_layers=depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY.size)

    def features(self, x: Tensor) -> Tensor:
        return self.norm(self.body(self.embedding(x)))

    def logits(self, h: Tensor) -> Tensor:
        return self.head(h)


def network(name: str, length: int, tiny: bool) -> Any:
    """A network; transformers get the shape with the number of parameters nearest to Mamba's."""
    kind = name.removesuffix("-torch").removesuffix("-compiled")
    width, depth = (16, 1) if tiny else (128, 4)
    if kind == "mambapy":
        return MambaPy(width, depth)
    if kind in ("dit", "causal"):
        return transformer(kind, parameters(BACKBONES["mamba"], width=width, depth=depth))
    fields: dict[str, Any] = {"width": width, "depth": depth}
    if kind == "hyena":
        fields = {"width": width, "depth": max(1, depth // 2), "positions": length}
    elif kind == "caduceus" and not tiny:
        fields = {}
    return BACKBONES[kind](BACKBONES[kind].Config(**fields), VOCABULARY)


def transformer(kind: str, wanted: int) -> Backbone:
    """The transformer of 2 layers whose number of parameters is nearest to `wanted`."""
    shapes = [{"width": 8 * width, "depth": 2, "heads": 2} for width in range(1, 24)]
    best = min(shapes, key=lambda shape: abs(parameters(BACKBONES[kind], **shape) - wanted))
    return BACKBONES[kind](BACKBONES[kind].Config(**best, dropout=0.0), VOCABULARY)


def parameters(kind: Any, **fields: Any) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in kind(kind.Config(**fields), VOCABULARY).parameters())


def median(work: Callable[[], Any], repeats: int) -> float:
    """Median seconds after two runs that choose and compile kernels."""
    for _ in range(2):
        work()
    return statistics.median(wall_seconds(work) for _ in range(repeats))


def scan_row(length: int, name: str, args: argparse.Namespace, bandwidth: float) -> dict[str, Any]:
    """Forward and backward pass of the scan over `args.tokens` tokens."""
    rows, channels = max(1, args.tokens // length), 16 if args.tiny else CHANNELS
    u, delta = (torch.rand(rows, length, channels, device=DEVICE) for _ in range(2))
    A = -torch.rand(channels, STATES, device=DEVICE)
    B, C = (torch.rand(rows, length, STATES, device=DEVICE) for _ in range(2))
    inputs = [x.requires_grad_() for x in (u, delta, A, B, C)]
    d_y = torch.rand_like(u)

    def both() -> None:
        torch.autograd.grad(scans.selective_scan(*inputs)[0], inputs, d_y)

    def forward() -> None:
        with torch.no_grad():
            scans.selective_scan(*inputs)

    with form(name):
        ahead, whole = (median_seconds(work, args.repeats) for work in (forward, both))
    wide, narrow = 4 * u.numel(), 4 * B.numel()
    least = {"forward": 3 * wide + 2 * narrow, "backward": 5 * wide + 4 * narrow}
    seconds = {"forward": ahead, "backward": whole - ahead}
    return {
        "tokens_per_second": rows * length / whole,
        **{f"{part}_ms": 1e3 * seconds[part] for part in least},
        **{f"{part}_bandwidth": least[part] / seconds[part] / bandwidth for part in least},
    }


def train_row(length: int, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Forward and backward pass of a network over `args.tokens` tokens."""
    rows = max(1, args.tokens // length)
    built = network(name, length, args.tiny).to(DEVICE).train()
    if name in COMPILED:
        compile_blocks(built)
    x = torch.randint(7, 11, (rows, length), device=DEVICE)
    reset_peak()

    def step() -> None:
        with emulation(DEVICE, args.precision), autocast(DEVICE, args.precision):
            logits = built.logits(built.features(x))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), x.flatten())
        loss.backward()
        built.zero_grad(set_to_none=True)

    with form(name):
        seconds = median(step, args.repeats)
    return {
        "parameters": sum(p.numel() for p in built.parameters()),
        "rows": rows,
        "tokens_per_second": rows * length / seconds,
        "peak_gib": peak_gib(),
    }


@torch.inference_mode()
def decode_row(length: int, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Time of one more token after `length` tokens, and memory; `args.rows` texts at a time."""
    built = network(name, length, args.tiny).to(DEVICE).eval()
    tokens = torch.randint(7, 11, (args.rows, length), device=DEVICE)
    state = built.new_state(args.rows, length + 1024)
    reset_peak()
    with form(name):
        built.features(tokens, state=state)
        seconds = median(lambda: built.features(tokens[:, :1], state=state), 8 * args.repeats)
    return {"ms_per_token": 1e3 * seconds, "rows": args.rows, "peak_gib": peak_gib()}


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Tables as Markdown: training, decoding and the scan, one column for each length."""
    by_row = {row["row"]: row for row in rows if "length" in row}
    lengths = sorted({row["length"] for row in by_row.values()})

    def lines(part: str, cell: Callable[[dict[str, Any]], str]) -> Iterator[list[str]]:
        for name in (name for kind, name in ORDER if kind == part):
            cells = [by_row.get(f"{part}-{length}-{name}", {}) for length in lengths]
            if any(cells):
                shown = ("error" if "error" in row else cell(row) if row else "" for row in cells)
                yield [name, *shown]

    def million(row: dict[str, Any]) -> str:
        return f"{row['tokens_per_second'] / 1e6:.2f} ({row['peak_gib']:.1f})"

    def milliseconds(row: dict[str, Any]) -> str:
        return f"{row['ms_per_token']:.2f}"

    def scan(row: dict[str, Any]) -> str:
        ms = "{forward_ms:.2f} + {backward_ms:.2f}".format(**row)
        return ms + " ({forward_bandwidth:.1%}, {backward_bandwidth:.1%})".format(**row)

    for part, title, cell in (
        ("train", "training, million bases a second (peak GiB)", million),
        ("decode", "decoding, ms a base", milliseconds),
        ("scan", "scan, ms forward + backward (share of a copy's bandwidth)", scan),
    ):
        yield ""
        yield from markdown([title, *(f"{length:,}" for length in lengths)], lines(part, cell))


def main() -> None:
    parser = script_parser(__doc__, "out", "tiny")
    add = parser.add_argument
    lengths = [1 << power for power in (10, 12, 14, 16, 17)]
    add("--lengths", type=int, nargs="+", default=lengths)
    add("--tokens", type=int, default=1 << 17, help="tokens of a training step")
    add("--rows", type=int, default=1, help="texts that are decoded together")
    add("--repeats", type=int, default=5)
    add("--precision", choices=("fp32", "bf16"))
    add("--parts", nargs="+", default=["scan", "train", "decode"])
    add("--table", action="store_true", help="prints the rows of --out as tables")
    args = parser.parse_args()
    if args.table:
        print("\n".join(tables(read_rows(args.out))))
        return
    args.precision = args.precision or ("bf16" if DEVICE.type == "cuda" else "fp32")
    if args.tiny:
        args.lengths, args.tokens, args.repeats = [32], 64, 1
    done = {row["row"] for row in read_rows(args.out)} if args.out and args.out.exists() else set()
    report = Report(args.out)
    machine = machine_row(args.tiny or DEVICE.type == "cpu")
    report.write(machine)
    bandwidth = 1e9 * machine["copy_gb_per_second"]
    kernels = DEVICE.type == "cuda" and scans.scan_kernels_available()
    measures = {
        "scan": partial(scan_row, args=args, bandwidth=bandwidth),
        "train": partial(train_row, args=args),
        "decode": partial(decode_row, args=args),
    }
    for part, name in ORDER:
        if part not in args.parts or (name in ("kernels", *COMPILED) and not kernels):
            continue
        # compilation is slow, so only one length has compiled networks
        for length in args.lengths[:1] if name in COMPILED else args.lengths:
            row = f"{part}-{length}-{name}"
            if row in done:
                continue
            with alone():
                try:
                    found = measures[part](length, name)
                except ModuleNotFoundError as error:
                    print(f"{row} is left out: {error}", file=sys.stderr)
                    continue
                except RuntimeError as error:  # out of memory, or a kernel that does not run
                    found = {"error": (str(error).splitlines() or [type(error).__name__])[0]}
                report.write({"row": row, "length": length, **found})
