"""A training pass over rows with padding after their texts: by a mask, in segments, and without padding.

    python benchmarks/padded_rows.py                                   # the network of the shipped models
    python benchmarks/padded_rows.py --rows 4 --length 32 --width 32   # small, to try the script

Prints one JSON line for each form and network: milliseconds of a forward and a backward pass, and the difference of its
gradient from that of the mask. The forms take turns. Segments need a GPU and torch 2.10.
"""

import argparse
import json
import statistics
from functools import partial

import torch
from machine import DEVICE, wall_seconds
from torch import Tensor

from unmask.backbones.compile import compile_blocks
from unmask.backbones.dit import ModernDiT
from unmask.runtime.device import autocast
from unmask.runtime.kernels.availability import segments_available
from unmask.vocabulary import Vocabulary


def gradient(network: ModernDiT, x: Tensor, valid: Tensor | None, after: bool) -> Tensor:
    """The gradient of the first matrix, from the features of all valid tokens."""
    network.padded_after = after
    network.zero_grad()
    with autocast(DEVICE, "bf16" if DEVICE.type == "cuda" else "fp32"):
        h = network.features(x, valid=valid)
    weight = 1.0 if valid is None else valid[..., None]
    (h.float().square() * weight).mean().backward()
    found = network.embedding.weight.grad
    assert found is not None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sizes = {"rows": 128, "length": 512, "width": 384, "depth": 10, "repeats": 20}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.manual_seed(0)
    shape = ModernDiT.Config(width=args.width, depth=args.depth, heads=max(1, args.width // 64))
    x = torch.randint(0, 4096, (args.rows, args.length), device=DEVICE)
    ends = torch.randint(args.length * 2 // 3, args.length + 1, (args.rows, 1), device=DEVICE)
    valid = torch.arange(args.length, device=DEVICE) < ends
    forms = {"mask": (valid, False), "no padding": (None, False)}
    if DEVICE.type == "cuda" and segments_available():
        forms["segments"] = (valid, True)
    for compiled in (False, True) if DEVICE.type == "cuda" else (False,):
        network = ModernDiT(shape, Vocabulary.over(4096)).to(DEVICE)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.02)
        if compiled:
            compile_blocks(network)
        runs = {name: partial(gradient, network, x, *form) for name, form in forms.items()}
        found = {name: run().clone() for name, run in runs.items()}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(args.repeats):
            for name, run in runs.items():
                seconds[name].append(wall_seconds(run))
        for name, times in seconds.items():
            row = {"form": name, "compiled": compiled, "ms": 1e3 * statistics.median(times)}
            if name != "no padding":
                difference = (found[name] - found["mask"]).norm() / found["mask"].norm()
                row["difference"] = float(difference)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
