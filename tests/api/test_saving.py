"""A model that was saved is the same model, and one that was damaged is none."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_models import PROMPTS, TEXTS, content, one_line

import unmask
from unmask.errors import UnmaskError


def test_an_exported_model_is_the_same_model(either, tmp_path):
    either.save(tmp_path / "deep" / "exported")
    copy = unmask.load(tmp_path / "deep" / "exported")
    ours, theirs = either.method.state_dict(), copy.method.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert copy.config == either.config
    assert copy.tokenizer.fingerprint == either.tokenizer.fingerprint
    assert [content(r) for r in copy.generate(PROMPTS)] == [
        content(r) for r in either.generate(PROMPTS)
    ]
    assert copy.perplexity(TEXTS[:3]) == either.perplexity(TEXTS[:3])


def test_saving_replaces_a_model_and_nothing_else(model, left_to_right, tmp_path):
    left_to_right.save(tmp_path / "here")
    model.save(tmp_path / "here")
    assert unmask.load(tmp_path / "here").config == model.config
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "diary.txt").write_text("dear diary")
    with pytest.raises(UnmaskError, match="no exported model"):
        model.save(notes)
    assert (notes / "diary.txt").read_text() == "dear diary"


def test_a_run_is_loaded_before_it_is_finished(run, model, tmp_path):
    running = Path(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(running / "model")  # written when training ends
    early = unmask.load(running)
    ours, theirs = early.method.state_dict(), model.method.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert str(early.generate("The")[0]) == str(model.generate("The")[0])
    shutil.rmtree(running / "checkpoints")
    with pytest.raises(UnmaskError, match="no checkpoint yet"):
        unmask.load(running)


@pytest.mark.parametrize("text", ["", "seed: [", "nonsense: 1", "\0", "seed: -"])
def test_a_run_with_a_damaged_configuration_is_refused(run, tmp_path, text):
    running = Path(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(running / "model")
    (running / "config.yaml").write_text(text)
    with pytest.raises(UnmaskError) as caught:
        unmask.load(running)
    one_line(caught)


FILES = ["model.safetensors", "model.json", "manifest.json"]
FILES += ["tokenizer/vocabulary.json", "tokenizer/tokenizer.json"]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink], ids=["cut", "flipped", "missing"])
def test_a_damaged_exported_model_is_refused(model, tmp_path, name, damage: Callable):
    model.save(tmp_path / "model")
    assert sorted(FILES) == sorted(
        path.relative_to(tmp_path / "model").as_posix()
        for path in (tmp_path / "model").rglob("*")
        if path.is_file()
    )
    damage(tmp_path / "model" / name)
    with pytest.raises(UnmaskError) as caught:
        unmask.load(tmp_path / "model")
    one_line(caught)


def test_what_is_no_model_is_refused(tmp_path):
    for path, message in [
        (tmp_path / "nowhere", "no model"),
        (tmp_path, "neither model.json nor config.yaml"),
    ]:
        with pytest.raises(UnmaskError, match=message) as caught:
            unmask.load(path)
        one_line(caught)
    with pytest.raises(UnmaskError, match="no model"):
        unmask.load(__file__)
