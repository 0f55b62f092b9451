"""The model class for lm_eval, if lm_eval is installed: a task of each kind, from local files."""

import importlib.metadata
import json
import tomllib
from pathlib import Path

import pytest
from tiny_models import one_line

from unmask.errors import UnmaskError

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance  # noqa: E402

from unmask.extensions.lm_eval.adapter import UnmaskLM  # noqa: E402

ENTRY = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
    "entry-points"
]["lm_eval.models"]
PAIRS = [("The cat", " sat on the mat."), ("", "The dog sat"), ("The queen sat on", " a")]


def requests(kind: str, arguments: list[tuple]) -> list[Instance]:
    return [Instance(kind, {}, each, number) for number, each in enumerate(arguments)]


@pytest.fixture(scope="module")
def adapter(run) -> UnmaskLM:
    return UnmaskLM(path=str(run), draws=4, batch_size=2, device="cpu")


def test_lm_eval_finds_the_class_by_its_name(run):
    point = importlib.metadata.EntryPoint("unmask", ENTRY["unmask"], "lm_eval.models")
    assert point.load() is UnmaskLM
    assert lm_eval.api.registry.get_model("unmask") is UnmaskLM
    # the harness's own models stay registered
    assert lm_eval.api.registry.get_model("dummy") is not UnmaskLM
    made = UnmaskLM.create_from_arg_string(f"path={run},draws=3", {"batch_size": 1, "device": None})
    assert made.get_model_info()["unmask_draws"] == 3


def test_the_adapter_returns_the_packages_answers(adapter):
    inside = adapter._runner
    asked = requests("loglikelihood", PAIRS)
    assert adapter.loglikelihood(asked, disable_tqdm=True) == inside.loglikelihood(PAIRS)
    rolled = adapter.loglikelihood_rolling(requests("loglikelihood_rolling", [("The cat",)]))
    assert rolled == inside.rolling(["The cat"])
    options = {"until": ["."], "max_gen_toks": 8}
    written = adapter.generate_until(requests("generate_until", [("The cat", options)]))
    assert written == inside.generate_until([("The cat", options)])


def test_a_wrong_key_is_one_line(run):
    with pytest.raises(UnmaskError) as caught:
        UnmaskLM(path=str(run), draw=4)
    assert "did you mean 'draws'?" in one_line(caught)


def test_the_harness_runs_a_task_of_its_own_format(adapter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    lines = [
        {"question": "The cat", "choices": [" sat on the", " zqx jkv"], "label": 0},
        {"question": "The dog", "choices": [" qzx vvk", " sat on the"], "label": 1},
    ]
    Path("pick.jsonl").write_text("\n".join(map(json.dumps, lines)))
    task = {
        "task": "pick",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "pick.jsonl"}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{label}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    results = lm_eval.simple_evaluate(model=adapter, tasks=[task], bootstrap_iters=0)
    assert results["results"]["pick"]["acc,none"] == 1.0
