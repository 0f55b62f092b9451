"""Judges by name: runs of ours, and causal language models of others."""

from pathlib import Path

from unmask import shipped
from unmask.errors import UnmaskError
from unmask.evaluation.judges.causal_lm import CausalJudge
from unmask.evaluation.judges.judge import Judge, MethodJudge
from unmask.evaluation.judges.judge_files import DEFAULT, causal_judge
from unmask.model import Model, load
from unmask.runtime.device import resolve_device

DEFAULT_JUDGE = DEFAULT


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
    judge.refuse_pairs("take a model of text as the judge")
    if judge.tokenizer.fingerprint != model.tokenizer.fingerprint:
        raise UnmaskError(
            "the judge has another tokenizer: take one that was trained on the same tokens"
        )
    return MethodJudge(judge.method, judge.length)
