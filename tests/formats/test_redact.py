"""Published cards and configurations contain only the names of a run's data files,
not their folders.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hub_models import refused, tiny

import unmask
from unmask.config.run_config import load_recipe, resolve
from unmask.formats.model_card import training_command
from unmask.formats.redact import published, without_paths


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("builtin:pydoc", "builtin:pydoc"),
        ("hf:Skylion007/openwebtext:train[:-9]", "hf:Skylion007/openwebtext:train[:-9]"),
        ("-", "-"),
        ("notes.txt", "notes.txt"),
        ("/home/alice/multi30k/train.{de,en}", "train.{de,en}"),
        (r"C:\Users\alice\notes.txt", "notes.txt"),
        ("~", "data"),
        ("../..", "data"),
        ("/", "data"),
    ],
)
def test_a_source_keeps_its_name(path, name):
    config = resolve({}, [("data.train", path)])
    assert published(config).data.train == name


def test_models_of_the_hub_and_shipped_ones_keep_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name, told in {
        "me/my-mdlm@v1": "me/my-mdlm@v1",
        "stories": "stories",
        "hf:gpt2": "hf:gpt2",
        "mine/model": "model",
        "runs/demo": "demo",
        "": "",
    }.items():
        assert published(resolve({}, [("init_from", name)])).init_from == told


def test_the_command_of_a_card_names_files_alone():
    config = resolve(load_recipe("demo"), [("data.train", "/home/alice/a.txt")])
    config = replace(config, data=replace(config.data, cache="/home/alice/cache"))
    assert training_command(config, "demo") == "unmask train demo --data.train a.txt"


@pytest.mark.parametrize("path", [".", "/", "..", "~", "./", "data/", "../..", "-"])
def test_a_card_without_local_paths_is_not_changed(path):
    card = "See https://example.com/data/readme.md, ~3.14 nats... and/or ../data/x - 50/50."
    assert without_paths(card, resolve({}, [("data.train", path)])) == card


@pytest.mark.parametrize(
    ("path", "told"),
    [("/home/data", "data"), ("a/notes.txt", "notes.txt"), ("/b/alice/..", "data")],
)
def test_a_card_has_the_names_of_whole_paths(path, told):
    card = "On {0}, `{0}`, file://{0} and {0}. Not on https://x.org/{0}, {0}-2 or mine{0}."
    left = f"Not on https://x.org/{path}, {path}-2 or mine{path}."
    expected = f"On {told}, `{told}`, {told} and {told}. {left}"
    assert without_paths(card.format(path), resolve({}, [("data.train", path)])) == expected


def test_a_local_file_of_the_same_name_is_not_the_text_of_a_downloaded_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.txt").write_text("something else entirely\n" * 50)
    model = tiny()
    data = replace(model.config.data, train="/elsewhere/train.txt", separator="line", cache="cache")
    model = replace(model, config=replace(model.config, data=data))
    for name in ("once", "twice"):  # also after saving it again
        model.save_pretrained(name)
        model = unmask.load(name)
        assert refused(lambda model=model: model.perplexity(draws=1)) == (
            "the text 'train.txt' is on the machine where the model was trained; the model's own "
            "validation text cannot be read: give a text with --data FILE"
        )
        card = Path(name, "README.md").read_text()
        assert "| data | train.txt |" in card and "elsewhere" not in card
    assert model.perplexity(Path("train.txt"), draws=1).nats > 0


def test_bed_files_lose_their_folders():
    names = ("intervals", "exclude", "holdout_intervals")
    config = resolve({}, {f"data.{name}": f"/home/me/{name}.bed" for name in names})
    public = published(config)
    assert [getattr(public.data, name) for name in names] == [f"{name}.bed" for name in names]
    assert without_paths("read /home/me/exclude.bed", config) == "read exclude.bed"
