"""Samplers side by side: quality and diversity against network calls and seconds, beside real text."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from unmask.api.model import Model
from unmask.api.rows import DATA, Conditions, Kept, Row, Setting
from unmask.api.sampling import Sampling, choose_sampler
from unmask.config import to_dict
from unmask.data import load_data
from unmask.errors import UnmaskError
from unmask.evaluation import Quality, measure, visible
from unmask.samplers import SAMPLERS, SemiAutoregressive

STEPS = (8, 16, 32, 64, 128)


def compare(
    model: Model,
    samplers: Sequence[str] | None = None,
    steps: Sequence[int] = STEPS,
    *,
    n: int = 64,
    length: int | None = None,
    temperatures: Sequence[float] = (1.0,),
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    judge: Model | None = None,
    batch: int = 64,
    file: Path | None = None,
    say: Callable[[str], None] = print,
    done: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Writes `n` texts with every sampler, number of steps and temperature, and measures them.

    The judge is the model itself unless given. `done` gets each row as it is measured; a `file` of
    JSON lines keeps them, and what it holds already is not measured again.
    """
    judge = model if judge is None else judge
    length = model.length if length is None else length
    points = settings(model, samplers, steps, temperatures)
    conditions = Conditions(
        digest(model), digest(judge), n, length, top_k, top_p, seed, batch, _device(model)
    )
    _check(model, judge, points, conditions)
    kept = Kept(file, conditions)
    if kept.others:
        say(f"{file} keeps {kept.others} rows of another model, n, length or machine: not shown")
    rows = []
    for setting in [Setting(DATA), *points]:
        row = kept.rows.get(setting)
        if row is None:
            made = _made(model, setting, conditions, say)
            if made is None:
                continue
            quality = measure(made.texts, judge.method, judge.length, seed=seed)
            row = _row(setting, made, quality)
            kept.add(row)
        rows.append(row)
        done(row)
    return rows


def settings(
    model: Model,
    samplers: Sequence[str] | None,
    steps: Sequence[int],
    temperatures: Sequence[float],
) -> list[Setting]:
    """The points to measure, in order: a sampler without steps once at each temperature."""
    return list(
        dict.fromkeys(
            Setting(sampler, count, temperature)
            for sampler in (default_samplers(model) if samplers is None else samplers)
            for temperature in temperatures
            for count in (steps if _takes_steps(model, sampler) else [None])
        )
    )


def default_samplers(model: Model) -> list[str]:
    """Every sampler that the model can run; windows are for longer texts."""
    return [name for name in SAMPLERS if name != "semi_autoregressive" and _runs(model, name)]


def digest(model: Model) -> str:
    """A hash of all that a model's texts depend on: weights, tokenizer, configuration."""
    described = [to_dict(model.config), model.tokenizer.fingerprint]
    state = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, tensor in model.method.state_dict().items():
        state.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        state.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return state.hexdigest()[:16]


def _runs(model: Model, sampler: str) -> bool:
    try:
        model.stream(sampler=sampler)
    except UnmaskError:
        return False
    return True


def _takes_steps(model: Model, sampler: str) -> bool:
    """Whether a sampler is to be told how many steps: not if it has none, or says so itself."""
    chosen = choose_sampler(Sampling(sampler=sampler), model.method.order == "left_to_right", 1)
    inner = chosen.inner if isinstance(chosen, SemiAutoregressive) else chosen
    return hasattr(inner, "steps") and not re.search(r"[:,]steps=", sampler)


def _check(model: Model, judge: Model, points: list[Setting], conditions: Conditions) -> None:
    """Every mistake before the first network call."""
    if judge.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise UnmaskError(
            "the judge has another tokenizer: take one that was trained on the same tokens"
        )
    for point in points:
        options = _options(point, conditions)
        options["n"] = min(conditions.n, max(conditions.batch, 1))
        model.stream(**options)  # checks its options, and computes nothing yet


def _options(setting: Setting, conditions: Conditions) -> dict[str, Any]:
    """What `generate` is asked for."""
    names = ("n", "length", "top_k", "top_p", "seed", "batch")
    return {**asdict(setting), **{name: getattr(conditions, name) for name in names}}


def _device(model: Model) -> str:
    device = model.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@dataclass(frozen=True)
class _Made:
    """Texts, and what they cost."""

    texts: list[list[int]]
    calls: float | None = None
    seconds: float | None = None


def _made(
    model: Model, setting: Setting, conditions: Conditions, say: Callable[[str], None]
) -> _Made | None:
    if setting.sampler == DATA:
        return _real(model, conditions.n, conditions.length, say)
    return _written(model, setting, conditions)


def _written(model: Model, setting: Setting, conditions: Conditions) -> _Made:
    """The texts of a sampler."""
    model.generate(length=2)  # the first call of a process pays for the device's start
    results = model.generate(**_options(setting, conditions))
    return _Made(
        texts=[visible(result.ids, model.tokenizer.vocabulary) for result in results],
        calls=sum(result.calls for result in results) / len(results),
        seconds=sum(result.seconds for result in results[:: conditions.batch]) / len(results),
    )


def _real(model: Model, n: int, length: int, say: Callable[[str], None]) -> _Made | None:
    """The first rows of the model's validation text, cut to the length of the texts."""
    try:
        rows = load_data(model.config.data, model.tokenizer).valid
    except UnmaskError as error:
        say(f"no row of real text: {error}")
        return None
    count, shorter = min(n, len(rows)), min(length, rows.length)
    if (count, shorter) != (n, length):
        say(f"the real text has {count} rows of {shorter} tokens, not {n} of {length}")
    x, valid = rows[range(count)]
    texts = [row[there][:length].tolist() for row, there in zip(x, valid, strict=True)]
    labels = model.tokenizer.labels.values()
    return _Made([visible(text, model.tokenizer.vocabulary, labels) for text in texts])


def _row(setting: Setting, made: _Made, quality: Quality) -> Row:
    return Row(
        sampler=setting.sampler,
        steps=setting.steps,
        temperature=setting.temperature,
        n=len(made.texts),
        tokens=quality.tokens,
        calls=made.calls,
        seconds=made.seconds,
        nats=quality.nats.value,
        nats_error=quality.nats.error,
        certificate=quality.certificate,
        entropy=quality.entropy.value,
        entropy_error=quality.entropy.error,
        distinct_2=quality.distinct_2.value,
        distinct_2_error=quality.distinct_2.error,
        repetition=quality.repetition.value,
        repetition_error=quality.repetition.error,
    )
