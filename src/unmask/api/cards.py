"""What a model's card says: its figures, measured here, and samples that nobody picked."""

import platform
import shlex
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from unmask import __version__, recipes, shipped
from unmask.api.comparing import compare, usual_samplers
from unmask.api.judging import digest
from unmask.api.model import Model
from unmask.api.publishing import published
from unmask.api.rows import DATA, Row
from unmask.config.run import RunConfig, dump_yaml, flatten, load_recipe, resolve
from unmask.errors import UnmaskError
from unmask.evaluation.judges.causal_lm import CausalJudge
from unmask.files.storage import MANIFEST, atomic_folder, read_json, write_json
from unmask.likelihood.bound import Bound

PICTURED = range(10)  # the seeds whose texts are shown
_MACHINE = {"training.device", "data.cache"}  # what says where, not what, a run computes


def measure_card(
    model: Model,
    data: str,
    judge: Model | CausalJudge | str,
    *,
    draws: int = 8,
    n: int = 200,
    batch: int = 32,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """The bound on `data`, what `n` texts are like to a judge, and a text of each of ten seeds."""
    say(f"the bound on {data}, {draws} draw{'s' * (draws > 1)}")
    bound = model.perplexity(data, draws=draws, batch=batch)
    say(f"{n} texts")
    rows = _texts(model, judge, n, say)
    texts = model.generate(n=len(PICTURED), seed=list(PICTURED))
    return {
        "method": model.config.method.name,
        "backbone": model.config.backbone.name,
        "parameters": sum(p.numel() for p in model.method.parameters()),
        "vocabulary": model.tokenizer.vocabulary.size,
        "length": model.length,
        "bound": _bound(model, bound, data),
        "texts": [row.to_dict() for row in rows],
        "device": model.device.type,
        "samples": [{"seed": text.seed, "text": text.text} for text in texts],
        "configuration": dump_yaml(published(model.config)),
        "weights": digest(model),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {
            "unmask": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }


def training_command(config: RunConfig, recipe: str) -> str | None:
    """How a run of a recipe is made: every setting that is not the recipe's, files by their names.

    None where only a file can say it: a command line names one corpus, not a mixture.
    """
    own, usual = flatten(config), flatten(resolve(load_recipe(recipe)))
    if own.keys() != usual.keys():
        raise UnmaskError(f"this model was not trained by the recipe {recipe}: name another")
    told = flatten(published(config))
    differing = {
        name: told[name] for name in own if own[name] != usual[name] and name not in _MACHINE
    }
    if isinstance(differing.get("data.train"), list):
        return None
    options = [f"--{name} {shlex.quote(_spelled(value))}" for name, value in differing.items()]
    return " ".join(["unmask train", recipe, *options])


def _spelled(value: Any) -> str:
    """A setting as the command line takes it."""
    if isinstance(value, list):
        return ",".join(map(_spelled, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def likely_recipe(folder: Path, config: RunConfig) -> str | None:
    """The recipe that a folder is named after, if its components have the model's settings."""
    name = shipped.recipe(folder.name)
    if name not in recipes.names():
        return None
    own, usual = flatten(config), flatten(resolve(load_recipe(name)))
    return name if own.keys() == usual.keys() else None


def write_card(folder: Path, page: str, facts: dict[str, Any]) -> None:
    """Puts a card into an exported folder: for people, and for `unmask models`."""
    model = read_json(folder / shipped.MODEL)
    with atomic_folder(folder) as new:
        shutil.copytree(folder, new, dirs_exist_ok=True)
        (new / MANIFEST).unlink()
        facts = {**facts, "precision": model.get("precision", "fp32")}
        write_json(new / shipped.CARD, facts)
        (new / "README.md").write_text(page, encoding="utf-8")


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
    """The model's usual texts, and real ones where its validation text is at hand."""
    usual = model.defaults
    length = usual.get("length", model.length)
    samplers = [usual["sampler"]] if "sampler" in usual else usual_samplers(model)
    rows = compare(
        model,
        samplers,
        [usual.get("steps", length)],
        n=n,
        length=length,
        temperatures=[usual.get("temperature", 1.0)],
        top_k=usual.get("top_k"),
        top_p=usual.get("top_p"),
        judge=judge,
        say=say,
    )
    return sorted(rows, key=lambda row: row.sampler == DATA)
