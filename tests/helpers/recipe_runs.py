"""Short runs of the recipes of methods, on a few sentences."""

from pathlib import Path

from tiny_models import TEXTS, TINY

import unmask
from unmask.config.run_config import load_recipe, resolve
from unmask.methods.method import METHODS

SHORT = {
    "backbone.width": "32",
    "backbone.depth": "1",
    "backbone.heads": "2",
    "training.steps": "4",
    "training.decay": "constant",
    "training.warmup": "0",
    "training.save_every": "2",
    "training.validate_every": "0",
    "training.sample_every": "0",
}


def recipe(name: str) -> str:
    return f"demo-{name.replace('_', '-')}"


def configured(name: str, folder: Path, **changes: str):
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(TEXTS), encoding="utf-8")
    own = {
        "data.train": str(corpus),
        "data.cache": str(folder / "cache"),
        "data.tokenizer.kind": "characters",
    }
    return resolve(load_recipe(recipe(name)), [*TINY, *(own | SHORT | changes).items()])


def trained(name: str, folder: Path, run: str = "run", **changes: str) -> unmask.Model:
    if METHODS[name].capabilities.distills:
        trained("duo", folder, "start")
        changes = {"init_from": str(folder / "start"), "method.round_steps": "1", **changes}
    if name == "duo":
        changes = {"method.curriculum": "3", **changes}
    unmask.train(configured(name, folder, **changes), folder / run, say=lambda line: None)
    return unmask.load(folder / run, device="cpu")
