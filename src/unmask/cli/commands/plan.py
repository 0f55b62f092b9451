"""unmask plan: memory, time and strategy that a recipe needs on a number of GPUs."""

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from unmask.cli.parser import Commands, add_examples

if TYPE_CHECKING:
    from unmask.runs.plan import Option, Plan

GROUP = "train"

_RATE, _BANDWIDTH = 673.0, 4.25  # of one H200
_ASSUMED = """\
measured (one H200, torch 2.11, bf16, compiled; benchmarks/speed/plan.py compares 19 runs with it):
  {measured}the share of the matrix rate that attention reaches, bytes moved and kept per token
{given}assumed: the traffic of FSDP; {usable:.0%} of the memory usable; {network:g} GB/s between GPUs,
  hidden behind the computation at best and after it at worst; no failures
planned in bf16 and compiled: --training.precision bf16 --training.compile true"""


def add(commands: Commands) -> None:
    summary = "estimate memory, time and strategy of a recipe on a number of GPUs"
    parser = commands.add_parser("plan", overrides=True, help=summary, description=summary)
    option = parser.add_argument_group("machine").add_argument
    option("--gpus", type=int, default=1, metavar="N", help="number of GPUs (1)")
    option("--memory", type=float, default=80.0, metavar="GIB", help="memory of one GPU, GiB (80)")
    option(
        "--rate",
        type=float,
        default=_RATE,
        metavar="TFLOPS",
        help="rate of bf16 matrix products, TFLOP/s (673)",
    )
    option(
        "--bandwidth",
        type=float,
        default=_BANDWIDTH,
        metavar="TBS",
        help="bandwidth of the GPU's memory, TB/s (4.25)",
    )
    option(
        "--network",
        type=float,
        default=200.0,
        metavar="GBS",
        help="NCCL's bus bandwidth, GB/s (200)",
    )
    parser.add_argument(
        "--vocabulary",
        type=int,
        metavar="N",
        help="size of the vocabulary, for a tokenizer that is not built yet",
    )
    add_examples(
        parser,
        "unmask plan owt --gpus 8",
        "unmask plan demo --gpus 1 --memory 24 --backbone.width 512",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    import torch

    from unmask.errors import UnmaskError
    from unmask.runs.auto_recipe import fitted
    from unmask.runs.plan import USABLE, Machine, plan

    for name in ("memory", "rate", "bandwidth", "network"):
        if not 0 < getattr(args, name) < float("inf"):
            raise UnmaskError(f"--{name} must be above 0 and finite, not {getattr(args, name)}")
    config = fitted(args.recipe, args.overrides, say=None)
    machine = Machine(args.memory, args.rate, args.bandwidth, args.network)
    found = plan(config, args.gpus, machine, args.vocabulary)
    if args.gpus == 1 and not torch.cuda.is_available():
        print(
            "this machine has no CUDA device: the plan is for GPUs such as an H200", file=sys.stderr
        )
    _print(found)
    rates = f"{args.rate:g} TFLOP/s and {args.bandwidth:g} TB/s"
    own = (args.rate, args.bandwidth) != (_RATE, _BANDWIDTH)
    measured, given = ("", f"given: {rates}\n") if own else (f"{rates}, ", "")
    print(_ASSUMED.format(usable=USABLE, network=args.network, measured=measured, given=given))


def _print(found: "Plan") -> None:
    from unmask.runs.plan import GIB

    work, best = found.work, found.best
    print(
        f"{work.parameters / 1e6:,.1f}M parameters ({work.depth} × {work.width}, vocabulary "
        f"{work.vocabulary:,}); {found.steps:,} steps of {found.batch} × {work.length} tokens, "
        f"{_billions(found.tokens)} in all; {found.gpus} × {found.machine.memory:g} GiB"
    )
    _table(found)
    if best is None:
        print(
            "no strategy fits into memory: give more GPUs with fsdp, a shorter data.length or a "
            "smaller backbone"
        )
        return
    parts = {name: value / GIB for name, value in vars(best.memory).items() if value}
    print(f"\n{_name(best)}, GiB per GPU: " + ", ".join(f"{n} {v:.2f}" for n, v in parts.items()))
    rates = [found.tokens / found.steps / seconds for seconds in (best.most, best.least)]
    print(
        f"{rates[0]:,.0f} to {rates[1]:,.0f} tokens per second; the run takes "
        f"{_time(found.steps * best.least)} to {_time(found.steps * best.most)}"
    )
    print(f"set: {_settings(best)}\n")


def _table(found: "Plan") -> None:
    from rich.table import Table

    from unmask.cli.output.tables import print_whole
    from unmask.runs.plan import GIB

    table = Table(box=None)
    names = ("strategy", "micro-batch", "passes", "GiB", "compute, ms", "network, ms", "")
    for name in names:
        table.add_column(name, justify="left" if name in ("strategy", "") else "right")
    for option in found.options:
        mark = "does not fit" if not option.fits else "best" if option is found.best else ""
        cells = [option.micro_batch, option.passes, f"{option.memory.total / GIB:.1f}"]
        times = [f"{1e3 * seconds:,.1f}" for seconds in (option.compute, option.communication)]
        table.add_row(_name(option), *map(str, cells), *times, mark)
    print_whole(table)


def _name(option: "Option") -> str:
    return option.strategy + (" + recomputing" if option.recompute else "")


def _settings(option: "Option") -> str:
    parts = [f"--distributed.strategy {option.strategy}"] * (option.strategy != "plain")
    parts.append(f"--training.micro-batch {option.micro_batch}")
    parts += ["--training.checkpoint-activations true"] * option.recompute
    return " ".join(parts)


def _billions(tokens: int) -> str:
    return f"{tokens / 1e9:,.0f}B" if tokens >= 1e10 else f"{tokens / 1e9:.2g}B"


def _time(seconds: float) -> str:
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
