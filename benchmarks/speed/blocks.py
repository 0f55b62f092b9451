"""Time and memory of a training step in blocks beside a step of whole rows, and of writing in blocks.

    python benchmarks/speed blocks --width 64 --depth 2 --heads 2 --length 128 --batch 4
    python benchmarks/speed blocks --device cuda --precision bf16 --compile --length 512 --batch 64
    python benchmarks/speed blocks --table blocks_h200.jsonl       # the table of stored lines

The block sizes take turns. Prints one JSON line for each block size: the median milliseconds of a step, tokens of a row
a second, the ratio to the step of whole rows, and on a GPU the peak memory in GiB. Then one line for each block size
with the seconds of a text that is written block by block, `first_hitting` inside: one token a call.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from benchmarks.machine import peak_gib, reset_peak, synchronize
from benchmarks.room import script_parser
from benchmarks.rows import markdown, read_rows
from unmask.backbones.compile import compile_blocks
from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.methods.block_diffusion import BlockDiffusion
from unmask.randomness import RowStream
from unmask.runtime.device import autocast, resolve_device
from unmask.samplers.ancestral import FirstHitting
from unmask.samplers.blocks import Blocks
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

BLOCKS = (0, 4, 16)


def now() -> float:
    """The time after all work of the device."""
    synchronize()
    return time.perf_counter()


def built(args: argparse.Namespace) -> BlockDiffusion:
    """The method on an untrained network whose parameters are not zero."""
    names = ("width", "depth", "heads")
    shape = {f"backbone.{name}": str(getattr(args, name)) for name in names}
    blocks = {"method.blocks": ",".join(map(str, BLOCKS)), "data.length": str(args.length)}
    config = resolve(
        {"method": "block_diffusion", "backbone": "llama"}, list({**shape, **blocks}.items())
    )
    method = build_method(config, Vocabulary.over(args.vocabulary))
    assert isinstance(method, BlockDiffusion)
    for parameter in method.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return method


def trained(method: BlockDiffusion, args: argparse.Namespace, device: torch.device) -> None:
    """Prints the steps of each block size."""
    optimizer = torch.optim.AdamW(method.parameters(), 1e-4)
    x = torch.randint(0, args.vocabulary, (args.batch, args.length))
    batch = Batch(x, torch.ones_like(x, dtype=torch.bool))
    if args.compile:
        compile_blocks(method.backbone, {args.batch})
    taken: dict[int, list[float]] = {block: [] for block in BLOCKS}
    memory: dict[int, float | None] = {}
    for step in range(len(BLOCKS) * (args.steps + 2)):
        block = BLOCKS[step % len(BLOCKS)]
        reset_peak()
        start = now()
        with autocast(device, args.precision):
            loss = method(batch, RowStream(0, step, range(args.batch), args.batch)).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        taken[block].append(now() - start)
        memory[block] = peak_gib()
    whole = statistics.median(taken[0][2:])
    for block, seconds in taken.items():
        middle = statistics.median(seconds[2:])  # the first two of each compile
        row = {"work": "train", "block": block, "ms": round(1e3 * middle, 1)}
        row |= {"tokens_per_second": round(x.numel() / middle), "ratio": round(middle / whole, 2)}
        print(json.dumps(row | {"peak_gib": memory[block]}), flush=True)


def written(method: BlockDiffusion, args: argparse.Namespace, device: torch.device) -> None:
    """Prints the seconds of a text in blocks of each size."""
    method.eval().serve(torch.bfloat16 if args.precision == "bf16" else torch.float32)
    mask_id = method.vocabulary.mask_id
    tokens = torch.full((1, args.length), mask_id, device=device)
    for block in BLOCKS[1:]:
        seconds = []
        for seed in range(3):
            task = SamplingTask([seed], method.schedule, watched=False)
            sampler = Blocks(block, args.length, FirstHitting())
            start = now()
            with torch.inference_mode():
                canvas = Canvas(tokens, mask_id)
                last_frame(sampler.generate(method.denoiser(), canvas, task), canvas)
            seconds.append(now() - start)
        row = {"work": "write", "block": block, "seconds": round(statistics.median(seconds), 3)}
        print(json.dumps(row), flush=True)


def table(file: Path) -> None:
    """Prints the table of stored lines."""
    rows = read_rows(file)
    text = {row["block"]: f"{row['seconds']:.1f}" for row in rows if row["work"] == "write"}
    keys = ("ms", "tokens_per_second", "ratio", "GiB")
    lines = [
        [
            row["block"] or "whole row",
            *(row.get(key, "") for key in keys),
            text.get(row["block"], ""),
        ]
        for row in rows
        if row["work"] == "train"
    ]
    head = ("block", "ms of a step", "tokens of rows a second", "ratio", "GiB", "seconds of a text")
    print("\n".join(markdown(head, lines)))


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--table", type=Path, help="print the table of stored lines")
    add = parser.add_argument
    for name, value in (("width", 576), ("depth", 30), ("heads", 9), ("vocabulary", 49152)):
        add(f"--{name}", type=int, default=value)
    for name, value in (("length", 512), ("batch", 64), ("steps", 10)):
        add(f"--{name}", type=int, default=value)
    add("--device", default="cpu")
    add("--precision", default="fp32", choices=("fp32", "bf16"))
    add("--compile", action="store_true")
    args = parser.parse_args()
    if args.table:
        table(args.table)
        return
    device = resolve_device(args.device)
    torch.manual_seed(0)
    method = built(args).to(device)
    trained(method.train(), args, device)
    written(method, args, device)
