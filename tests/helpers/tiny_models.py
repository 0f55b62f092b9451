"""Tiny models of sentences about who sat where, trained in seconds."""

import shutil
from pathlib import Path

import pytest

import unmask
from unmask.config.run_config import resolve
from unmask.methods.method import METHODS

PLACES = ["mat", "log", "old red chair", "hill by the sea", "warm stone of the wall"]
TEXTS = [f"The {who} sat on the {place}." for who in ("cat", "dog", "queen") for place in PLACES]
LENGTH = 24
PROMPTS = ["", "The", "The cat", "The dog sat", "The queen sat on", "Th", "The cat sat on the", "T"]
TINY = [
    ("data.separator", "line"),
    ("data.packing", "split"),
    ("data.length", str(LENGTH)),
    ("data.holdout", "0.2"),
    ("training.steps", "40"),
    ("training.batch", "16"),
    ("training.lr", "0.01"),
    ("training.warmup", "5"),
    ("training.ema", "0.8"),
    ("training.validate_every", "20"),
    ("training.save_every", "20"),
    ("training.device", "cpu"),
]
SHAPE = [("width", "32"), ("depth", "1"), ("heads", "2"), ("dropout", "0")]


_kept: dict[tuple[str, str, str], Path] = {}  # unchanged copies, because tests may change theirs


def train_tiny(folder: Path, tokenizer: str, method: str, backbone: str) -> Path:
    """The run folder of a tiny model. Each kind is trained once."""
    kind = (tokenizer, method, backbone)
    if kind in _kept:
        return Path(shutil.copytree(_kept[kind], folder / "run"))
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(TEXTS), encoding="utf-8")
    timed = METHODS[method].capabilities.noise_level
    choices = [
        ("data.train", str(corpus)),
        ("data.cache", str(folder / "cache")),
        ("data.tokenizer.kind", tokenizer),
        ("data.tokenizer.size", "300"),
        ("method", method),
        ("backbone", backbone),
        *((f"backbone.{name}", value) for name, value in SHAPE),
        *([("backbone.time_conditioning", "true")] if timed else []),
    ]
    unmask.train(resolve({}, [*TINY, *choices]), folder / "run", say=lambda line: None)
    _kept[kind] = Path(shutil.copytree(folder / "run", folder / "kept"))
    return folder / "run"


def content(result: unmask.Result) -> tuple:
    """All fields of a result except its time."""
    return result.text, result.ids, result.calls, result.seed


def one_line(caught: pytest.ExceptionInfo) -> str:
    """The message of a raised error. It must be one line."""
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message
