"""Every method on every network: the pair is refused in one line, or works with all commands."""

import json
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import unmask
from unmask.backbones.backbone import BACKBONES
from unmask.cli import command_modules, main
from unmask.config.run_config import config_class
from unmask.methods.method import METHODS

TEXT = "\n".join(f"Number {number} follows number {number - 1}." for number in range(1, 30))
SETTINGS = {
    "data.separator": "line",
    "data.tokenizer.kind": "characters",
    "data.length": "12",
    "backbone.width": "8",
    "backbone.depth": "1",
    "backbone.heads": "2",
    "training.steps": "2",
    "training.batch": "4",
    "training.warmup": "1",
    "training.validation_rows": "4",
    "training.validation_draws": "2",
    "training.sample_every": "0",
    "training.device": "cpu",
}
CPU = ["--device", "cpu"]
TIMED = "backbone.time_conditioning"
# MPNet and DeBERTa train as BERT does
NETWORKS = {name: {"backbone": name} for name in BACKBONES if name not in ("mpnet", "deberta")}
NETWORKS |= {
    f"{name}, timed": {"backbone": name, TIMED: "true"}
    for name in BACKBONES
    if hasattr(config_class(BACKBONES[name]), "time_conditioning")
}


def one_of(names: str) -> str:
    """The advice to set one of some networks, less those of extensions that this tree lacks."""
    return f"set backbone {' or '.join(name for name in names.split() if name in BACKBONES)}"


CAUSAL = one_of("causal gpt2 hyena llama mamba modern_causal")
BOTH_SIDES = one_of("bert bimamba caduceus deberta dit llama modern_dit mpnet")
READS_TIME = f"{one_of('bimamba caduceus dit modern_dit')} and {TIMED} true"
COMPLEMENTS = "set data.tokenizer.kind dna"
PAIRED = "set data.source_field and data.target_field, or another backbone"
TRAINS = None
# the error of training for a method and a network; add new components here
ANSWERS = {
    "autoregressive": {
        "bert": CAUSAL,
        "causal": TRAINS,
        "dit": CAUSAL,
        "dit, timed": CAUSAL,
        "gpt2": TRAINS,
        "llama": "set backbone.causal true",
    },
    "d3pm": {
        "bert": TRAINS,
        "causal": BOTH_SIDES,
        "dit": TRAINS,
        "dit, timed": TRAINS,
        "gpt2": BOTH_SIDES,
        "llama": TRAINS,
    },
    "mdlm": {
        "bert": TRAINS,
        "causal": BOTH_SIDES,
        "dit": TRAINS,
        "dit, timed": TRAINS,
        "gpt2": BOTH_SIDES,
        "llama": TRAINS,
    },
    "sedd": {
        "bert": READS_TIME,
        "causal": READS_TIME,
        "dit": f"set {TIMED} true",
        "dit, timed": TRAINS,
        "gpt2": READS_TIME,
        "llama": READS_TIME,
    },
}
ANSWERS |= {name: dict(ANSWERS["sedd"]) for name in ("udlm", "duo", "d3pm_uniform")}
ANSWERS["diffusion_bert"] = dict(ANSWERS["mdlm"])
RULED = one_of("causal dit gpt2 llama modern_causal modern_dit")
ANSWERS["block_diffusion"] = {
    "bert": RULED,
    "causal": TRAINS,
    "dit": TRAINS,
    "dit, timed": f"set {TIMED} false",
    "gpt2": TRAINS,
    "llama": TRAINS,
}
for answers in ANSWERS.values():  # the others fit the same networks
    answers |= {f"modern_{name}": reply for name, reply in answers.items() if name[0] in "cd"}
    for suffix in ("", ", timed"):
        answers[f"bimamba{suffix}"] = answers[f"caduceus{suffix}"] = answers[f"dit{suffix}"]
        if answers[f"caduceus{suffix}"] is TRAINS:
            answers[f"caduceus{suffix}"] = COMPLEMENTS
    answers |= dict.fromkeys(("hyena", "mamba"), answers["causal"])
    answers |= {f"{name}, timed": answers["causal"] for name in ("hyena", "mamba")}
    answers |= dict.fromkeys(("encoder_decoder", "encoder_decoder, timed"), PAIRED)
