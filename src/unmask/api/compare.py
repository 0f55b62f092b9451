"""Samplers side by side: quality and diversity against network calls and seconds, beside real text."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from unmask.api.model import Model
from unmask.api.rows import DATA, Conditions, Kept, Row, Setting
from unmask.config import to_dict
from unmask.data import load_data
from unmask.errors import UnmaskError
from unmask.evaluation import Quality, measure, visible
from unmask.samplers import SAMPLERS

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
    grid = settings(model, samplers, steps, temperatures)
    _check(model, judge, n, length, batch)
    conditions = Conditions(
        digest(model), digest(judge), n, length, top_k, top_p, seed, batch, _device(model)
    )
    kept = Kept(file, conditions)
    rows = []
    for setting in [Setting(DATA), *grid]:
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
    """The points to measure, in order: samplers without steps once at each temperature."""
    for temperature in temperatures:
        if not (math.isfinite(temperature) and temperature >= 0):
            raise UnmaskError(f"temperature must be 0 or more, not {temperature}")
    for count in steps:
        if count < 1:
            raise UnmaskError(f"steps must be 1 or more, not {count}")
    return list(
        dict.fromkeys(
            Setting(sampler, count, temperature)
            for sampler in (default_samplers(model) if samplers is None else samplers)
            for temperature in temperatures
            for count in (steps if _has_steps(sampler, model) else [None])
        )
    )


def default_samplers(model: Model) -> list[str]:
    """Every sampler that the model can run; windows are for longer texts."""
    if model.method.order == "left_to_right":
        return ["left_to_right"]
    return [name for name in SAMPLERS if name != "semi_autoregressive"]


def digest(model: Model) -> str:
    """A hash of all that a model's texts depend on: weights, tokenizer, configuration."""
    described = [to_dict(model.config), model.tokenizer.fingerprint]
    state = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, tensor in model.method.state_dict().items():
        state.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        state.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return state.hexdigest()[:16]


def _has_steps(sampler: str, model: Model) -> bool:
    """Whether a sampler has a number of steps; one that the model cannot run is refused."""
    name, _, given = sampler.partition(":")
    names = {field.name for field in fields(SAMPLERS[name])}  # type: ignore[arg-type]
    if model.method.order == "left_to_right" and name not in (
        "left_to_right",
        "semi_autoregressive",
    ):
        raise UnmaskError("an autoregressive model has one sampler: left_to_right")
    if any(part.split("=")[0].strip() == "steps" for part in given.split(",")):
        raise UnmaskError(f"{sampler}: steps are given for all samplers together, not in one")
    return "steps" in names


def _check(model: Model, judge: Model, n: int, length: int, batch: int) -> None:
    for name, value, least in (("n", n, 1), ("length", length, 2), ("batch", batch, 1)):
        if value < least:
            raise UnmaskError(f"{name} must be {least} or more, not {value}")
    if judge.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise UnmaskError(
            "the judge has another tokenizer than the model: choose one that was trained on the same tokens"
        )


def _device(model: Model) -> str:
    device = next(model.method.parameters()).device
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
    c = conditions
    assert setting.temperature is not None
    model.generate(length=2)  # the first call of a process pays for the device's start
    results = model.generate(
        n=c.n,
        length=c.length,
        steps=setting.steps,
        sampler=setting.sampler,
        temperature=setting.temperature,
        top_k=c.top_k,
        top_p=c.top_p,
        seed=c.seed,
        batch=c.batch,
    )
    return _Made(
        texts=[visible(result.ids, model.tokenizer.vocabulary) for result in results],
        calls=sum(result.calls for result in results) / c.n,
        seconds=sum(result.seconds for result in results[:: c.batch]) / c.n,
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
    return _Made([visible(text, model.tokenizer.vocabulary) for text in texts])


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
