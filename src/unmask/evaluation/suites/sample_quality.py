"""Comparison of samplers and real text by quality, diversity,
network calls and seconds per text.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.evaluation.judges.causal_lm import CausalJudge
from unmask.evaluation.judges.load_judge import judge_for, load_judge
from unmask.evaluation.metrics.mauve import check_packages
from unmask.evaluation.metrics.text_quality import measure
from unmask.evaluation.suites.sample_rows import DATA, Conditions, Row, Setting, StoredRows
from unmask.evaluation.suites.sample_texts import (
    Real,
    Say,
    Texts,
    generate_texts,
    options,
    real_texts,
)
from unmask.files.tensors import hash_tensors
from unmask.generation.sampler_spec import choose_sampler
from unmask.generation.sampling_params import SamplingParams
from unmask.likelihood.perplexity import Source
from unmask.model import Model
from unmask.samplers.sampler import SAMPLERS

STEPS = (8, 16, 32, 64, 128)
NO_TEXTS = (
    "it generates no text without a source; score it with 'unmask evaluate translation MODEL'"
)
# arguments of `compare`, which `sampling` may not set
_OWN = ("n", "length", "seed", "batch", "sampler", "steps", "temperature")


def compare(
    model: Model,
    samplers: Sequence[str] | None = None,
    steps: Sequence[int] = STEPS,
    *,
    n: int = 64,
    length: int | None = None,
    temperatures: Sequence[float] = (1.0,),
    sampling: Mapping[str, Any] | None = None,
    seed: int = 0,
    judge: Model | CausalJudge | str | None = None,
    data: Source = None,
    batch: int = 64,
    file: Path | None = None,
    say: Say = print,
    done: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Generates `n` texts for every sampler, number of steps and temperature, and measures them.

    Args:
        model: The model that generates.
        samplers: Names, or "name:field=value,…"; by default all that the model can run.
        steps: Numbers of denoising steps.
        n: Texts of each setting.
        length: Tokens of a text; by default the model's length.
        temperatures: Temperatures.
        sampling: Further options of `Model.generate`, such as {"top_p": 0.9}.
        seed: Seed; equal seeds give equal texts.
        judge: A model with the same tokenizer, a causal language model, or an argument of
            `load_judge`; by default the model itself.
        data: Real text, as texts or a source; by default the model's validation text.
        batch: Texts of one batch.
        file: JSON-lines file that stores the rows.
            Rows that it already holds are not measured again.
        say: Receives remarks.
        done: Receives each row as it is measured.

    Returns:
        A row for real text, and one for each setting.
    """
    model.refuse_pairs(NO_TEXTS)
    points = settings(model, samplers, steps, temperatures)
    judge = load_judge(judge) if isinstance(judge, str) else judge
    shared: dict[str, Any] = {"n": n, "length": length, "seed": seed, "batch": batch}
    rows = []
    for row in compared(model, points, judge, data, file, say, sampling=sampling or {}, **shared):
        rows.append(row)
        done(row)
    return rows


def compared(
    model: Model,
    points: list[Setting],
    judge: Model | CausalJudge | None,
    data: Source,
    file: Path | None,
    say: Say,
    *,
    n: int,
    length: int | None,
    sampling: Mapping[str, Any],
    seed: int,
    batch: int,
) -> Iterator[Row]:
    """The rows of `compare`, each as soon as it is measured."""
    for name in _OWN:
        if name in sampling:
            raise UnmaskError(
                f"sampling must not set {name}: set it with the comparison's own option"
            )
    judge = model if judge is None else judge
    conditions = Conditions(
        model=_model_digest(model),
        judge=judge_digest(judge),
        n=n,
        length=model.length if length is None else length,
        sampling=dict(sampling),
        seed=seed,
        batch=batch,
        device=_device(model),
        precision=model.precision,
        judge_precision=judge.precision,
        data=source_digest(data),
    )
    comparison = _Comparison(model, judge, conditions, say, data)
    comparison.check(points)
    stored = StoredRows(file, comparison.read_real_text())
    if stored.others:
        say(
            f"{file} also holds {stored.others} rows of another model, judge, text, device or setting: "
            "not shown"
        )
    for setting in [Setting(DATA), *points]:
        row = stored.rows.get(setting)
        if row is None:
            row = comparison.row(setting)
            if row is None:
                continue
            stored.add(row)
        yield row


def settings(
    model: Model,
    samplers: Sequence[str] | None,
    steps: Sequence[int],
    temperatures: Sequence[float],
) -> list[Setting]:
    """The settings to measure, in order.
    A sampler without steps has one setting per temperature.
    """
    return list(
        dict.fromkeys(
            Setting(sampler, count, temperature)
            for sampler in (default_samplers(model) if samplers is None else samplers)
            for temperature in temperatures
            for count in (steps if _takes_steps(model, sampler) else [None])
        )
    )