# tests/methods/test_other_states.py tests the methods of vectors, and those without a likelihood
CAN = {name: METHODS[name].capabilities for name in METHODS}
WRITERS = [
    name
    for name, can in CAN.items()
    if can.generate and can.score and not (can.latent or can.distills)
]
ALIKE = ("udlm", "duo", "d3pm_uniform", "diffusion_bert")  # they train as sedd and mdlm do
PAIRS = list(product(WRITERS, NETWORKS))
# combinations whose parts other pairs cover
SLOW = [
    *(("autoregressive", f"{name}, timed") for name in ("hyena", "mamba")),
    *(("d3pm", name) for name in NETWORKS if name not in ("dit, timed", "causal", "caduceus")),
    *(("mdlm", "bimamba, timed"), ("mdlm", "modern_dit, timed"), ("sedd", "modern_dit, timed")),
    *(("block_diffusion", name) for name in NETWORKS if name not in ("causal", "bert")),
    *((method, name) for method, name in PAIRS if method in ALIKE and name != "dit, timed"),
]
TRAINED = [pair for pair in PAIRS if ANSWERS[pair[0]][pair[1]] is TRAINS]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a text and the runs on it."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "text.txt").write_text(TEXT)
    return folder


@pytest.fixture
def command(folder, capsys, monkeypatch) -> Run:
    """Runs a command in the folder. Returns its output or its one-line error."""
    monkeypatch.chdir(folder)

    def run(*argv: str, refused: bool = False) -> str:
        capsys.readouterr()
        code = main(argv)
        out, err = capsys.readouterr()
        if not refused:
            assert (code, "error" in err) == (0, False), err
            return out
        assert (code, "error" in out, err.count("\n")) == (2, False, 1), err
        assert err.startswith("unmask: error: ")
        return err.removeprefix("unmask: error: ").strip()

    return run


def train(command: Run, method: str, network: str, refused: bool = False, **fields: str) -> str:
    """Trains a pair for two steps. Returns its folder, or the line of the refusal."""
    settings = {**NETWORKS[network], **SETTINGS, "method": method, "data.train": "text.txt"}
    if METHODS[method].capabilities.blocks:
        settings["method.blocks"] = "4,0"
    settings |= {f"backbone.{name}": value for name, value in fields.items()}
    if not hasattr(config_class(BACKBONES[settings["backbone"]]), "heads"):
        del settings["backbone.heads"]
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    run = f"{method} {network}{''.join(fields)}"
    argv = ["train", "demo", "--run", run, *options, "--data.cache", "cache"]
    said = command(*argv, refused=refused)
    return said if refused else run


@pytest.mark.parametrize(
    ("method", "network"),
    [pytest.param(*pair, marks=pytest.mark.slow if pair in SLOW else ()) for pair in PAIRS],
)
def test_a_pair_is_refused_in_one_line_or_works_with_every_command(method, network, command):
    if advice := ANSWERS[method][network]:
        said = train(command, method, network, refused=True)
        assert said.endswith(advice)
        assert method in said.lower() or (advice == COMPLEMENTS and network.startswith("caduceus"))
        assert not Path(f"{method} {network}").exists()
        return
    run = train(command, method, network)
    assert_reported(command, run, method, network)
    measured = json.loads(command("evaluate", run, "--draws", "2", "--json", *CPU))
    assert measured["certificate"] == METHODS[method].certificate
    assert 0 < measured["nats"] < math.inf
    written = assert_written(command, run)
    assert_filled(command, run, method)
    assert_exported(command, run, written, f"{method}, {network.removesuffix(', timed')}")


