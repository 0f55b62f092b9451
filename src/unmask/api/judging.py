"""Judges by name: runs of ours, and causal language models of others."""

import hashlib
import json
from pathlib import Path

from unmask import shipped
from unmask.api.loading import load
from unmask.api.model import Model
from unmask.api.predicting import Source
from unmask.api.rows import Conditions
from unmask.config.run import to_dict
from unmask.errors import UnmaskError
from unmask.evaluation.judges.causal_lm import CausalJudge
from unmask.evaluation.judges.judge import Judge, MethodJudge
from unmask.evaluation.judges.judge_files import DEFAULT, causal_judge
from unmask.files.tensors import hash_tensors
from unmask.runtime.device import PRECISIONS, resolve_device

DEFAULT_JUDGE = DEFAULT
NO_TEXTS = "it has no texts to compare; 'unmask evaluate MODEL --suite translation' scores it"
NO_GAPS = "it fills no gaps in text; 'unmask evaluate MODEL --suite translation' scores it"


def load_judge(
    spec: str | Path, device: str = "auto", prefix: str | None = None
) -> Model | CausalJudge:
    """A judge: a model as `load` takes it, a GGUF file, or a causal model by folder or hub name.

    `prefix` is the token that stands before every text, unless the judge's usual one should.
    """
    folder = shipped.locate(spec) if str(spec) in shipped.NAMES else Path(spec)
    if (folder / "model.json").exists() or (folder / "config.yaml").exists():
        if prefix is not None:
            raise UnmaskError("a prefix is for a judge with a tokenizer of its own: leave it out")
        return load(folder, device)
    return causal_judge(spec, resolve_device(device), prefix)


def judging(model: Model, judge: Model | CausalJudge) -> Judge:
    """How a judge reads the model's texts; one of ours must share its tokens."""
    if isinstance(judge, CausalJudge):
        return judge
    refuse_pairs(judge, "take a model of text as the judge")
    if judge.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise UnmaskError(
            "the judge has another tokenizer: take one that was trained on the same tokens"
        )
    return MethodJudge(judge.method, judge.length)


def refuse_pairs(model: Model, what: str) -> None:
    """A model of pairs is no model of text: its figures as one would be those of sources."""
    if model.conditional:
        raise UnmaskError(f"a model of pairs writes targets for sources: {what}")


def described(judge: Model | CausalJudge, conditions: Conditions) -> str:
    """The judge as a reader of its figures must know it."""
    short = conditions.judge[:8]  # names are not unique
    if isinstance(judge, CausalJudge):
        return f"{judge.name} after {judge.prefix}, windows of {judge.context}, {short}"
    itself = conditions.judge.startswith(conditions.model)
    whose = "the model itself" if itself else "another run"
    rounded = "" if conditions.judge_precision == "fp32" else f" in {conditions.judge_precision}"
    return f"{whose}, {judge.config.method.name}{rounded}, {short}"


def judge_digest(judge: Model | CausalJudge) -> str:
    """What tells judges apart; a run once counted what frames a text, which no other row goes with."""
    return digest(judge) if isinstance(judge, CausalJudge) else f"{digest(judge)} text"


def source_digest(data: Source) -> str | None:
    """The name of a source, or a hash of texts."""
    if data is None or isinstance(data, str):
        return data
    return hashlib.sha256(json.dumps(list(data)).encode()).hexdigest()[:16]


def precision(model: Model | CausalJudge) -> str:
    """What it computes in."""
    if isinstance(model, CausalJudge):
        return "fp32"
    dtype = model.method.serving.dtype
    return next(name for name, known in PRECISIONS.items() if known == dtype)


def digest(model: Model | CausalJudge) -> str:
    """A hash of all that a model's texts and figures depend on: weights, tokenizer, configuration."""
    if isinstance(model, CausalJudge):
        return model.digest
    content = [to_dict(model.config), model.tokenizer.fingerprint]
    state = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    hash_tensors(state, model.method)
    return state.hexdigest()[:16]
