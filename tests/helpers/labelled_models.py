"""Tiny models of texts of two classes."""

import json
from pathlib import Path

import torch

import unmask
from unmask.config.run_config import resolve


def train_labelled(folder: Path, changes: dict[str, str]) -> unmask.Model:
    """A model of texts of eight letters. Three of four letters are that of the class."""
    own = torch.rand(600, 8, generator=torch.Generator().manual_seed(0)) < 0.75
    records = [
        {"kind": "ab"[row % 2], "text": "".join("ab"[(row + (not o)) % 2] for o in letters)}
        for row, letters in enumerate(own.tolist())
    ]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, records)))
    settings = {
        "data.train": str(folder / "texts.jsonl"),
        "data.cache": str(folder / "cache"),
        "data.label_field": "kind",
        "data.label_dropout": "0.3",
        "data.packing": "pad",
        "data.length": "10",
        "data.tokenizer.kind": "characters",
        "backbone": "modern_dit",
        "backbone.width": "32",
        "backbone.depth": "2",
        "backbone.heads": "2",
        "backbone.dropout": "0",
        "training.steps": "200",
        "training.batch": "64",
        "training.lr": "5e-3",
        "training.warmup": "10",
        "training.ema": "0.95",
        "training.validate_every": "0",
        "training.sample_every": "0",
        "training.device": "cpu",
    }
    config = resolve({}, list((settings | changes).items()))
    return unmask.train(config, folder / "run", say=lambda line: None)
