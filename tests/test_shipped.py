"""Models that are shipped with the package: loaded by name, listed, measured, and distinguished from folders."""

import contextlib
import json
import os
import re
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import unmask
from unmask import shipped
from unmask.cli import main
from unmask.cli.parser import Parser
from unmask.config.components import build_method
from unmask.config.run_config import load_recipe, resolve
from unmask.data.data_config import Portion
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError
from unmask.evaluation.judges.load_judge import load_judge
from unmask.formats.model_card import training_command
from unmask.formats.redact import published
from unmask.generation.display import MASK
from unmask.likelihood.figure_text import with_error
from unmask.model import Model

TEXT = "Once upon a time there was a small cat. The cat saw a red ball and was happy. " * 3
SETTINGS = {"backbone.width": "32", "backbone.depth": "1", "backbone.heads": "2"}
TRAINED = {"data.length": "24", "training.betas": "0.9,0.97", "training.compile": "false"}


@pytest.fixture
def held(tmp_path, monkeypatch) -> Path:
    """An installation in its own folder whose model 'stories' has random weights."""
    monkeypatch.setattr(shipped, "_FOLDER", tmp_path / "shipped")
    monkeypatch.setattr(shipped, "_CLONE", tmp_path / "unmask_models")
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    config = resolve(load_recipe("stories"), list((SETTINGS | TRAINED).items()))
    tokenizer = build_tokenizer(TokenizerConfig("bpe", 300), [TEXT])
    torch.manual_seed(0)
    method = build_method(config, tokenizer.vocabulary)
    for weight in method.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    model = Model(method, tokenizer, config, {"length": 20, "steps": 6})
    model.save(tmp_path / "shipped" / "stories", "bf16")
    return tmp_path / "shipped"


