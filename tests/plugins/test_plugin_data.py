"""A tokenizer kind, a stream and a checkpoint format from files outside the package, end to end."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from plugins import plugged

import unmask
from unmask.cli import main
from unmask.config.run_config import dump_yaml, from_dict, load_recipe, resolve, to_dict
from unmask.data.tokenizers.kinds import build_tokenizer, load_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError
from unmask.files.storage import read_json
from unmask.files.tensors import read_weights
from unmask.formats.format import FORMATS
from unmask.formats.read import read_bundle

SHAPE = {"name": "dit", "width": 16, "depth": 1, "heads": 2}
TRAINING = {
    "steps": 3, "batch": 32, "validation_rows": 4, "save_every": 1, "keep": 9, "device": "cpu",
    "validate_every": 2,
}  # fmt: skip


def recipe(folder: Path, name: str, data: dict) -> str:
    tree = {"data": {**data, "separator": "line", "length": 16, "cache": str(folder / "cache")}}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**tree, "backbone": SHAPE, "training": TRAINING}))
    return str(file)


@pytest.fixture(scope="module", autouse=True)
def plugins() -> Iterator[None]:
    with plugged("dna_letters", "counting_stream", "numpy_format"):
        yield


@pytest.fixture(scope="module")
def dna(tmp_path_factory) -> tuple[str, Path]:
    """A recipe of the tokenizer, and its run."""
    folder = tmp_path_factory.mktemp("dna")
    dice = random.Random(1)
    lines = ["".join(dice.choices("ACGTacgtN-", k=40)) for _ in range(40)]
    (folder / "dna.txt").write_text("\n".join(lines))
    data = {
        "train": str(folder / "dna.txt"),
        "tokenizer": {"kind": "dna_letters", "small": "unknown"},
    }
    file = recipe(folder, "dna", data)
    assert main(["train", file, "--run", str(folder / "run"), "--data.workers", "1"]) == 0
    return file, folder / "run"


@pytest.fixture(scope="module")
def sums(tmp_path_factory) -> tuple[str, Path]:
    """A recipe of the stream, and its run."""
    folder = tmp_path_factory.mktemp("sums")
    (folder / "valid.txt").write_text("\n".join(f"{n}+{n}={2 * n}" for n in range(60)))
    tokenizer = {"kind": "characters", "sample": 3000}
    data = {"train": "sums:1", "valid": str(folder / "valid.txt"), "tokenizer": tokenizer}
    file = recipe(folder, "sums", data)
    assert main(["train", file, "--run", str(folder / "run")]) == 0
    return file, folder / "run"


def one_line(error: str) -> str:
    assert error.count("\n") == 1 and error.startswith("unmask: error: ")
    return error


def logits(model: unmask.Model) -> torch.Tensor:
    tokens = torch.arange(12).reshape(2, 6) % model.tokenizer.vocabulary.size
    with torch.no_grad():
        backbone = model.method.backbone
        return backbone.head(backbone.features(tokens))


def assert_resumes_to_the_bit(file: str, run: Path, step: int, target: Path) -> None:
    """A run that is killed after a checkpoint ends with the weights of an undisturbed run."""
    killed = Path(shutil.copytree(run, target))
    for later in range(step + 1, TRAINING["steps"] + 1):
        shutil.rmtree(killed / "checkpoints" / f"step-{later:08d}")
    shutil.rmtree(killed / "model")
    assert main(["train", file, "--resume", str(killed)]) == 0
    last = f"checkpoints/step-{TRAINING['steps']:08d}"
    for name in ("model", "ema", "optimizer"):
        ours, theirs = (read_weights(folder / last, name) for folder in (killed, run))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    ours, theirs = (unmask.load(folder).method.state_dict() for folder in (killed, run))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


# A tokenizer kind


def test_a_tokenizer_has_its_own_settings(dna, capsys):
    file, _ = dna
    config = resolve(load_recipe(file), [("data.tokenizer.small", "upper")])
    assert to_dict(config)["data"]["tokenizer"]["small"] == "upper"
    assert from_dict(yaml.safe_load(dump_yaml(config))) == config
    # the settings of dna_letters are dropped
    other = resolve(load_recipe(file), [("data.tokenizer.kind", "bytes")])
    assert other.data.tokenizer == TokenizerConfig("bytes")
    for option, message in {
        ("--data.tokenizer.small", "big"): "data.tokenizer.small: 'big' is not one of upper, unk",
        ("--data.tokenizer.smal", "upper"): "did you mean 'data.tokenizer.small'?",
        (
            "--data.tokenizer.source",
            "x",
        ): "tokenizer.source applies to bpe and characters, not to dna_letters",
    }.items():
        assert main(["config", file, *option]) == 2
        assert message in one_line(capsys.readouterr().err)
    with pytest.raises(UnmaskError, match=r"its own settings: use DNALetters.Config"):
        TokenizerConfig("dna_letters")


def test_a_tokenizer_is_saved_with_its_files(dna, tmp_path):
    _, run = dna
    found = load_tokenizer(run / "tokenizer")
    assert (found.kind, found.small, found.decode(found.encode("ACgtN-"))) == ("dna_letters", "unknown", "ACNNNN")  # fmt: skip
    capital = build_tokenizer(type(found).Config(small="upper"), ())
    assert capital.fingerprint != found.fingerprint
    assert capital.decode(capital.encode("acGT-")) == "ACGTN"
    (run / "tokenizer" / "dna_letters.json").rename(tmp_path / "dna_letters.json")
    with pytest.raises(UnmaskError, match=r"the tokenizer in .* is damaged"):
        load_tokenizer(run / "tokenizer")
    shutil.move(tmp_path / "dna_letters.json", run / "tokenizer")


def test_complements_of_tokens_survive_classes_and_files(dna, tmp_path):
    tokenizer = load_tokenizer(dna[1] / "tokenizer").with_labels(["human", "mouse"])
    tokenizer.save(tmp_path)
    partners = load_tokenizer(tmp_path).vocabulary.complement_ids
    assert partners == (3, 2, 1, 0, 4, 5, 6, 7, 8, 9, 10)
    assert "complement_ids" not in unmask.Vocabulary(4, 3).to_dict()
    for wrong in ([0, 1], [1, 2, 0, 3], [0, 1, 2, 9], 7):
        with pytest.raises(UnmaskError, match="complement_ids must hold a complement for each"):
            unmask.Vocabulary(4, 3, complement_ids=wrong)


def test_a_model_with_that_tokenizer_is_resumed_measured_and_exported(dna, tmp_path, capsys):
    file, run = dna
    assert_resumes_to_the_bit(file, run, 1, tmp_path / "killed")
    capsys.readouterr()
    assert main(["evaluate", str(run), "--draws", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nats"] > 0
    assert main(["generate", str(run), "--prompt", "ACG", "--length", "12"]) == 0
    assert (
        "ACG" in capsys.readouterr().out
    )  # FASTA, if a form of files suits tokens with complements
    assert main(["plan", file]) == 0
    assert "vocabulary 9" in capsys.readouterr().out
    assert main(["export", str(run), str(tmp_path / "hub"), "--pretrained"]) == 0
    hub, own = unmask.load(tmp_path / "hub"), unmask.load(run)
    assert hub.tokenizer.fingerprint == own.tokenizer.fingerprint
    assert torch.equal(logits(hub), logits(own))
    assert not (tmp_path / "hub" / "tokenizer.json").exists()  # it has no backend


# A stream


@pytest.mark.parametrize("step", [1, 2])
def test_a_run_on_a_stream_resumes_to_the_bit(sums, step, tmp_path):
    file, run = sums
    place = read_json(run / "checkpoints" / f"step-{step:08d}" / "state.json")["stream"]
    assert place["batch"] == step and place["rows"] > 0
    # the second checkpoint resumes in the middle of a document, and reads no earlier documents
    assert step == 1 or (place["document"] > 0 and place["tokens"] > 0)
    assert_resumes_to_the_bit(file, run, step, tmp_path / "killed")


def test_a_run_on_a_stream_is_measured_generates_and_is_listed(sums, tmp_path, capsys):
    file, run = sums
    assert main(["train", file, "--run", str(tmp_path / "other"), "--data.train", "sums:2"]) == 0
    assert "; a stream of rows of 16 tokens to train on, " in capsys.readouterr().out
    assert read_json(run / "manifest.json") and not list((run.parent / "cache").glob(".*"))
    assert main(["evaluate", str(run), "--draws", "1"]) == 0
    assert main(["generate", str(run), "--length", "12"]) == 0
    assert main(["check", str(run)]) == 0
    capsys.readouterr()
    model = unmask.load(run)
    model.save_pretrained(tmp_path / "hub")
    # not redacted: it is the same on every machine
    assert unmask.load(tmp_path / "hub").config.data.train == "sums:1"
    for option, message in {
        (
            "--data.valid",
            "",
        ): "sums:1 is a stream without held-out documents: set data.valid to a file or a folder",
        ("--data.valid", "sums:1"): "sums:1 is a stream without an end",
        ("--data.train", "sums:x"): "give a whole number, as in sums:3",
    }.items():
        assert main(["train", file, "--run", str(tmp_path / "refused"), *option]) == 2
        assert message in one_line(capsys.readouterr().err)
    assert main(["evaluate", str(run), "--data", "sums:3"]) == 2
    assert "without an end" in one_line(capsys.readouterr().err)


# A checkpoint format


def test_a_format_is_written_and_read_by_every_command(dna, tmp_path, capsys):
    file, run = dna
    assert main(["export", str(run), str(tmp_path / "npz"), "--format", "npz"]) == 0
    own, read = unmask.load(run), unmask.load(tmp_path / "npz")
    assert read.digest == own.digest and torch.equal(logits(read), logits(own))
    assert main(["export", str(run), str(tmp_path / "npz"), "--format", "npz"]) == 0  # replaced
    assert main(["check", str(tmp_path / "npz")]) == 0
    assert main(["convert", str(tmp_path / "npz"), str(tmp_path / "back")]) == 0
    assert unmask.load(tmp_path / "back").digest == own.digest
    assert main(["convert", str(run), str(tmp_path / "again"), "--format", "npz"]) == 0
    texts = []
    for model in (tmp_path / "again", run):
        capsys.readouterr()
        assert main(["generate", str(model), "--seed", "1"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    begun = ["--init_from", str(tmp_path / "npz"), "--training.steps", "1"]
    assert main(["train", file, "--run", str(tmp_path / "tuned"), *begun]) == 0


def test_a_format_that_does_not_fit_is_refused_in_one_line(dna, tmp_path, capsys):
    _, run = dna
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").write_text("mine")
    for where, options, message in (
        ("full", ["--format", "npz"], "already exists and is no unmask model"),
        ("out", ["--format", "nzp"], "unknown format 'nzp'; did you mean 'npz'?"),
        ("out", ["--format", "gpt2"], "the format gpt2 can be read and not written"),
        ("out", ["--format", "npz", "--precision", "bf16"], "are for a folder of format unmask"),
        ("out", ["--format", "npz", "--pretrained"], "not allowed with"),
    ):
        assert main(["export", str(run), str(tmp_path / where), *options]) == 2
        assert message in one_line(capsys.readouterr().err)
    (tmp_path / "full" / "model.npz").write_text("no archive")
    assert main(["generate", str(tmp_path / "full")]) == 2
    assert "model.npz is damaged" in one_line(capsys.readouterr().err)
    np.savez(tmp_path / "full" / "model.npz", about=np.array([{}], dtype=object))  # a pickle
    assert main(["generate", str(tmp_path / "full")]) == 2
    assert "model.npz is damaged" in one_line(capsys.readouterr().err)


def test_no_plugin_reads_a_folder_of_the_package(dna, tmp_path, monkeypatch):
    monkeypatch.setattr(FORMATS["npz"], "matches", classmethod(lambda cls, path: True))
    assert read_bundle(dna[1]).config.data.tokenizer.kind == "dna_letters"


def test_plugins_of_data_are_listed(capsys):
    for command, name in {
        "tokenizers": "dna_letters",
        "sources": "sums:",
        "formats": "npz",
    }.items():
        assert main([command]) == 0
        assert any(line.startswith(f"{name} ") for line in capsys.readouterr().out.splitlines())
