"""Every command and every Python block of README.md and docs/ runs, and every link has a target.

The blocks of a page run in order in this process. The page has its own folder with a tiny trained model in runs/demo
and a text in notes.txt. Small models replace the shipped ones, except in the long form. Kinds of blocks:

- `bash`: each line must succeed. Commands that train get the overrides TINY, and commands that measure get the options
  FEW, so that they take a moment. A recipe with data on the hub is only resolved. `make TARGET` is checked by `make -n`,
  and its unmask commands are run. `python FILE` runs the file. Any other line must be listed in KNOWN. `< FILE` is
  standard input.
- `console`: `$ command`, followed by its exact output, also errors. `…` matches anything.
- `python`: the blocks of a page are one program.
- `yaml` whose first line is `# NAME.yaml` becomes that file.

A block in any other language is not run, and must be `text`.
"""

import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import pytest

from unmask import recipes, shipped
from unmask.backbones.backbone import BACKBONES
from unmask.cli import main
from unmask.config.components import build_method
from unmask.config.run_config import config_class, load_recipe, resolve
from unmask.data.data_config import DataConfig
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.evaluation.suites.suite import SUITES
from unmask.methods.method import METHODS
from unmask.model import Model
from unmask.registry import Registry
from unmask.samplers.sampler import SAMPLERS
from unmask.training.checkpoints.checkpoint import MAY_CHANGE
from unmask.training.training_config import DistributedConfig, TrainingConfig

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXTENSIONS = ROOT / "docs" / "extensions"
OF_EXTENSIONS = sorted(EXTENSIONS.glob("*.md"))
LINKED = [
    *PAGES,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]
COMPONENTS = [METHODS, SCHEDULES, TIME_SAMPLERS, BACKBONES]
COMPLETE = shipped.names() == list(shipped.known())
KNOWN = ["source .venv/bin/activate", "tensorboard --logdir runs"]
FEW = {  # options of commands that measure, unless the page gives them
    "evaluate": "--draws 2",
    "report": "--rows 4 --draws 2",
}
TINY = shlex.split("""
    --backbone.width 32 --backbone.depth 1 --backbone.heads 2
    --training.steps 3 --training.batch 4 --training.warmup 1 --training.save_every 2
    --training.validate_every 2 --training.validation_rows 4 --training.sample_every 0
""")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Blocks


class Block(NamedTuple):
    language: str
    text: str
    place: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start()) + 2
        yield Block(match[1], match[2], f"{name_of(page)}:{line}")


def commands(block: Block) -> Iterator[str]:
    """The lines of a block without comments."""
    for line in block.text.splitlines():
        if command := re.sub(r"(^|\s)#.*", "", line).strip():
            yield command


