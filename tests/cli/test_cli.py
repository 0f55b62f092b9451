"""The command line: its calls of the API, its output and its errors."""

import io
import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from unmask import cli
from unmask.cli import main
from unmask.cli.commands.generate import filled_spans
from unmask.cli.output.terminal import Waiting
from unmask.config.run_config import RunConfig, dump_yaml, load_recipe, resolve
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.errors import UnmaskError
from unmask.likelihood.bound import Bound
from unmask.likelihood.figure_text import with_error
from unmask.methods.method import Capabilities

LISTS = ["recipes", "methods", "samplers", "grids", "schedules", "time-samplers", "backbones"]
WORKING = ["train", "evaluate", "generate", "fill", "edit", "export", "config"]
COMMANDS = [*WORKING, "list", "models"]


@dataclass
class Written:
    """A fake of unmask.Result."""

    text: str
    ids: list[int] = field(default_factory=list)
    calls: int = 3
    seconds: float = 0.5

    def __str__(self) -> str:
        return self.text


class FakeModel:
    """A model that returns at once and records its arguments."""

    config = RunConfig()
    tokenizer = ByteTokenizer()
    precision, digest = "fp32", "0123456789abcdef"
    length, conditional = 64, False
    method = SimpleNamespace(capabilities=Capabilities(causal=True))

    def __init__(self, certificate: str = "upper") -> None:
        self.asked: dict[str, Any] = {}
        self.certificate = certificate

    def generate(self, prompts=None, **options):
        self.asked = {"prompts": prompts, **options}
        return [Written("once [bold]upon[/bold]"), Written("a time")]

    def fill(self, text, **options):
        self.asked = {"text": text, **options}
        return [Written("The cat sat.")]

    def texts(self, prompts=None, fill=None, **options):
        yield from self.generate(prompts, **options) if fill is None else self.fill(fill, **options)

    def perplexity(self, data=None, **options):
        self.asked = {"data": data, **options}
        return Bound(2.5, 0.0123, self.certificate, 12345, 20000, 19000, 8, {"diffusion": 2.5})

    def save(self, folder):
        self.asked = {"folder": folder}


@pytest.fixture
def model(monkeypatch):
    fake = FakeModel()
    monkeypatch.setattr("unmask.model.load", lambda path, **options: fake)
    return fake


