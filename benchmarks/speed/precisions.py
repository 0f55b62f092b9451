"""Time of training steps in fp32 and in bf16, for networks of several widths on one device.

    python benchmarks/speed precisions --threads 2

The precisions take turns. Prints one JSON line for each network: the median milliseconds of a step in each precision,
and their ratio. Above 1, bf16 is faster.
"""

import json
import statistics
import time

import torch

from benchmarks.room import script_parser
from unmask.config.components import build_method
from unmask.config.run_config import load_recipe, resolve
from unmask.randomness import RowStream
from unmask.runtime.device import autocast, native_precisions, resolve_device
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

# width, depth, heads, vocabulary, length, batch
NETWORKS = [
    (128, 2, 4, 512, 128, 64),
    (256, 4, 4, 4096, 256, 16),
    (384, 6, 6, 4096, 128, 32),
    (768, 12, 12, 16384, 128, 8),
]


def measure(network: tuple[int, ...], device: torch.device, steps: int) -> dict[str, float]:
    """Median milliseconds of a step in each precision, without the first step of each."""
    width, depth, heads, vocabulary, length, batch = network
    shape = {"width": width, "depth": depth, "heads": heads}
    config = resolve(load_recipe("demo"), [(f"backbone.{k}", str(v)) for k, v in shape.items()])
    torch.manual_seed(0)
    method = build_method(config, Vocabulary.over(vocabulary)).to(device)
    optimizer = torch.optim.AdamW(method.parameters(), 1e-3)
    x = torch.randint(0, vocabulary, (batch, length))
    valid = torch.ones_like(x, dtype=torch.bool)
    seconds: dict[str, list[float]] = {"fp32": [], "bf16": []}
    for step in range(steps + 1):
        for precision, taken in seconds.items():
            start = time.perf_counter()
            noise = method.noise(RowStream(0, step, range(batch), batch), valid)
            with autocast(device, precision):
                loss = method.nll(Batch(x, valid), noise).total
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
            taken.append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(taken[1:]) for name, taken in seconds.items()}


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--device", default="cpu")
    add("--threads", type=int, default=2)
    add("--steps", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = resolve_device(args.device)
    if "bf16" not in native_precisions(device):
        parser.error(f"{device} does not compute bf16 natively: there is nothing to compare")
    for network in NETWORKS:
        found = measure(network, device, args.steps)
        row = {f"{name}_ms": round(value, 1) for name, value in found.items()}
        ratio = round(found["fp32"] / found["bf16"], 2)
        print(
            json.dumps({"width": network[0], "depth": network[1], **row, "ratio": ratio}),
            flush=True,
        )
