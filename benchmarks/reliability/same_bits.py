"""Texts, training losses, bounds and log-probabilities of a checkout, to hold a refactoring against its start.

    PYTHONPATH=OLD/src python benchmarks/reliability/same_bits.py --out old.json
    PYTHONPATH=src python benchmarks/reliability/same_bits.py --out new.json
    python benchmarks/reliability/same_bits.py --compare old.json new.json

Both runs must be on one machine with one number of threads, since processors round differently. The comparison
prints a line for each group: equal to the bit, or the largest difference. It exits with 1 if anything differs.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import unmask
from benchmarks.room import script_parser
from unmask.files.jsonl import JsonLines

TEXTS = {
    "stories": ("ancestral", "confidence", "refine", "spread", "first_hitting"),
    "wiki": ("ancestral", "confidence", "refine", "spread", "first_hitting"),
    "code": ("ancestral", "confidence", "refine", "spread", "first_hitting"),
    "stories-ar": ("left_to_right",),
}
STEPLESS = ("first_hitting", "left_to_right")
SEEDS = 20
GAPPED = {
    "stories": "Tom was [MASK:3] because his [MASK] was lost.",
    "wiki": "The city of [MASK:2] lies on the [MASK:3].",
    "code": "def mean(values): return[MASK:4] / len(values)",
}
SENTENCE = "Once upon a time, there was a little dog named Spot. He ran to the red ball."
READS = {"time_conditioning": True}
VECTORS = {"time_conditioning": True, "gate": 1}
# settings of each method beside those of SMALL
METHODS: dict[str, dict[str, Any]] = {
    "mdlm": {},
    "mdlm uniform": {"method.loss_weight": "uniform"},
    "mdlm learned": {"schedule": "learned"},
    "mdlm modern muon": {"backbone": {"name": "modern_dit"}, "training.optimizer": "muon"},
    "mdlm bimamba": {"backbone": {"name": "bimamba"}},
    "autoregressive hyena": {"backbone": {"name": "hyena"}},
    "sedd": {"backbone": READS},
    "d3pm": {"method.copied": 0.125, "time_sampler": "importance"},
    "autoregressive": {"backbone": {"name": "causal"}},
    "autoregressive mamba": {"backbone": {"name": "mamba"}},
    "mlm": {},
    "udlm": {"backbone": READS},
    "duo": {"backbone": READS, "method.curriculum": 20},
    "d3pm_uniform": {"backbone": READS},
    "diffusion_bert": {},
    "sundae": {},
    "plaid": {"backbone": VECTORS},
    "diffusion_lm": {"backbone": VECTORS},
    "analog_bits": {"backbone": VECTORS},
    "ssd_lm": {"backbone": VECTORS},
}
SMALL: dict[str, Any] = {
    "data.train": "builtin:pydoc",
    "data.tokenizer": {"kind": "bpe", "size": 300},
    "data.length": 32,
    "training.steps": 50,
    "training.batch": 8,
    "training.warmup": 10,
    "training.validate_every": 25,
    "training.validation_rows": 32,
    "training.log_every": 1,
    "training.save_every": 50,
    "training.precision": "fp32",
}
NETWORK = {"width": 32, "depth": 1}
ATTENTION = {"dropout": 0.1, "heads": 2}
MODERN = {**ATTENTION, "condition_width": 8}
MORE = {"dit": ATTENTION, "causal": ATTENTION, "modern_dit": MODERN}


def texts() -> Iterator[tuple[str, Any]]:
    """Texts of the shipped models by sampler, and their fillings."""
    for name, samplers in TEXTS.items():
        model = unmask.load(name)
        for sampler in samplers:
            steps = {} if sampler in STEPLESS else {"steps": 12}
            found = model.generate(length=40, n=SEEDS, seed=0, sampler=sampler, **steps)
            yield f"texts/{name}/{sampler}", [result.text for result in found]
        if name in GAPPED:
            found = model.fill(GAPPED[name], n=SEEDS, seed=0)
            yield f"fill/{name}", [result.text for result in found]
    model = unmask.load("stories")
    found = model.generate(regex="(Tom|Lily) found a [a-z]+\\.", length=16, n=8, seed=1)
    yield "texts/stories/regex", [result.text for result in found]
    found = model.edit(SENTENCE, remask_uncertain=4, n=8, seed=1)
    yield "texts/stories/edit", [result.text for result in found]
    model = unmask.load("dna")
    yield "texts/dna", [result.text for result in model.generate(length=64, n=8, seed=0)]


def bounds() -> Iterator[tuple[str, Any]]:
    """Bounds of a sentence with their errors."""
    for name in ("stories", "wiki", "code", "stories-ar"):
        bound = unmask.load(name).perplexity(SENTENCE, draws=16, seed=3)
        yield f"bounds/{name}", [bound.nats, bound.error]
    bound = unmask.load("stories").perplexity(SENTENCE, orders=4, seed=3)
    yield "bounds/stories/orders", [bound.nats, bound.error]


def log_probabilities() -> Iterator[tuple[str, Any]]:
    """The denoiser's log-probabilities of masked tokens, as a hash of their bits."""
    for name in ("stories", "wiki", "code", "dna"):
        model = unmask.load(name)
        size, mask = model.tokenizer.vocabulary.size, model.tokenizer.vocabulary.mask_id
        z = torch.randint(0, min(size, mask), (2, 64), generator=torch.Generator().manual_seed(5))
        z[:, ::3] = mask
        at = (z == mask).nonzero(as_tuple=True)
        with torch.inference_mode():
            found = model.method.denoiser()(z, torch.full((2,), 0.5), at)
        yield f"log-probabilities/{name}", hashlib.sha256(found.numpy().tobytes()).hexdigest()


