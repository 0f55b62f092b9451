"""Judges by name: runs of ours, and causal language models of others."""

import hashlib
import json
from pathlib import Path

from unmask.api.model import Model
from unmask.api.runs import load
from unmask.config import to_dict
from unmask.errors import UnmaskError
from unmask.evaluation.causal import CausalJudge, hash_tensors
from unmask.evaluation.judge_files import DEFAULT, causal_judge
from unmask.evaluation.judges import Judge, MethodJudge
from unmask.training import resolve_device

DEFAULT_JUDGE = DEFAULT


def load_judge(
    spec: str | Path, device: str = "auto", prefix: str | None = None
) -> Model | CausalJudge:
    """A judge: a run or exported folder, a GGUF file, or a causal model by folder or hub name.

    `prefix` is the token that stands before every text, unless the judge's usual one should.
    """
    folder = Path(spec)
    if (folder / "model.json").exists() or (folder / "config.yaml").exists():
        if prefix is not None:
            raise UnmaskError("a prefix is for a judge with a tokenizer of its own: leave it out")
        return load(folder, device)
    return causal_judge(spec, resolve_device(device), prefix)


def judging(model: Model, judge: Model | CausalJudge) -> Judge:
    """How a judge reads the model's texts; one of ours must share its tokens."""
    if isinstance(judge, CausalJudge):
        return judge
    if judge.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise UnmaskError(
            "the judge has another tokenizer: take one that was trained on the same tokens"
        )
    return MethodJudge(judge.method, judge.length)


def described(model: Model, judge: Model | CausalJudge) -> str:
    """The judge as a reader of its figures must know it."""
    if isinstance(judge, CausalJudge):
        return f"{judge.name} after {judge.prefix}, windows of {judge.context}"
    whose = "the model itself" if judge is model else "another run"
    return f"{whose}, {judge.config.method.name}"


def digest(model: Model | CausalJudge) -> str:
    """A hash of all that a model's texts and figures depend on: weights, tokenizer, configuration."""
    if isinstance(model, CausalJudge):
        return model.digest
    content = [to_dict(model.config), model.tokenizer.fingerprint]
    state = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    hash_tensors(state, model.method)
    return state.hexdigest()[:16]