def failure(capsys, *argv: str) -> str:
    """The one line on stderr of a command that fails with exit code 2."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("unmask: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("unmask: error: ").strip()


# Help


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_explains_every_command(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    assert f"usage: unmask {command}".strip() in capsys.readouterr().out


def test_help_of_generate_has_the_common_options_first(capsys):
    for option, lines in ("--help", 40), ("--help-all", 1000):
        with pytest.raises(SystemExit):
            main(["generate", option])
        page = capsys.readouterr().out
        assert "--temperature X" in page and "unmask generate stories" in page
        assert ("--regex PATTERN" in page) == (option == "--help-all")
        assert page.count("\n") < lines


def test_far_more_steps_than_tokens_are_announced(run, capsys):
    assert (
        main(["generate", str(run), "--length", "4", "--steps", "500", "--sampler", "ancestral"])
        == 0
    )
    assert capsys.readouterr().err == (
        "500 steps for 4 tokens: most steps change nothing, but each takes time; --steps 4 is one step "
        "for each token\n"
    )


def test_a_long_wait_prints_its_seconds(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    waiting = Waiting()
    for now in (5.0, 11.0, 12.0, 22.0):
        clock[0] = now
        waiting()
    assert capsys.readouterr().err == "writing: 11 s\nwriting: 22 s\n"


def test_every_command_has_examples_that_parse():
    parser, commands = cli.build_parser()
    for name, command in commands.choices.items():
        page = command.format_help().partition("examples:")[2]
        examples = re.findall(r"^  (unmask .*)$", page, re.MULTILINE)
        assert len(examples) >= 2, name
        for example in examples if command.prefix_chars == "-" else ():  # else another parser's
            args = parser.parse_args(shlex.split(example.partition(" > ")[0])[1:])
            if hasattr(args, "overrides"):
                resolve(load_recipe(args.recipe), args.overrides)


def test_help_does_not_import_torch():
    code = (
        "import sys; from unmask.cli import main\n"
        "for argv in ['--help'], ['train', '--help'], ['evaluate', '--help']:\n"
        "    try: main(argv)\n"
        "    except SystemExit: pass\n"
        "main(['recipes'])\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.splitlines()[-1] == "False False"


def test_a_missing_file_is_an_error_before_torch_is_imported():
    wrong = {
        "train finetune": "finetune has no text to train on: give --data.train FILE",
        "train finetune --data.train none.txt": "no file or folder none.txt",
        "train finetune --data.train=none.txt --init-from storeis": "no file or folder none.txt",
        "train demo --init_from storeis": "no model 'storeis'; did you mean 'stories'?",
        "train demo --data.valid none": "no file or folder none",
        "generate storeis": "no model 'storeis'; did you mean 'stories'?",
        "fill runs/none a[MASK]": "no model 'runs/none': give a run folder",
        "edit stories none.txt --remask 0.1": "no file none.txt",
        "evaluate runs/none": "no model 'runs/none': give a run folder",
        "evaluate generation stories --data none": "no file or folder none",
    }
    code = (
        "import sys; from unmask.cli import main\n"
        "for line in sys.argv[1:]: assert main(line.split()) == 2\n"
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *wrong], capture_output=True, text=True)
    assert done.stdout == "False False\n", done.stderr
    for line, start in zip(done.stderr.splitlines(), wrong.values(), strict=True):
        assert line.removeprefix("unmask: error: ").startswith(start)


def test_python_dash_m_runs_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "unmask", "trian"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "unmask: error: unknown command 'trian'; did you mean 'train'?\n"


# Configuration


@pytest.mark.parametrize(
    "argv",
    [
        ["demo", "--training.steps", "7", "--method", "d3pm", "--seed", "11"],
        ["--training.steps=7", "--method=d3pm", "demo", "--seed=11"],
        ["--training.steps", "7", "--seed", "11", "--method", "d3pm", "demo"],
        [
            "demo",
            "--training.steps",
            "7",
            "--method",
            "d3pm",
            "--seed",
            "11",
            "--data.label-dropout=0.1",
        ],
    ],
)
def test_config_prints_what_the_overrides_make(argv, capsys):
    assert main(["config", *argv]) == 0
    overrides = [("training.steps", "7"), ("method", "d3pm"), ("seed", "11")]
    assert capsys.readouterr().out == dump_yaml(resolve(load_recipe("demo"), overrides))


def test_a_negative_value_is_a_value(capsys):
    assert main(["config", "demo", "--seed", "-1"]) == 2
    assert "seed must be 0 or more" in capsys.readouterr().err


@pytest.mark.parametrize("command", LISTS)
def test_lists_have_one_line_each(command, capsys):
    assert main(["list", command]) == 0
    listed = capsys.readouterr().out
    assert listed and all(len(line.split(maxsplit=1)) == 2 for line in listed.splitlines())
    assert main([command]) == 0  # the command of earlier versions
    assert capsys.readouterr() == (
        listed,
        f"unmask: warning: 'unmask {command}' is now 'unmask list {command}'; version 0.2 removes "
        "the old command\n",
    )


def test_lists_name_all_registered_components(capsys):
    main(["list", "recipes"])
    assert {"demo", "lm1b", "owt", "text8"} <= set(capsys.readouterr().out.split())
    main(["list", "methods"])
    names = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert {"mdlm", "sedd", "d3pm", "autoregressive"} <= names
    for wrong in (["schedules", "cosine"], ["samplers", "--json"], ["sampler"]):
        assert main(["list", *wrong]) == 2


# Models


def test_generate_passes_only_given_options(model, capsys):
    assert main(["generate", "stories", "--prompt", "a", "--prompt", "b", "--top-k", "5"]) == 0
    assert model.asked == {"prompts": ["a", "b"], "top_k": 5}
    assert capsys.readouterr().out == "once [bold]upon[/bold]\n\na time\n"


def test_a_text_is_printed_before_the_next_is_written(model, capsys, monkeypatch):
    def texts(prompts=None, **options):
        yield Written("first")
        assert capsys.readouterr().out == "first\n"
        yield Written("second")

    monkeypatch.setattr(model, "texts", texts)
    assert main(["generate", "stories"]) == 0
    assert capsys.readouterr().out == "\nsecond\n"


def test_generate_prints_json_lines(model, capsys):
    assert main(["generate", "stories", "--json", "--length", "9", "--seed", "3"]) == 0
    assert model.asked == {"prompts": None, "length": 9, "seed": 3}
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["once [bold]upon[/bold]", "a time"]


@pytest.mark.parametrize(("length", "more", "said"), [(65, "", 1), (64, "", 0), (65, "--json", 0)])
def test_a_text_of_several_windows_is_announced(length, more, said, model, capsys):
    assert main(["generate", "stories", "--length", str(length), *more.split()]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("the model reads 64 tokens: a text of 65") for line in lines] == [
        True
    ] * said


@pytest.mark.parametrize("text", ["The [MASK] sat.", "-"])
def test_fill_prints_the_text(text, model, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The [MASK] sat.\n")))
    assert main(["fill", "stories", text, "--n", "4"]) == 0
    assert model.asked == {"text": "The [MASK] sat.", "n": 4}
    assert capsys.readouterr().out == "The cat sat.\n"


@pytest.mark.parametrize(
    ("template", "text", "filled"),
    [
        ("The [MASK] sat on [MASK:4].", "The cat sat on a mat.", [" cat", " a mat"]),
        ("[MASK] (x)", "f (x)", ["f"]),
        ("The [MASK] sat", "These sat", ["se"]),
        ("no gap", "no gap", []),
        ("The [MASK]", "changed", []),
    ],
)
def test_filled_words_are_found(template, text, filled):
    assert [text[start:end] for start, end in filled_spans(template, text)] == filled


def test_evaluate_shows_a_bound_as_a_bound(model, capsys):
    assert main(["evaluate", "stories", "--data", __file__, "--draws", "8"]) == 0
    assert (model.asked["source"], model.asked["draws"]) == (__file__, 8)
    out = capsys.readouterr().out
    assert "≤ 12.18 ± 0.15" in out
    assert "12,345" in out


@pytest.mark.parametrize(
    "certificate", ["exact", "none"]
)  # a pseudo-likelihood is printed with a bound
def test_a_figure_that_is_no_upper_bound_is_not_shown_as_one(certificate, model, capsys):
    model.certificate = certificate
    assert main(["evaluate", "stories"]) == 0
    assert "≤" not in capsys.readouterr().out


def test_evaluate_prints_json(model, capsys):
    assert main(["evaluate", "stories", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["perplexity"] == pytest.approx(12.1825, abs=1e-4)


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (12.1825, 0.15, "12.18 ± 0.15"),
        (1234.5, 23.0, "1234 ± 23"),
        (2.5, 0.0, "2.5000"),
        (2.5, math.inf, "2.5000 ± ?"),
    ],
)
def test_digits_follow_the_error(value, error, shown):
    assert with_error(value, error) == shown
    assert with_error(value, error, freedom=3) == shown
    assert with_error(value, error, freedom=2.9).endswith("± ?" if error else shown)


def test_export_saves_the_model(model, tmp_path):
    assert main(["export", "stories", str(tmp_path / "out")]) == 0
    assert model.asked == {"folder": tmp_path / "out"}


# Training


def test_train_takes_the_run_folder_from_the_recipe(monkeypatch, capsys):
    calls = []
    trained = SimpleNamespace(method=SimpleNamespace(capabilities=Capabilities(generate=False)))
    monkeypatch.setattr(
        "unmask.runs.train.train", lambda config, run, **_: calls.append((config, run)) or trained
    )
    assert main(["train", "demo", "--training.steps", "2"]) == 0
    assert main(["train", "demo", "--run", "elsewhere", "--data.valid", ""]) == 0
    assert [run for _, run in calls] == [Path("runs/demo"), Path("elsewhere")]
    assert calls[0][0] == resolve(load_recipe("demo"), [("training.steps", "2")])


def test_interrupted_training_prints_how_to_resume(monkeypatch, capsys):
    def stop(config, run, **_):
        raise KeyboardInterrupt("saved as step-7")

    monkeypatch.setattr("unmask.runs.train.train", stop)
    assert main(["train", "demo", "--run", "a b", "--seed=3"]) == 130
    out, err = capsys.readouterr()
    command = "unmask train demo --run 'a b' --seed 3"
    assert out == "recipe demo, run folder a b\n"
    assert err == f"unmask: interrupted; saved as step-7; resume with: {command}\n"


def test_one_of_several_processes_prints_how_to_resume_with_torchrun(monkeypatch, capsys):
    def stop(config, run, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr("unmask.runs.train.train", stop)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    said = []
    for rank, machines in [("0", "1"), ("0", "4"), ("3", "4")]:
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("GROUP_WORLD_SIZE", machines)
        assert main(["train", "demo", "--run", "a"]) == 130
        said.append(capsys.readouterr().err.removeprefix("unmask: interrupted").rstrip())
    start = "; resume with: torchrun --nproc-per-node 8"
    whole = "-m -- unmask train demo --run a"
    assert said == [f"{start} {whole}", f"{start} --nnodes 4 {whole}", ""]


# Failures


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("", "the following arguments are required: COMMAND; see 'unmask --help'"),
        ("generat x", "unknown command 'generat'; did you mean 'generate'?"),
        ("train", "the following arguments are required: RECIPE; see 'unmask train --help'"),
        ("train dmeo", "unknown recipe 'dmeo'; did you mean 'demo'?"),
        ("config demo --training.stepz 3", "unknown setting 'training.stepz'; did you mean"),
        (
            "config demo --traning.steps 3",
            "unknown setting 'traning.steps'; did you mean 'training.steps'",
        ),
        (
            "config demo --data.label-feild x",
            "unknown setting 'data.label_feild'; did you mean 'data.label_field'",
        ),
        ("config demo --training.steps", "--training.steps needs a value"),
        ("config demo --training.steps --seed 3", "--training.steps needs a value"),
        ("config demo extra", "unrecognized arguments: extra"),
        ("generate m --n two", "argument --n: invalid int value: 'two'"),
        ("generate m --samplr x", "unrecognized arguments: --samplr x; did you mean '--sampler'?"),
        ("generate m --top_pp 1", "unrecognized arguments: --top_pp 1; did you mean '--top-p'?"),
        ("fill m", "the following arguments are required: TEXT"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(argv, message, capsys):
    assert failure(capsys, *argv.split()).startswith(message)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UnmaskError("no model there"), "no model there"),
        (FileNotFoundError(2, "No such file", "x.txt"), "[Errno 2] No such file: 'x.txt'"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_an_error_of_the_api_is_one_line(error, line, monkeypatch, capsys):
    def fail(path, **options):
        raise error

    monkeypatch.setattr("unmask.model.load", fail)
    assert failure(capsys, "generate", "stories") == line


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def fail(path, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("unmask.model.load", fail)
    assert main(["generate", "stories"]) == 130
    assert capsys.readouterr().err == "unmask: interrupted\n"


@pytest.mark.parametrize(
    ("encoding", "bound"), [("ascii", b"<= 2.0 +- 0.1"), ("latin-1", b"<= 2.0 \xb1 0.1")]
)
def test_characters_that_the_terminal_lacks_are_escaped(encoding, bound, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    err = io.TextIOWrapper(io.BytesIO(), encoding, "strict")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    def execute(args: Any) -> None:
        Console().print("≤ 2.0 ± 0.1 ☺")
        raise UnmaskError("no file \udcff…")  # a byte that a file name can contain

    monkeypatch.setattr("unmask.cli.commands.train.config", execute)
    assert main(["config", "demo"]) == 2
    for stream in (out, err):
        stream.flush()
    assert out.buffer.getvalue() == bound + b" \\u263a\n"
    assert err.buffer.getvalue() == b"unmask: error: no file \\udcff...\n"


def test_output_may_be_closed(model, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert (
        main(["list", "recipes"])
        == main(["generate", "stories"])
        == main(["evaluate", "stories"])
        == 0
    )


def test_a_closed_pipe_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "unmask", "list", "recipes"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_module_defines_the_commands_that_it_registers():
    defined: dict[str, list[str]] = {}
    for name, module in cli.command_modules().items():
        defined.setdefault(module, []).append(name)
    for module, names in defined.items():
        assert list(cli.build_parser([module])[1].choices) == names


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        RuntimeError("can't start new thread"),
        ImportError("libtorch.so: failed to map segment from shared object"),
    ],
)
def test_lack_of_memory_is_one_line(monkeypatch, capsys, error):
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("unmask.cli._parse", fails)
    assert main(["models"]) == 2
    assert capsys.readouterr().err.startswith("unmask: error: out of memory: free memory, or")


def test_another_fault_is_not_lack_of_memory(monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("another fault")

    monkeypatch.setattr("unmask.cli._parse", fails)
    with pytest.raises(RuntimeError, match="another fault"):
        main(["models"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_an_import_without_memory_is_one_line():
    limited = 'ulimit -v 600000; exec "$0" -m unmask generate stories --length 4'
    done = subprocess.run(["bash", "-c", limited, sys.executable], capture_output=True, text=True)
    # OpenBLAS may end the process with a line of its own
    assert done.returncode == 2 or (done.returncode == 1 and "OpenBLAS" in done.stderr)
    assert done.stderr.count("\n") == 1 and "emory" in done.stderr
