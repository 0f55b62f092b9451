"""docs/explanation/equations.md and the pages of extensions name existing functions that run,
and every equation of `unmask.diffusion` and of the rooms `diffusion` of extensions.
"""

import inspect
import pkgutil
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from walk import Walk

import unmask
import unmask.diffusion
from unmask.config.run_config import resolve as resolve_config
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.extension import extensions
from unmask.methods.method import METHODS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "explanation" / "equations.md", *sorted((DOCS / "extensions").glob("*.md"))]
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
SYMBOLS = sorted(set(re.findall(r"`(unmask(?:\.\w+){2,})`", PAGE)))
ROOMS = [unmask.diffusion.__name__]
ROOMS += [
    f"{each.package}.diffusion" for each in extensions() if (each.folder / "diffusion").is_dir()
]
MODULES = [
    f"{room}.{module.name}"
    for room in ROOMS
    for module in pkgutil.iter_modules(import_module(room).__path__)
]


def resolve(symbol: str) -> object:
    """The object of a dotted name: a module or an object in a module."""
    parts = symbol.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(symbol)


def equations(module: str) -> set[str]:
    """Names that must have a line: a module's public functions, and its registered components."""
    members = vars(import_module(module)).items()
    registered = {registry[name] for registry in (SCHEDULES, TIME_SAMPLERS) for name in registry}
    return {
        f"{module}.{name}"
        for name, member in members
        if getattr(member, "__module__", "") == module
        if (inspect.isfunction(member) and not name.startswith("_"))
        or (inspect.isclass(member) and member in registered)
    }


def lines(module: str) -> list[str]:
    """The symbols in the tables of a module's sections."""
    sections = re.findall(rf"^## [^\n]*`{re.escape(module)}`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return re.findall(r"`([\w.]+)` \|$", "".join(sections), re.MULTILINE)


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_symbol_on_the_page_exists(symbol):
    resolve(symbol)  # raises an error for a name that does not exist


@pytest.mark.parametrize("module", MODULES)
def test_every_equation_has_one_line_in_its_section(module):
    found = Counter(lines(module))
    assert set(found) >= equations(module)
    assert all(symbol.startswith(f"{module}.") for symbol in found)
    assert set(found.values()) <= {1}


def test_a_name_that_does_not_exist_is_found():
    with pytest.raises(AttributeError):
        resolve("unmask.diffusion.nelbo.no_such_weight")
    assert "unmask.diffusion.nelbo.continuous_weight" in equations("unmask.diffusion.nelbo")


def trained_and_sampled(method: str, options: dict[str, str], samplers: list[str]) -> set[str]:
    """The functions that are called in two training steps,
    a bound of T steps and a text of each sampler.
    """
    backbone = {"backbone": "causal"} if method == "autoregressive" else {}
    settings = {**TINY, "method": method, **backbone, **options}
    with TemporaryDirectory() as folder, Walk() as walk:
        config = resolve_config({}, list({**settings, "data.cache": folder}.items()))
        model = unmask.train(config, Path(folder, "run"), say=lambda line: None)
        for sampler in samplers:
            model.generate(length=8, n=2, sampler=sampler, top_k=5, temperature=0.9)
        if method == "duo":
            changes = {"method": "duo_distilled", "init_from": str(Path(folder, "run"))}
            config = resolve_config({}, [*settings.items(), *changes.items()])
            unmask.train(config, Path(folder, "distilled"), say=lambda line: None)
        if not options and method == "mdlm":
            config = resolve_config({}, [*settings.items(), ("teacher", str(Path(folder, "run")))])
            unmask.train(config, Path(folder, "student"), say=lambda line: None)
        if method == "mdlm":
            model.perplexity(["the cat sat"], draws=1, steps=4)
    return walk.called


TINY = {
    "data.train": str(Path(__file__).parents[1] / "examples" / "moon.txt"),
    "data.length": "16",
    "data.tokenizer.kind": "bytes",
    "backbone.width": "8",
    "backbone.heads": "2",
    "backbone.depth": "1",
    "training.steps": "2",
    "training.batch": "4",
    "training.validation_rows": "2",
}
TIMED = {"backbone.time_conditioning": "true"}
SAMPLED = [
    *("ancestral", "first_hitting", "confidence", "entropy_bound", "remask", "gibbs"),
    *("predictor_corrector", "semi_autoregressive:window=8"),
]
RUNS: list[tuple[str, dict[str, str], list[str]]] = [
    ("mdlm", {}, SAMPLED),
    ("mdlm", {"method.steps": "4", "time_sampler": "importance", "schedule": "learned"}, []),
    ("sedd", {"time_sampler": "uniform", "schedule": "geometric", **TIMED}, ["analytic"]),
    (
        "d3pm",
        {"method.steps": "4", "time_sampler": "stratified", "schedule": "cosine"},
        ["ancestral"],
    ),
    ("d3pm", {"method.steps": "4", "time_sampler": "fixed_count", "schedule": "linear"}, []),
    ("mdlm", {"schedule": "cosine_squared", "method.loss_weight": "uniform"}, []),
    ("mdlm", {"schedule": "polynomial"}, []),
    ("autoregressive", {}, ["left_to_right"]),
    ("plaid", TIMED, ["latent_ancestral"]),
    ("diffusion_lm", TIMED, []),
    ("analog_bits", TIMED, ["latent_ddim"]),
    ("ssd_lm", TIMED, []),
    ("udlm", TIMED, ["uniform_ancestral"]),
    ("duo", TIMED, []),
    ("d3pm_uniform", {"method.steps": "4", **TIMED}, []),
    ("diffusion_bert", {}, ["token_schedule"]),
    ("sundae", {}, ["unrolled"]),
    ("block_diffusion", {"method.blocks": "4"}, ["blocks"]),
]
# they need labels or a text, and are tested in tests/generation and tests/likelihood
ELSEWHERE = ("unmask.generation.guidance.", "unmask.likelihood.bound.Bound.")


def test_every_equation_on_the_page_runs_in_training_or_sampling():
    called = set.union(*(trained_and_sampled(*run) for run in RUNS if run[0] in METHODS))
    for symbol in SYMBOLS:
        found = resolve(symbol)
        if inspect.ismodule(found) or symbol.startswith(ELSEWHERE):
            continue
        # for a base class it suffices that a derived class is called
        names = {symbol} | {
            f"{kind.__module__}.{kind.__qualname__}.{symbol.rpartition('.')[2]}"
            for kind in map(SCHEDULES.__getitem__, SCHEDULES)
            if "Schedule." in symbol
        }
        runs = any(name == one or name.startswith(f"{one}.") for name in called for one in names)
        assert runs, f"{symbol} is on the page, and nothing calls it"


def test_an_equation_that_nothing_calls_is_found():
    called = trained_and_sampled("mdlm", {}, ["ancestral"])
    assert "unmask.diffusion.process.unmask_probability" in called
    assert "unmask.diffusion.nelbo.score_entropy" not in called
