"""Tiny models of pairs, which reverse words, trained in seconds."""

import json
import random
from pathlib import Path

import unmask
from unmask.config.run_config import resolve

LETTERS = "abcdefgh"
chance = random.Random(0)
WORDS = sorted({"".join(chance.choices(LETTERS, k=chance.randint(2, 3))) for _ in range(4000)})
chance.shuffle(WORDS)
UNSEEN, SEEN = WORDS[:80], WORDS[80:]
LENGTH = 10
SETTINGS = {
    "data.source_field": "word",
    "data.target_field": "turned",
    "data.packing": "pad",
    "data.length": LENGTH,
    "data.tokenizer.kind": "characters",
    "training.steps": 200,
    "training.batch": 64,
    "training.lr": 6e-3,
    "training.warmup": 50,
    "training.decay": "cosine",
    "training.ema": 0.98,
    "training.validate_every": 0,
    "training.save_every": 1000,
    "training.sample_every": 200,
    "training.device": "cpu",
}
SHAPE = {"width": 48, "depth": 2, "heads": 4, "dropout": 0}
OWN = {
    "mdlm": {"backbone": "modern_dit", "training.steps": 150},
    "autoregressive": {"backbone": "causal", "data.fill_target": "false", "training.steps": 100},
}


def turned(word: str) -> str:
    return word[::-1].upper()


def write_pairs(path: Path, words: list[str]) -> str:
    lines = (json.dumps({"word": word, "turned": turned(word)}) + "\n" for word in words)
    path.write_text("".join(lines))
    return str(path)


def train_pairs(folder: Path, method: str) -> Path:
    """The run folder of a model that reverses words."""
    settings = {
        **SETTINGS,
        "data.train": write_pairs(folder / "train.jsonl", [*SEEN, "a" * 12]),
        "data.valid": write_pairs(folder / "valid.jsonl", UNSEEN),
        "data.cache": str(folder / "cache"),
        "method": method,
        **OWN[method],
        **{f"backbone.{name}": value for name, value in SHAPE.items()},
    }
    said = []
    config = resolve({}, [(name, str(value)) for name, value in settings.items()])
    unmask.train(config, folder / "run", say=said.append)
    assert "left out: 1 training and 0 validation pairs, which are longer than 10 tokens" in said
    return folder / "run"