def losses(folder: Path) -> Iterator[tuple[str, Any]]:
    """50 training losses of each method, and the bounds of its validations."""
    for label, given in METHODS.items():
        method = label.split()[0]
        settings = {**SMALL, "method": method, **given}
        network = {"name": "dit", **NETWORK, **settings.pop("backbone", {})}
        settings["backbone"] = network | MORE.get(network["name"], {})
        run = folder / label.replace(" ", "-")
        unmask.train(nested(settings), run, say=lambda line: None)
        log = list(JsonLines(run / "log.jsonl").read())
        yield f"losses/{label}", [row["loss"] for row in log if "loss" in row]
        measured = [row["validation"]["nats"] for row in log if "validation" in row]
        yield f"validations/{label}", measured


def nested(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted name as a configuration."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        section, _, field = name.partition(".")
        if not field:
            given = found.get(section, {})
            found[section] = {**given, **(value if isinstance(value, dict) else {"name": value})}
        else:
            found.setdefault(section, {})[field] = value
    return found


def compare(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Prints a line for each group of results; True if all are equal."""
    same = True
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if a == b:
            print(f"equal      {name}")
            continue
        same = False
        if a is None or b is None:
            print(f"missing    {name}")
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            numbers = all(isinstance(each, int | float) for each in (*a, *b))
            pairs = list(zip(a, b, strict=True))
            most = max(abs(x - y) for x, y in pairs) if numbers else sum(x != y for x, y in pairs)
            print(
                f"different  {name}: {f'{most:.2g} at most' if numbers else f'{most} of {len(a)}'}"
            )
        else:
            print(f"different  {name}")
    return same


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--out", type=Path, help="JSON file of the results")
    add("--only", help="a part: texts, bounds, log_probabilities or losses")
    add("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    args = parser.parse_args()
    if args.compare:
        sys.exit(not compare(*(json.loads(file.read_text()) for file in args.compare)))
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        parts = {
            "bounds": bounds,
            "log_probabilities": log_probabilities,
            "losses": lambda: losses(Path(folder)),
            "texts": texts,
        }
        for part in [args.only] if args.only else parts:
            for name, value in parts[part]():
                found[name] = value
                print(name, flush=True)
    args.out.write_text(json.dumps(found, indent=0))


if __name__ == "__main__":
    main()
