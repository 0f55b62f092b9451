"""Loss, speed and peak memory of four training strategies on one GPU: the losses must agree with the plain run.

    python benchmarks/speed distributed                    # the 12 × 768 network, 64 × 1,024 tokens
    python benchmarks/speed distributed --width 2048 --depth 16 --heads 32 --batch 16    # the plan's 1B
    torchrun --nproc-per-node 2 benchmarks/speed/distributed.py --way fsdp                  # on two GPUs

The strategies are plain, DDP, FSDP2, and FSDP2 with activation checkpointing. Each runs in its own process on the same
random tokens. Each prints one JSON line with the losses, tokens per second and peak memory. On a GPU the network is
compiled and computes in bf16. FSDP stores its blocks in bf16, while the others cast them for each product. Its loss
may therefore differ by the rounding of bf16. `--precision fp32` shows that nothing else differs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.machine import DEVICE, peak_gib, reset_peak
from benchmarks.operations import Setting
from benchmarks.room import again, script_parser
from benchmarks.rows import Report, markdown
from benchmarks.workloads import Unsaved, mdlm, random_tokens
from unmask.runs.plan import GIB, Machine, Work, memory, pass_seconds
from unmask.training.distributed.process_group import joined, local_device
from unmask.training.logs.run_log import read_log
from unmask.training.trainer import TrainingRun
from unmask.training.training_config import DistributedConfig, TrainingConfig

# name: strategy, activation checkpointing
WAYS = {
    "plain": ("plain", False),
    "plain-recompute": ("plain", True),
    "ddp": ("ddp", False),
    "fsdp": ("fsdp", False),
    "fsdp-recompute": ("fsdp", True),
}
BF16, FP32 = 0.02, 1e-4  # largest relative difference of losses


class Rows:
    """Random rows. Each is a function of its step and number, so every process gets the same rows."""

    def __init__(self, setting: Setting, settled: int) -> None:
        self.setting, self.settled = setting, settled

    def batch(self, step: int, part: range) -> Any:
        if step == self.settled:
            reset_peak()
        x, valid = random_tokens(self.setting, self.setting.batch, step)
        return x[part.start : part.stop], valid[part.start : part.stop]

    def given(self, step: int, part: range) -> None:
        return None

    def count(self, step: int, part: range) -> int:
        return len(part) * self.setting.length


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Losses, rate and memory of one strategy, in this process."""
    strategy, recompute = WAYS[args.way]
    network = (args.width, args.depth, args.heads)
    setting = Shape(args.length, args.vocabulary, args.batch, network=network)
    distributed = DistributedConfig(strategy)
    config = TrainingConfig(
        steps=args.steps, batch=args.batch, micro_batch=args.micro_batch, warmup=5, lr=1e-3,
        precision=args.precision, compile=args.compile, device=DEVICE.type, validate_every=0,
        save_every=args.steps + 1, log_every=1, checkpoint_activations=recompute,
    )  # fmt: skip
    method = mdlm(setting)
    with torch.no_grad():  # so that no gate and no head starts at zero
        for parameter in method.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    settled = args.steps // 3
    with TemporaryDirectory() as folder, joined(distributed, local_device(DEVICE)) as group:
        Unsaved(
            method.cpu(), Rows(setting, settled), config,
            TrainingRun(
                Path(folder), say=lambda line: print(line, file=sys.stderr),
                distributed=distributed, group=group,
            ),
        ).fit()  # fmt: skip
        lines = [line for line in read_log(Path(folder)) if "loss" in line] if group.main else []
        world = group.world
    if not lines:
        return {}
    rates = [line["tokens_per_second"] for line in lines if line["step"] > settled]
    return {
        "row": args.way,
        "processes": world,
        "precision": args.precision,
        "parameters": sum(p.numel() for p in method.parameters()),
        "losses": [line["loss"] for line in lines],
        "tokens_per_second": statistics.median(rates),
        "peak_gib": peak_gib(),
        **predicted(args, method, recompute, world),
    }


def predicted(
    args: argparse.Namespace, method: Any, recompute: bool, world: int
) -> dict[str, float]:
    """Memory and rate that `unmask plan` predicts."""
    blocks = sum(p.numel() for p in method.backbone.blocks.parameters())
    parameters = sum(p.numel() for p in method.parameters())
    work = Work(args.width, args.depth, args.length, args.vocabulary, parameters, blocks)
    rows = args.batch // world
    micro = args.micro_batch or rows
    held = memory(work, micro, WAYS[args.way][0], world, rows // micro, recompute)
    seconds = rows // micro * pass_seconds(work, micro, Machine(), recompute)
    tokens = args.batch * args.length
    return {"planned_gib": held.total / GIB, "planned_tokens_per_second": tokens / seconds}


@dataclass(frozen=True)
class Shape(Setting):
    """A setting with a network of any size."""

    network: tuple[int, int, int] = (32, 2, 2)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.network


def compare(rows: dict[str, dict[str, Any]]) -> bool:
    """Prints a table of all strategies against the plain one. Returns True if their losses agree."""
    plain = rows["plain"]
    head = ["way", "loss, last", "largest difference", "tok/s", "planned", "peak GiB", "planned"]
    agree, lines = True, []
    for name, row in rows.items():
        pairs = zip(row["losses"], plain["losses"], strict=True)
        apart = max(abs(a / b - 1) for a, b in pairs)
        agree &= apart < (BF16 if row["precision"] == "bf16" else FP32)
        peak = f"{row['peak_gib']:.1f}" if row["peak_gib"] else ""
        rates = (row["tokens_per_second"], row["planned_tokens_per_second"])
        cells = [name, f"{row['losses'][-1]:.4f}", f"{apart:.1e}", *(f"{x:,.0f}" for x in rates)]
        lines.append([*cells, peak, f"{row['planned_gib']:.1f}"])
    print("", *markdown(head, lines), sep="\n")
    return agree


def main() -> None:
    cuda = DEVICE.type == "cuda"
    parser = script_parser(__doc__, "out")
    add = parser.add_argument
    add("--way", choices=WAYS, help="run one strategy in this process (or under torchrun)")
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    add("--width", type=int, default=768 if cuda else 32)
    add("--depth", type=int, default=12 if cuda else 2)
    add("--heads", type=int, default=12 if cuda else 2)
    add("--length", type=int, default=1024 if cuda else 16)
    add("--vocabulary", type=int, default=50_257 if cuda else 64)
    add("--batch", type=int, default=64 if cuda else 8)
    add("--micro-batch", type=int, default=0)
    add("--steps", type=int, default=30 if cuda else 6)
    add("--precision", choices=("bf16", "fp32"), default="bf16" if cuda else "fp32")
    add("--compile", action=argparse.BooleanOptionalAction, default=cuda)
    args = parser.parse_args()
    if args.way:
        if row := measure(args):
            print(json.dumps(row), flush=True)
        return
    report, rest = Report(args.out), _without(sys.argv[1:], "--ways", "--out")
    for way in args.ways:
        command = [*again(__file__), "--way", way, *rest]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        if done.returncode:
            sys.exit(f"{way} failed")
        report.write(json.loads(done.stdout.splitlines()[-1]))
    if "plain" in report.rows and not compare(report.rows):
        sys.exit("the losses differ")


def _without(arguments: list[str], *options: str) -> list[str]:
    """Arguments without these options and their values."""
    kept, dropping = [], False
    for argument in arguments:
        if argument.startswith("--"):
            dropping = argument.partition("=")[0] in options
        if not dropping:
            kept.append(argument)
    return kept
