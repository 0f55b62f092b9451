"""Fine-tuning on GLUE: files, seeds, scores and mistakes."""

import json

import numpy as np
import pytest
from hub_models import tiny
from tiny_models import one_line

from unmask.cli import main
from unmask.config.components import build_method
from unmask.data.tokenizers.no_tokenizer import NoTokenizer
from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import evaluate
from unmask.extensions.glue.class_scores import median_interval, scores
from unmask.extensions.glue.glue_suite import task_data
from unmask.model import Model

SEEN = [("the cat sat", 1), ("a dog saw", 0)] * 8


@pytest.fixture
def glue(tmp_path):
    """A folder with one task of each form: a sentence, a pair, a score,
    a split development file.
    """
    folder = tmp_path / "glue"
    for name in ("CoLA", "RTE", "STS-B", "QNLI"):
        (folder / name).mkdir(parents=True)
    cola = "".join(f"gj04\t{label}\t\t{text}\n" for text, label in SEEN)
    pair = "index\tsentence1\tsentence2\tlabel\n" + "".join(
        f"{i}\t{text}\tthe cat\t{'entailment' if label else 'not_entailment'}\n"
        for i, (text, label) in enumerate(SEEN)
    )
    score = "index\tsentence1\tsentence2\tscore\n" + "".join(
        f"{i}\t{text}\tthe cat\t{4.5 * label}\n" for i, (text, label) in enumerate(SEEN)
    )
    question = "index\tquestion\tsentence\tlabel\n" + "".join(
        f"{i}\tquestion {i // 2}\t{text}\t{'entailment' if label else 'not_entailment'}\n"
        for i, (text, label) in enumerate(SEEN * 2)
    )
    for name, text in (("CoLA", cola), ("RTE", pair), ("STS-B", score)):
        for part in ("train", "dev"):
            (folder / name / f"{part}.tsv").write_text(text)
    (folder / "QNLI" / "dev.tsv").write_text(question)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    found = tiny("bpe", backbone="bert", backbone__dropout="0")
    fresh = Model(
        build_method(found.config, found.tokenizer.vocabulary), found.tokenizer, found.config
    )
    folder = tmp_path_factory.mktemp("glue") / "encoder"
    fresh.save(folder)
    return folder


def test_all_tasks_of_a_folder_are_measured(glue, model, capsys):
    argv = ["evaluate", "glue", str(model), "--data", str(glue), "--device", "cpu"]
    argv += ["--lr", "0.01", "--epochs", "6", "--seeds", "5", "--pooling", "mean", "--json"]
    assert main(argv) == 0
    shown = capsys.readouterr()
    assert ", seed 1 of " in shown.err  # progress, because training may take long
    rows = {row["task"]: row for row in map(json.loads, shown.out.splitlines())}
    assert list(rows) == ["CoLA", "RTE", "STS-B", "QNLI", "average", "SST-2", "MRPC", "QQP", "MNLI"]
    assert all(rows[name]["note"] == "absent" for name in ("SST-2", "MRPC", "QQP", "MNLI"))
    cola = rows["CoLA"]
    assert cola["scores"] == "matthews" and len(cola["by_seed"]) == 5
    assert cola["low"] <= cola["score"] <= cola["high"] and cola["score"] > 50
    assert rows["STS-B"]["scores"] == "pearson, spearman" and rows["STS-B"]["score"] > 50
    assert "dev.tsv is split" in rows["QNLI"]["note"]
    four = [rows[name]["by_seed"] for name in ("CoLA", "RTE", "STS-B", "QNLI")]
    np.testing.assert_allclose(rows["average"]["by_seed"], np.mean(four, 0))


def test_a_split_task_shares_no_question(glue):
    (data,), _ = task_data(glue, ["qnli"])
    assert not {pair[0] for pair in data.train.sentences} & {pair[0] for pair in data.dev.sentences}
    assert len(data.train) + len(data.dev) == 32


def test_scores_are_those_of_the_libraries():
    logits, targets = np.array([[2.0, 1], [0, 1], [1, 0], [0, 3]]), [0, 1, 1, 1]
    found = scores(("accuracy", "f1", "matthews"), logits, targets)
    assert found == pytest.approx({"accuracy": 75.0, "f1": 80.0, "matthews": 100 / 3**0.5})
    numbers = np.array([[1.0], [2.0], [4.0]])
    assert scores(("spearman",), numbers, [0.0, 1.0, 9.0])["spearman"] == pytest.approx(100)
    assert scores(("pearson",), np.ones((3, 1)), [0.0, 1.0, 9.0])["pearson"] == 0
    assert median_interval([3, 1, 2, 9, 5, 4, 8, 7, 6]) == (5, 2, 8)
    assert median_interval([1.0, 2.0])[1:] == (-np.inf, np.inf)


def refused(call) -> str:
    with pytest.raises(UnmaskError) as caught:
        call()
    return one_line(caught)


def test_mistakes_in_files_are_found_before_training(glue, model):
    def told(**options) -> str:
        return refused(lambda: evaluate(model, "glue", data=glue, **options))

    assert "give its folder with --data" in refused(lambda: evaluate(model, "glue"))
    assert "unknown task of GLUE 'RTX'; did you mean 'RTE'?" in told(tasks=["RTX"])
    assert "has no folder MNLI: leave the task out" in told(tasks=["MNLI"])
    text = (glue / "RTE" / "dev.tsv").read_text()
    for wrong, message in (
        (text.replace("\tnot_entailment", "\tperhaps", 1), "line 3: label 'perhaps' is none of"),
        (text.replace("\ta dog saw", "\t ", 1), "line 3: a sentence is empty"),
        (text.replace("label", "labels"), "has no column 'label'"),
        (text.replace("\tnot_entailment", "", 1), "line 3: a column is missing"),
        (text.splitlines()[0] + "\n", "has no examples"),
    ):
        (glue / "RTE" / "dev.tsv").write_text(wrong)
        assert message in told()
    (glue / "RTE" / "dev.tsv").unlink()
    assert "RTE has no dev.tsv: put the development file there" in told()
    (glue / "STS-B" / "dev.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t7\n")
    assert "line 2: score 7 is outside 0 … 5" in told(tasks=["STS-B"])


def test_a_model_without_a_tokenizer_is_refused(glue):
    found = tiny("bpe")
    bare = Model(found.method, NoTokenizer(found.tokenizer.vocabulary), found.config)
    assert "tokenizer" in refused(lambda: evaluate(bare, "glue", data=glue, tasks=["RTE"]))
