"""Starting points of training runs, and their validation."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from tiny_models import one_line

import unmask
from unmask.config.run_config import resolve
from unmask.data.data_config import DataConfig
from unmask.data.load import rows_from
from unmask.data.rows.first_rows import FirstRows
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.errors import UnmaskError, UnmaskWarning
from unmask.methods.method import METHODS
from unmask.runs.auto_recipe import fitted


@pytest.mark.parametrize("packing", ["pad", "split"])
def test_the_first_rows_have_the_text_of_their_tokens(packing):
    """Half of the rows hold nearly all of the text. Each has BOS and EOS besides its bytes."""
    rows = rows_from(["a" * 98, "b" * 2], ByteTokenizer(), DataConfig(packing=packing, length=100))
    first = FirstRows(rows, 1)
    assert first.tokens == 100
    assert first.bytes == first.characters == round(100 * 100 / 104)
    assert first.text_estimated
    for count in (0, 2, 9):
        every = FirstRows(rows, count)
        assert (every.bytes, every.tokens, every.text_estimated) == (100, 104, False)


def test_rows_of_a_validation_are_drawn_by_the_seed():
    rows = rows_from([f"{n:02}" for n in range(40)], ByteTokenizer(), DataConfig(length=4))
    drawn = [FirstRows(rows, 8, seed)[range(8)][0] for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert len(FirstRows(rows, 99, 0)) == len(rows)


def test_an_infinite_validation_perplexity_is_logged(tmp_path):
    """Targets are short and rows long, so the filling alone costs an untrained
    model a thousand nats.
    """
    pairs = tmp_path / "pairs.jsonl"
    lines = [{"de": "x", "en": letter} for letter in "abc"] + [{"de": "x" * 600, "en": "y"}]
    pairs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {
        "data.train": pairs, "data.valid": pairs, "data.cache": tmp_path / "cache",
        "data.source_field": "de", "data.target_field": "en", "data.packing": "pad",
        "data.length": 600, "data.tokenizer.kind": "bytes", "backbone.width": 16,
        "backbone.depth": 1, "backbone.heads": 2, "training.steps": 1, "training.batch": 2,
        "training.warmup": 0, "training.sample_every": 0, "training.validation_rows": 2,
        "training.device": "cpu",
    }  # fmt: skip
    config = resolve({}, [(name, str(value)) for name, value in settings.items()])
    unmask.train(config, tmp_path / "run", say=lambda line: None)
    records = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    (validation,) = [each["validation"] for each in records if "validation" in each]
    assert validation["nats"] > 710
    assert validation["perplexity"] is None
    assert (validation["text_estimated"], validation["left_out"]) == (True, 1)


SETTINGS = {
    "data.separator": "line", "data.packing": "fit", "data.length": "24", "data.shorten": "0.3",
    "training.steps": "1", "training.batch": "8", "training.lr": "1e-12", "training.ema": "0",
    "training.warmup": "0", "training.device": "cpu", "training.save_every": "1",
    "backbone.width": "32", "backbone.depth": "1", "backbone.heads": "2", "backbone.dropout": "0",
}  # fmt: skip


@pytest.fixture
def settings(run, tmp_path) -> dict[str, str]:
    """The settings of a run that starts from the trained one, on other text."""
    text = tmp_path / "other.txt"
    text.write_text("\n".join(f"A mouse ran under bed number {i}." for i in range(40)))
    own = {"data.train": str(text), "data.cache": str(tmp_path / "cache"), "init_from": str(run)}
    return SETTINGS | own


def train(settings: dict[str, str], run: Path, **options) -> unmask.Model:
    return unmask.train(resolve({}, list(settings.items())), run, say=lambda line: None, **options)


def test_a_run_starts_from_another_models_weights_and_tokenizer(settings, model, tmp_path):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    begun = train(settings, tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), state)  # the random numbers of the user
    assert begun.tokenizer.fingerprint == model.tokenizer.fingerprint
    for name, weight in begun.method.state_dict().items():
        assert torch.allclose(weight, model.method.state_dict()[name], atol=1e-9), name
    fresh = train(settings | {"init_from": ""}, tmp_path / "fresh")
    assert fresh.tokenizer.fingerprint != model.tokenizer.fingerprint


def test_a_method_of_vectors_reuses_the_layers_between_the_first_and_the_last(
    settings, model, tmp_path
):
    pytest.importorskip("unmask.extensions.vectors")
    vectors = {"method": "plaid", "backbone.time_conditioning": "true"}
    begun = train(settings | vectors, tmp_path / "run").method.state_dict()
    for name, weight in model.method.state_dict().items():
        if ".embedding." not in name and ".head." not in name:
            assert torch.allclose(weight, begun[name], atol=1e-9), name
    assert begun["backbone.embedding.weight"].shape == (32, 32)  # two codes of 16 -> the width


def test_a_run_starts_from_a_model_with_another_schedule_or_method(settings, tmp_path):
    ways = {
        "learned": {"schedule": "learned"},
        **({"bert": {"method": "diffusion_bert"}} if "diffusion_bert" in METHODS else {}),
        "plain": {},
    }
    start = settings["init_from"]
    for name, own in ways.items():
        begun = train(settings | own | {"init_from": start}, tmp_path / name)
        weights = unmask.load(start).method.backbone.state_dict()
        torch.testing.assert_close(begun.method.backbone.state_dict(), weights, rtol=0, atol=1e-9)
        start = str(tmp_path / name)


def test_a_changed_text_is_no_held_out_text(settings, tmp_path):
    model = train(settings, tmp_path / "run")
    model.perplexity()
    text = Path(settings["data.train"])
    text.write_text("A cat slept.\n" + text.read_text())
    with pytest.warns(UnmaskWarning, match=r"other\.txt has changed since the training"):
        unmask.load(tmp_path / "run").perplexity()


def test_a_resumed_run_does_not_need_the_model_that_it_started_from(settings, run, tmp_path):
    first = shutil.copytree(run, tmp_path / "first")
    settings |= {"init_from": str(first)}
    train(settings, tmp_path / "run")
    shutil.rmtree(first)
    said: list[str] = []
    config = resolve({}, list((settings | {"training.steps": "2"}).items()))
    again = unmask.train(config, tmp_path / "run", say=said.append)
    assert [line for line in said if "nats/token before" in line and "resumed run" in line]
    assert json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])["step"] == 2
    assert again.config.init_from == str(first)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backbone.width": "64"}, r"init_from .* does not fit: .* instead of"),
        ({"backbone.depth": "2"}, r"init_from .* does not fit: .* is missing"),
        ({"init_from": "nowhere"}, "no model 'nowhere'"),
    ],
)
def test_weights_that_do_not_fit_are_refused(settings, tmp_path, change, message):
    with pytest.raises(UnmaskError, match=message) as caught:
        train(settings | change, tmp_path / "run")
    one_line(caught)
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_than_that_of_the_start_is_refused(settings, tmp_path):
    with pytest.raises(UnmaskError, match="has another tokenizer than the one given"):
        train(settings, tmp_path / "run", tokenizer=ByteTokenizer())


@pytest.mark.parametrize("kind", ["list", "generator", "records", "dataset", "split"])
def test_python_objects_are_data(kind, tmp_path):
    datasets = pytest.importorskip("datasets") if kind in ("dataset", "split") else None
    texts = [f"A mouse ran under bed number {i}." for i in range(40)]
    given = {
        "list": lambda: texts,
        "generator": lambda: (text for text in texts),
        "records": lambda: [{"text": text} for text in texts],
        "dataset": lambda: datasets.Dataset.from_dict({"text": texts, "n": list(range(40))}),
        "split": lambda: {
            "train": datasets.Dataset.from_dict({"text": texts}).to_iterable_dataset(),
            "validation": texts[:4],
        },
    }[kind]()
    settings = {**SETTINGS, "data.tokenizer.kind": "bytes", "data.cache": str(tmp_path / "cache")}
    if kind == "split":  # a stream
        settings |= {"data.packing": "wrap", "data.shorten": "0"}
    model = train(settings, tmp_path / "run", data=given)
    assert model.config.data.train == "elsewhere:data"
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert any("validation" in json.loads(line) for line in lines)
    if kind == "list":  # the same texts resume the run, and others do not
        train(settings | {"training.steps": "2"}, tmp_path / "run", data=list(texts))
        with pytest.raises(UnmaskError, match="another configuration: corpus"):
            train(settings | {"training.steps": "3"}, tmp_path / "run", data=texts[1:])
        with pytest.raises(UnmaskError, match=r"another configuration: .*corpus\.text was"):
            changed = [text.replace("mouse", "horse") for text in texts]  # of the same size
            train(settings | {"training.steps": "3"}, tmp_path / "run", data=changed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "data is of type int"),
        ({"test": []}, "data has test: give a part train"),
        ([3, 4], "data, record 1 is of type int: give a text or a mapping"),
        ([{"body": "x"}], "data, record 1 has no field 'text'"),
    ],
)
def test_other_objects_are_refused(data, message, tmp_path):
    settings = {**SETTINGS, "data.tokenizer.kind": "bytes", "data.cache": str(tmp_path / "cache")}
    with pytest.raises(UnmaskError) as caught:
        train(settings, tmp_path / "run", data=data)
    assert message in one_line(caught)


@pytest.mark.parametrize("name", ["hf:json", "hf:/tmp", "hf:"])
def test_unknown_dataset_names_are_refused_in_one_line(name, tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    for module in ("huggingface_hub.constants", "datasets.config"):  # they may be imported already
        monkeypatch.setattr(f"{module}.HF_HUB_OFFLINE", True)
    with pytest.raises(UnmaskError) as caught:
        train({**SETTINGS, "data.train": name, "data.cache": str(tmp_path)}, tmp_path / "run")
    assert name in one_line(caught)


def test_auto_fits_the_text_and_overrides_win(tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("A cat sat on a mat.\n\n" * 2000)
    said: list[str] = []
    given = {"data.train": str(text), "training.device": "cpu", "backbone.width": 64}
    config = fitted("auto", given, say=said.append)
    assert (config.data.length, config.data.tokenizer.size) == (128, 512)
    assert (config.backbone.config.width, config.backbone.config.gate) == (64, 1.0)
    assert config.training.optimizer == "muon"
    assert "38,000 characters" in said[0]
    minutes, seconds = re.fullmatch(r"estimated time: (\d+):(\d\d) at .*", said[1]).groups()
    assert int(minutes) + int(seconds) > 0
    assert config == fitted("auto", given, say=None)
    assert fitted("auto", given | {"training.steps": 80}, say=said.append).training.warmup == 5


def test_finetune_takes_network_and_tokens_of_its_start_and_measures_it(settings, run, tmp_path):
    said: list[str] = []
    own = {name: settings[name] for name in ("data.train", "data.cache", "init_from")}
    own |= {"training.device": "cpu", "training.steps": 2, "training.validation_rows": 2}
    own |= {"data.length": 32}
    folder = tmp_path / "mine"
    model = unmask.train("finetune", folder, overrides=own, say=said.append)
    assert model.config.backbone.config.width == unmask.load(run).config.backbone.config.width
    assert any(line.startswith("before training: ") for line in said)
    line = next(line for line in said if line.startswith("held-out text (2 of "))
    before, after, change, error = map(float, re.findall(r"\d+\.\d+", line))
    assert change == pytest.approx(abs(before - after), abs=0.01) and error > 0
    assert line.endswith("lower" if after < before else "higher") and "bits/byte before" in line
    kept = folder / "checkpoints" / "step-00000002"  # a complete run keeps its counters only
    assert not list(kept.glob("*.safetensors"))
    said.clear()
    unmask.train("finetune", folder, overrides=own, say=said.append)
    assert any("already trained: all 2 steps are done" in each for each in said)
    assert next(each for each in said if each.startswith("held-out text")) == line
    again = fitted("finetune", own | {"data.train": "elsewhere.txt"}, folder, said.append)
    assert again.training == model.config.training  # a started run keeps its settings


def test_auto_counts_the_characters_of_python_objects(tmp_path):
    said: list[str] = []
    texts = (f"A mouse ran under bed number {i}." for i in range(400))
    few = {"training.device": "cpu", "training.steps": 2, "data.cache": str(tmp_path / "cache")}
    few |= {"backbone.width": 16, "backbone.depth": 1, "backbone.heads": 2}
    model = unmask.train("auto", tmp_path / "run", data=texts, overrides=few, say=said.append)
    assert "13,090 characters" in said[0]
    assert model.config.data.train == "elsewhere:data"