def test_rows_longer_than_the_positions_of_a_network_are_refused(command):
    said = train(command, "mdlm", "bert", positions="8", refused=True)
    assert said.endswith("set data.length 8 or backbone.positions 12")
    assert not Path("mdlm bertpositions").exists()


def assert_reported(command: Run, run: str, method: str, network: str) -> None:
    """Checks the tables in the terminal and the page, with all figures that the pair can have."""
    if "report" not in command_modules():
        return  # this copy lacks the extension
    budget, timed = ["--rows", "2", "--draws", "2", *CPU], network.endswith("timed")
    texts = [command("report", run, *budget)]
    if network.removesuffix(", timed") in ("dit", "causal"):  # a page depends only on the figures
        command("report", run, *budget, "--html", "report.html")
        texts.append(Path("report.html").read_text(encoding="utf-8"))
    for text in texts:
        assert "Final bound" in text
        alike = method in ("mdlm", "block_diffusion")
        assert ("Perplexity by T" in text) == alike
        assert (f"{run}, by schedule" in text) == (alike and not timed)


def assert_written(command: Run, model: str) -> str:
    """Generates a text of the whole length."""
    options = ["--seed", "3", "--no-stop", "--json", *CPU]
    text = json.loads(command("generate", model, *options))["text"]
    assert len(text) > 0
    return str(text)


def assert_filled(command: Run, run: str, method: str) -> None:
    """Checks that a gap is filled and the rest kept. An autoregressive model refuses with a reason."""
    gap = ["fill", run, "Num[MASK:2]r 3", *CPU]
    if METHODS[method].capabilities.infill:
        text = command(*gap).strip("\n")
        assert text.startswith("Num")
        assert text.endswith("r 3")
    else:
        assert "cannot see what follows a gap" in command(*gap, refused=True)


def assert_exported(command: Run, run: str, written: str, kind: str) -> None:
    """Checks a card and both layouts. Each exported model generates the text of the run."""
    ours = f"{run} exported/demo"  # named after the recipe, which may have another network
    command("export", run, ours)
    card = ["--data", "text.txt", "--about", "Numbers.", "--licence", "CC0"]
    command("card", ours, *card, "--judge", run, "--draws", "2", "--samples", "2", *CPU)
    assert f"| method, network | {kind} |" in Path(ours, "README.md").read_text(encoding="utf-8")
    theirs = f"{run} pretrained"
    command("export", run, "--pretrained", theirs)
    assert kind in Path(theirs, "README.md").read_text(encoding="utf-8")
    for model in (ours, theirs):
        assert assert_written(command, model) == written


@pytest.mark.slow
@pytest.mark.parametrize(("method", "network"), TRAINED)
def test_the_network_of_every_pair_has_the_same_outputs_in_onnx(method, network, command):
    import onnxruntime

    run = train(command, method, network)
    if not BACKBONES[NETWORKS[network]["backbone"]].onnx:
        refusal = command("export", run, "--onnx", f"{run}.onnx", refused=True)
        assert refusal.endswith("export the model without --onnx")
        return
    assert "for onnxruntime" in command("export", run, "--onnx", f"{run}.onnx")
    model = unmask.load(run, "cpu").method
    backbone = model.backbone
    tokens = torch.arange(20).view(2, 10)
    sigma = torch.tensor([0.5, 2.0]) if backbone.time_conditioning else None
    inputs = {"tokens": tokens.numpy()} | ({} if sigma is None else {"sigma": sigma.numpy()})
    (theirs,) = onnxruntime.InferenceSession(f"{run}.onnx").run(["logits"], inputs)
    with torch.no_grad():
        ours = backbone.logits(backbone.features(tokens, sigma, rule=model.rule)).numpy()
    there = np.isfinite(theirs)
    assert there.mean() > 0.9
    np.testing.assert_allclose(theirs[there], ours[there], rtol=0, atol=1e-4)