# Running


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Iterator[Path]:
    """A folder with a tiny model, trained once by the command line."""
    folder = tmp_path_factory.mktemp("docs")
    lines = (
        f"Note {i}: a short line about {'masks and text' if i % 2 else 'noise'}."
        for i in range(200)
    )
    (folder / "notes.txt").write_text("\n".join(lines) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNMASK_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        assert main(["train", "demo", *TINY]) == 0
        for name in shipped.NAMES:
            assert main(["export", "runs/demo", f"shipped/{name}"]) == 0
        for name in shipped.known().keys() - set(shipped.NAMES):
            small = {"backbone.width": 16, "backbone.depth": 1, "backbone.heads": 2}
            config = resolve(load_recipe(f"{name}-tiny"), small)
            tokenizer = build_tokenizer(config.data.tokenizer, ())
            tokenizer = tokenizer.without_ends() if config.data.window else tokenizer
            method = build_method(config, tokenizer.vocabulary)
            Model(method, tokenizer, config).save(f"shipped/{name}")
        yield folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch) -> Path:
    """A copy of the folder to work in. Registrations of a page are removed afterwards."""
    for registry in Registry.registries:
        known = {name: registry[name] for name in registry}  # extensions are imported
        monkeypatch.setattr(registry, "_entries", known)
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    shutil.copytree(ROOT / "docs" / "images", tmp_path / "docs" / "images")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("models", ["small", pytest.param("shipped", marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_everything_on_the_page_runs(page, models, folder, monkeypatch, capsys):
    if models == "small":
        small = {path.name: path for path in (folder / "shipped").iterdir()}
        monkeypatch.setattr(shipped, "known", lambda: small)
    elif not COMPLETE:
        pytest.skip("this checkout ships no models")
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        match block.language:
            case "bash":
                for command in commands(block):
                    assert run(command, monkeypatch) == 0, f"{block.place}: {command}"
            case "console":
                check_session(block, monkeypatch, capsys)
            case "python":
                exec(compile(block.text, block.place, "exec"), names)
            case "yaml":
                name = block.text.splitlines()[0].removeprefix("# ")
                Path(name).write_text(block.text, encoding="utf-8")
            case _:
                assert block.language == "text", f"{block.place}: what is {block.language!r}?"


def test_extending_shows_the_plugins_as_they_are():
    shown = {}
    for block in blocks(ROOT / "docs" / "how-to" / "extend.md"):
        first, _, rest = block.text.partition("\n")
        if first.startswith("# tests/plugins/"):
            shown[first.removeprefix("# ")] = rest
    files = sorted((ROOT / "tests" / "plugins").glob("*.py"))
    plugins = [file for file in files if not file.name.startswith("test_")]
    assert shown == {name_of(file): file.read_text(encoding="utf-8") for file in plugins}


def run(command: str, monkeypatch) -> int:
    """Runs a line of a shell in this process. Returns its exit code."""
    if command in KNOWN:
        return 0
    command, _, source = command.partition(" < ")
    program, *arguments = shlex.split(command)
    if source:
        stdin = io.TextIOWrapper(io.BytesIO(Path(source.strip()).read_bytes()))
        monkeypatch.setattr(sys, "stdin", stdin)
    match program:
        case "unmask":
            return unmask(arguments)
        case "make":
            return make(arguments, monkeypatch)
        case "python":
            monkeypatch.setattr(sys, "argv", arguments)
            runpy.run_path(arguments[0], run_name="__main__")
            return 0
    raise AssertionError(f"how is {command!r} to be tested?")


def unmask(arguments: list[str]) -> int:
    suite = arguments[0] == "evaluate" and arguments[1] in SUITES
    if not suite and {"--merge", "--draws", "--no-measure"}.isdisjoint(arguments):
        arguments = [*arguments, *FEW.get(arguments[0], "").split()]
    if arguments[0] == "train":
        known = arguments[1] in recipes.names()
        tree = load_recipe(arguments[1]) if known or Path(arguments[1]).exists() else {}
        if tree.get("data", {}).get("train", "").startswith("hf:"):
            arguments = ["config", *arguments[1:]]
        elif not tree.get("init_from", "runs/").startswith("runs/"):
            # the model determines the network
            arguments = [*arguments, *TINY[TINY.index("--training.steps") :]]
        else:
            arguments = [*arguments, *TINY]
    try:
        return main(arguments)
    except SystemExit as stop:  # --help, --version
        return int(stop.code or 0)


def make(targets: list[str], monkeypatch) -> int:
    """Runs the unmask commands of `make TARGET`."""
    make = ["make", "-C", str(ROOT), "--no-print-directory", "-n", "UNMASK=unmask", *targets]
    make.append(f"TEXT={ROOT}/examples/moon.txt")
    lines = subprocess.run(make, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [line for line in lines if line.startswith("unmask ")]
    assert ours or any("-m pytest" in line for line in lines)
    return max((run(line, monkeypatch) for line in ours), default=0)


def check_session(block: Block, monkeypatch, capsys) -> None:
    """Checks that each command prints the output on the page, and fails if the page shows an error."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        capsys.readouterr()
        code = run(command, monkeypatch)
        printed = "".join(capsys.readouterr())
        pattern = re.escape(expected).replace("…", ".*")
        assert re.fullmatch(pattern, printed, re.DOTALL), f"{block.place}: {command}: {printed}"
        assert code == (2 if "unmask: error: " in expected else 0), block.place


def test_an_unknown_command_fails(monkeypatch):
    with pytest.raises(AssertionError, match="how is 'rm -rf x' to be tested"):
        run("rm -rf x", monkeypatch)


# Completeness


def of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def of_extensions() -> str:
    """The text of all pages of extensions."""
    return "".join(page.read_text(encoding="utf-8") for page in OF_EXTENSIONS)


COMMON_FIRST = [("generate",), ("fill",), ("edit",)]  # their --help has the common options only


def help_of(capsys, *command: str) -> str:
    with pytest.raises(SystemExit):
        main([*command, "--help-all" if command in COMMON_FIRST else "--help"])
    return capsys.readouterr().out


def test_every_command_and_option_is_documented(capsys):
    names = re.findall(r"^    ([a-z-]+)\b", help_of(capsys), re.MULTILINE)
    assert {"train", "generate", "list"} <= set(names)
    page = of("docs/reference/commands.md") + of_extensions()
    for name in names:
        headings = [f"## {name}\n", f"## Options of {name}\n"]
        found = any(heading in page for heading in headings)
        assert found or re.search(rf"^unmask {name}\b", page, re.MULTILINE), name
        # the common options of generate, fill and edit are documented once
        sections = [*headings, "## generate\n"] if name in ("fill", "edit", "chat") else headings
        written = "".join(page.partition(at)[2].partition("\n## ")[0] for at in sections)
        written += (
            of_extensions()
            if name in ("generate", "fill", "edit", "chat", "evaluate", "export")
            else ""
        )
        options = help_of(capsys, name).partition("Any field of")[0]
        if name == "evaluate":
            options += "".join(help_of(capsys, name, suite) for suite in SUITES)
        for option in re.findall(r"^  (--[\w-]+)", options, re.MULTILINE):
            assert f"`{option}" in written, f"{name} {option}"


def test_every_setting_is_documented():
    described = set(
        re.findall(
            r"`([\w.]+)`",
            of("docs/reference/configuration.md") + of("docs/reference/data.md") + of_extensions(),
        )
    )
    sections = [TrainingConfig, DistributedConfig, DataConfig]
    sections += [config_class(registry[name]) for registry in COMPONENTS for name in registry]
    settings = {field.name for section in sections for field in fields(section) if field.init}
    parts = {f"tokenizer.{field.name}" for field in fields(TokenizerConfig)}
    assert (settings - {"tokenizer"} | parts) - described == set()


def test_settings_that_may_change_on_resume_are_documented():
    section = of("docs/reference/configuration.md").partition("## Resuming")[2]
    named = re.findall(r"`((?:training|distributed|data)\.\w+)`", section)
    assert set(named) == set(MAY_CHANGE)


@pytest.mark.parametrize("registry", COMPONENTS, ids=lambda registry: registry.kind)
def test_every_component_is_named(registry):
    page = of("docs/reference/configuration.md") + of_extensions()
    assert [name for name in registry if f"`{name}`" not in page] == []


def test_every_method_is_in_the_glossary_and_every_bound_among_the_certificates():
    terms, certificates = of("docs/reference/glossary.md"), of("docs/explanation/bound.md")
    assert [name for name in METHODS if f"`{name}`" not in terms] == []
    bounds = [name for name in METHODS if METHODS[name].certificate == "upper"]
    assert bounds and [name for name in bounds if f"`{name}`" not in certificates] == []


def test_every_sampler_is_named():
    page = of("docs/reference/samplers.md") + of_extensions()
    assert [name for name in SAMPLERS if f"`{name}`" not in page] == []


def test_the_overview_links_every_page():
    own = ROOT / "docs" / "overview.md"
    links = {
        (own.parent / link).resolve()
        for link in re.findall(r"\]\(([^)#\s]+)\)", of("docs/overview.md"))
    }
    assert EXTENSIONS in links
    core = [page for page in PAGES[1:] if page not in (own, *OF_EXTENSIONS)]
    assert [name_of(page) for page in core if page not in links] == []
    assert "(docs/overview.md)" in of("README.md")


# Links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_every_link_has_a_target(page):
    """A page of the core links to the list of extensions only. Other pages may link to an extension's page."""
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.parent == EXTENSIONS:
            assert page.parent == EXTENSIONS or ROOT / "docs" not in page.parents, link
            if not (ROOT / "src" / "unmask" / "extensions" / target.stem).is_dir():
                continue  # this copy lacks the extension
        assert target.exists(), f"{name_of(page)}: {link}"
        assert not anchor or anchor in anchors(target), f"{name_of(page)}: {link}"
