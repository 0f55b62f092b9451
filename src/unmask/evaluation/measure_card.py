"""Measurements for a model card: bound, sample quality, and samples of fixed seeds."""

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from unmask.data.load import pairs_from
from unmask.evaluation.judges.causal_lm import CausalJudge
from unmask.evaluation.suites.sample_quality import compare, usual_samplers
from unmask.evaluation.suites.sample_rows import DATA, Row
from unmask.formats.model_card import card_facts
from unmask.likelihood.bound import Bound
from unmask.model import Model
from unmask.version import __version__

SEEDS = range(10)  # seeds of the samples on the card


def measure_card(
    model: Model,
    data: str,
    judge: Model | CausalJudge | str | None,
    *,
    draws: int = 8,
    n: int = 200,
    batch: int = 32,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Facts of a model card: the bound on `data`, the quality of `n` texts, and ten samples.

    Args:
        model: The model.
        data: Source of held-out text, or of pairs for a model of pairs.
        judge: Judge of the texts; None for a model whose texts no language model can judge.
        draws: Noise draws per row of the bound.
        n: Texts to judge.
        batch: Rows of one pass of the network, for the bound.
        say: Receives a line before each measurement.
    """
    bound = {}
    if model.method.capabilities.score:
        say(f"measuring the bound on {data}, {draws} draw{'s' * (draws > 1)}")
        measured = model.perplexity(source=data, draws=draws, batch=batch)
        bound = {"bound": _bound(model, measured, data)}
    rows = []
    if judge is not None:
        say(f"generating and judging {n} texts")
        rows = _texts(model, judge, n, say)
    return card_facts(model) | {
        **bound,
        "texts": [row.to_dict() for row in rows],
        "device": model.device.type,
        "samples": _samples(model, data),
        "weights": model.digest,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {
            "unmask": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }


def _samples(model: Model, data: str) -> list[dict[str, Any]]:
    """Texts of fixed seeds; a model of pairs writes targets for the first sources of `data`."""
    if not model.conditional:
        texts = model.generate(n=len(SEEDS), seed=list(SEEDS))
        return [{"seed": text.seed, "text": text.text} for text in texts]
    sources = [pair.source for pair in islice(pairs_from(data, model.config.data), len(SEEDS))]
    targets = model.generate(sources, seed=list(SEEDS[: len(sources)]))
    return [
        {"seed": target.seed, "source": source, "text": target.text}
        for source, target in zip(sources, targets, strict=True)
    ]


def _bound(model: Model, bound: Bound, data: str) -> dict[str, Any]:
    figures = bound.to_dict()
    return {
        **{name: figures[name] for name in ("nats", "error", "certificate", "tokens", "bytes")},
        **{name: figures[name] for name in ("perplexity", "perplexity_error", "draws")},
        "bits_per_byte": bound.bits_per_byte,
        "bits_per_byte_error": bound.bits_per_byte_error,
        "data": Path(data).name,
        "packing": model.config.data.packing,
    }


def _texts(
    model: Model, judge: Model | CausalJudge | str, n: int, say: Callable[[str], None]
) -> list[Row]:
    """Rows for texts generated with the model's defaults,
    then for its validation text if readable.
    """
    defaults = model.defaults
    length = defaults.get("length", model.length)
    samplers = [defaults["sampler"]] if "sampler" in defaults else usual_samplers(model)
    rows = compare(
        model,
        samplers,
        [defaults.get("steps", length)],
        n=n,
        length=length,
        temperatures=[defaults.get("temperature", 1.0)],
        judge=judge,
        say=say,
    )
    return sorted(rows, key=lambda row: row.sampler == DATA)