def default_samplers(model: Model) -> list[str]:
    """All samplers that the model can run, except semi_autoregressive, which is for long texts."""
    return [name for name in SAMPLERS if name != "semi_autoregressive" and _runs(model, name)]


def usual_samplers(model: Model) -> list[str]:
    """The method's default sampler."""
    return [model.method.sampler]


def _runs(model: Model, sampler: str) -> bool:
    try:
        model.stream(sampler=sampler)
    except UnmaskError:
        return False
    return True


def _takes_steps(model: Model, sampler: str) -> bool:
    """True if the sampler has steps and its spec does not set them."""
    chosen = choose_sampler(SamplingParams(sampler=sampler), model.method, 1)
    return hasattr(chosen.unwrapped(), "steps") and not re.search(r"[:,]steps=", sampler)


def _device(model: Model) -> str:
    device = model.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


class _Comparison:
    """Model, judge, texts and conditions that all rows of a comparison share."""

    def __init__(
        self,
        model: Model,
        judge: Model | CausalJudge,
        conditions: Conditions,
        say: Say,
        data: Source,
    ) -> None:
        self.model, self.conditions, self.say, self.data = model, conditions, say, data
        self.judge = judge_for(model, judge)
        self.judge_name = describe_judge(judge, conditions)
        self._real: Real | None = None

    def check(self, points: list[Setting]) -> None:
        """Raises an error for invalid options or missing packages,
        before the first network call.
        """
        for point in points:
            chosen = options(point, self.conditions)
            chosen["n"] = min(self.conditions.n, max(self.conditions.batch, 1))
            self.model.stream(**chosen)  # checks the options without a network call
        if isinstance(self.judge, CausalJudge):
            check_packages()

    def read_real_text(self) -> Conditions:
        """Reads the real text and returns the conditions with its digest.

        The real text decides if EOS may end generated texts, and which stored rows can be reused.
        """
        before = self.conditions
        self._real = real_texts(self.model, before.n, before.length, self.say, self.data)
        self.conditions = replace(before, real=self._real.name if self._real else None)
        return self.conditions

    def row(self, setting: Setting) -> Row | None:
        """Generates and measures the texts of one setting;
        None for real text that cannot be read.
        """
        texts = self._texts(setting)
        if texts is None:
            return None
        quality = measure(
            texts.samples, self.judge, real=self._reference(setting), seed=self.conditions.seed
        )
        return Row.of(
            setting,
            quality,
            n=len(texts.samples),
            length=self.conditions.length,
            judge=self.judge_name,
            judge_digest=self.conditions.judge,
            calls=texts.calls,
            seconds=texts.seconds,
        )

    def _texts(self, setting: Setting) -> Texts | None:
        if setting.sampler == DATA:
            return self._real.first if self._real else None
        return generate_texts(
            self.model,
            setting,
            self.conditions,
            self.say,
            as_text=self.judge.reads_text,
            whole=self._real.whole if self._real else None,
        )

    def _reference(self, setting: Setting) -> Float[Tensor, "texts width"] | None:
        """The real texts' features for MAUVE;
        None for the row of real text without a second set.
        """
        if setting.sampler == DATA and not self._has_second_set:
            return None
        return self._features

    @property
    def _has_second_set(self) -> bool:
        """True if there is a second set of `n` real texts."""
        return self._real is not None and len(self._real.others.samples) == self.conditions.n

    @cached_property
    def _features(self) -> Float[Tensor, "texts width"] | None:
        if not isinstance(self.judge, CausalJudge) or self._real is None:
            return None
        texts = self._real.others if self._has_second_set else self._real.first
        return self.judge.read(texts.samples).features


def _model_digest(model: Model) -> str:
    """The hash of a model, and that of its attachments if it has any."""
    if not model.attachments:
        return model.digest
    state = hashlib.sha256()
    for part in model.attachments.values():
        hash_tensors(state, part)
    return f"{model.digest} {state.hexdigest()[:8]}"


def judge_digest(judge: Model | CausalJudge) -> str:
    """The hash of a judge. The suffix excludes stored rows whose nats include BOS and EOS."""
    return judge.digest if isinstance(judge, CausalJudge) else f"{judge.digest} text"


def describe_judge(judge: Model | CausalJudge, conditions: Conditions) -> str:
    """The description of a judge for the table: name, prefix, context and hash."""
    short = conditions.judge[:8]  # names are not unique
    if isinstance(judge, CausalJudge):
        return f"{judge.name} after {judge.prefix}, windows of {judge.context}, {short}"
    itself = conditions.judge.startswith(conditions.model.partition(" ")[0])
    whose = "the model itself" if itself else "another run"
    rounded = "" if conditions.judge_precision == "fp32" else f" in {conditions.judge_precision}"
    return f"{whose}, {judge.config.method.name}{rounded}, {short}"


def source_digest(data: Source) -> str | None:
    """The name of a source, or a hash of given texts."""
    if data is None or isinstance(data, str):
        return data
    return hashlib.sha256(json.dumps(list(data)).encode()).hexdigest()[:16]