def run(capsys, *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_a_shipped_model_is_loaded_by_name(held, capsys):
    by_name, by_path = unmask.load("stories"), unmask.load(held / "stories")
    assert str(by_name.generate(seed=3)[0]) == str(by_path.generate(seed=3)[0])
    assert isinstance(load_judge("stories"), Model)
    written = run(capsys, "generate", "stories", "--seed", "0")
    assert written == run(capsys, "generate", "stories", "--seed", "0")
    assert written != run(capsys, "generate", "stories", "--seed", "1")
    assert run(capsys, "fill", "stories", "The [MASK:3] cat").startswith("The")
    Path("text.txt").write_text(TEXT)
    assert "bits per byte" in run(capsys, "evaluate", "stories", "--data", "text.txt", "--draws=2")


def test_a_folder_with_a_model_has_precedence_and_a_folder_of_data_has_not(held, capsys):
    shipped_text = run(capsys, "generate", "stories")
    Path("stories").mkdir()
    Path("stories", "notes.txt").write_text("no model")
    assert run(capsys, "generate", "stories") == shipped_text
    shutil.rmtree("stories")
    model = unmask.load("stories")
    torch.nn.init.normal_(model.method.backbone.head.weight)
    model.save("stories")
    assert run(capsys, "generate", "stories") != shipped_text
    assert run(capsys, "generate", "./stories") == run(capsys, "generate", "stories")


@pytest.mark.parametrize("name", ["wiki", "stories-ar", "smol"])
def test_an_installation_without_a_model_is_a_one_line_error(held, name):
    for ask in (unmask.load, load_judge):
        with pytest.raises(UnmaskError, match="is not in this installation: ") as caught:
            ask(name)
        message = str(caught.value)
        assert "\n" not in message
        if name == "wiki":
            (recipe,) = re.findall(r"unmask train ([\w-]+)", message)
            resolve(load_recipe(recipe))
        else:
            assert "pip install unmask_models-" in message


@pytest.mark.parametrize("place", ["clone", "installed"])
def test_the_models_of_the_second_package_are_found_by_name(held, monkeypatch, place):
    folder = held.parent / "unmask_models"
    folder.mkdir()
    if place == "installed":
        monkeypatch.setattr(shipped, "_CLONE", held / "no clone" / "unmask_models")
        monkeypatch.syspath_prepend(held.parent)
        (folder / "__init__.py").touch()
    shutil.copytree(held / "stories", folder / "smol")
    assert {"stories", "smol"} <= set(shipped.names())
    assert str(unmask.load("smol").generate(seed=1)[0]) == str(
        unmask.load("stories").generate(seed=1)[0]
    )


def test_an_unknown_name_suggests_the_existing_ones(held):
    with pytest.raises(UnmaskError, match="no model 'storys'; did you mean 'stories'"):
        unmask.load("storys")


def test_the_list_shows_installed_and_missing_models(held, capsys):
    listed = run(capsys, "models")
    assert re.search(r"stories .* \? .* MB", listed)
    assert re.search(r"wiki is not in this installation: .*\('unmask train wiki'\)", listed)
    assert "smol is not in this installation: pip install unmask_models-" in listed
    found = [json.loads(line) for line in run(capsys, "models", "--json").splitlines()]
    size = sum(path.stat().st_size for path in (held / "stories").rglob("*") if path.is_file())
    assert [one for one in found if one["name"] != "dna"] == [{"name": "stories", "bytes": size}]


def test_a_card_holds_what_was_measured(held, capsys, monkeypatch):
    Path("valid.txt").write_text(TEXT)
    card = ["card", str(held / "stories"), "--data", "valid.txt", "--about", "Stories, small."]
    card += ["--licence", "CC0", "--judge", "stories", "--draws", "2", "--samples", "3"]
    before = run(capsys, "generate", "stories", "--seed", "4")
    assert "wrote " in run(capsys, *card)
    assert run(capsys, "generate", "stories", "--seed", "4") == before  # the model is unchanged
    facts = shipped.card("stories")
    bound = unmask.load("stories").perplexity(Path("valid.txt"), draws=2)
    assert facts["bound"]["nats"] == bound.nats
    assert facts["bound"]["bits_per_byte"] == bound.bits_per_byte
    relative = [
        bound.error / bound.nats,
        facts["bound"]["bits_per_byte_error"] / bound.bits_per_byte,
    ]
    assert relative[0] == pytest.approx(relative[1])
    (texts,) = facts["texts"]
    assert (texts["n"], texts["steps"], texts["length"]) == (3, 6, 20)
    assert [sample["seed"] for sample in facts["samples"]] == list(range(10))
    assert facts["samples"][4]["text"] == before.rstrip("\n")
    page = (held / "stories" / "README.md").read_text()
    bits = with_error(bound.bits_per_byte, facts["bound"]["bits_per_byte_error"])
    for part in ("Stories, small.", "CC0", bits, facts["command"]):
        assert part in page
    assert all(f"Seed {seed}:" in page for seed in range(10))
    assert re.search(r"stories .* ≤ .* bits/byte .* CC0 .* MB", run(capsys, "models"))


def test_the_command_of_a_card_trains_the_same_configuration(held):
    config = unmask.load("stories").config
    trained = replace(config, data=replace(config.data, held_out_digest="written by training"))
    assert training_command(trained, "stories") == training_command(config, "stories")
    program, verb, recipe, *overrides = shlex.split(training_command(config, "stories"))
    assert (program, verb, recipe) == ("unmask", "train", "stories")
    parsed = Parser(overrides=True).parse_args([recipe, *overrides])
    assert resolve(load_recipe(recipe), parsed.overrides) == config
    assert {name for name, _ in parsed.overrides} == (SETTINGS | TRAINED).keys()
    with pytest.raises(UnmaskError, match="was not trained with the recipe demo-d3pm"):
        training_command(config, "demo-d3pm")


def test_the_card_of_a_mixture_names_a_file_and_holds_it(held, capsys):
    model = unmask.load("stories")
    data = replace(
        model.config.data, train=(Portion("a.txt", 2.0), Portion("b.txt")), valid="valid.txt"
    )
    model = replace(model, config=replace(model.config, data=data))
    assert training_command(model.config, "stories") is None
    model.save("mix")
    Path("valid.txt").write_text(TEXT)
    card = ["card", "mix", "--data", "valid.txt", "--about", "x", "--licence", "x"]
    card += ["--judge", "stories", "--draws", "1", "--samples", "2", "--recipe", "stories"]
    run(capsys, *card)
    page = Path("mix", "README.md").read_text()
    assert "unmask train mix.yaml" in page
    _, file, rest = page.partition("The whole configuration, the file `mix.yaml`:\n\n```yaml\n")
    Path("mix.yaml").write_text(rest.partition("```")[0])
    assert file and resolve(load_recipe("mix.yaml")) == published(model.config)


def test_only_an_exported_folder_gets_a_card(tmp_path, capsys):
    assert main(["card", str(tmp_path), "--data=x", "--about=x", "--licence=x"]) == 2
    assert "make one with 'unmask export'" in capsys.readouterr().err


def test_the_time_is_printed_apart_from_the_text(held, capsys):
    plain = run(capsys, "generate", "stories", "--seed", "0")
    for watched in ([], ["--watch"]):
        assert main(["generate", "stories", "--seed", "0", "--time", *watched]) == 0
        captured = capsys.readouterr()
        assert captured.out == plain
        first, tokens, calls, took = re.fullmatch(
            r"first text after ([\d.]+) s; (\d+) tokens in (\d+) network calls took ([\d.]+) s\n",
            captured.err,
        ).groups()
        assert float(first) >= float(took) > 0
        assert 1 <= int(tokens) <= 20
        assert 1 <= int(calls) <= 6


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="terminals of another kind")
def test_a_single_text_is_animated_in_a_terminal(held, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "500")

    def shown(*options: str) -> str:
        screen, terminal = os.openpty()
        with ThreadPoolExecutor() as reader, open(terminal, "w") as stdout:
            seen = reader.submit(_all_of, screen)
            monkeypatch.setattr("sys.stdout", stdout)
            assert main(["generate", "stories", "--regex", "[a-z .]*", *options]) == 0
            stdout.close()
            return seen.result()

    plain = shown("--no-watch")
    assert MASK not in plain
    forming = shown()
    assert MASK in forming and forming.endswith(plain)
    assert MASK not in shown("--n", "2")
    assert "frame" in shown("--watch").splitlines()[-1]


def _all_of(screen: int) -> str:
    """All output until the other end is closed, which is an OSError on Linux."""
    read = b""
    with open(screen, "rb") as file, contextlib.suppress(OSError):
        while part := file.read1():
            read += part
    return read.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("name", shipped.names())
def test_a_shipped_model_is_small_measured_and_works(name):
    facts, folder = shipped.card(name), shipped.folder(name)
    assert shipped.size(name) <= 40e6
    assert facts["parameters"] <= 22e6
    precisions = ("fp32",) if facts["parameters"] < 1e6 else ("bf16", "int8")
    assert json.loads((folder / "model.json").read_text())["precision"] in precisions
    assert len(facts["samples"]) == 10
    assert facts["bound"]["bits_per_byte_error"] < 0.01 * facts["bound"]["bits_per_byte"]
    model = unmask.load(name)
    assert model.digest == facts["weights"]
    assert model.length >= 256
    assert str(model.generate(length=16, seed=0)[0]) == str(model.generate(length=16, seed=0)[0])
