"""unmask models, recipes and the commands that list registered components."""

import json
from argparse import Namespace
from functools import partial
from importlib import import_module
from typing import Any

from unmask import recipes, shipped
from unmask.cli.output.tables import print_whole
from unmask.cli.parser import Commands, add_examples, help_of
from unmask.likelihood.figure_text import signed
from unmask.registry import Registry

_REGISTRIES = {
    "methods": ("unmask.methods.method", "METHODS"),
    "samplers": ("unmask.samplers.sampler", "SAMPLERS"),
    "grids": ("unmask.samplers.core.time_grid", "GRIDS"),
    "schedules": ("unmask.diffusion.schedule", "SCHEDULES"),
    "time-samplers": ("unmask.diffusion.time_sampler", "TIME_SAMPLERS"),
    "backbones": ("unmask.backbones.backbone", "BACKBONES"),
    "loggers": ("unmask.training.logs.loggers", "LOGGERS"),
    "tokenizers": ("unmask.data.tokenizers.tokenizer", "TOKENIZERS"),
    "sources": ("unmask.data.sources.corpus", "SOURCES"),
    "formats": ("unmask.formats.format", "FORMATS"),
}
_EXAMPLES = {  # a command that uses an entry of the list
    "recipes": "unmask train demo",
    "methods": "unmask train demo --method sedd",
    "samplers": "unmask samplers confidence",
    "grids": "unmask generate stories --steps 16 --grid cosine",
    "schedules": "unmask train demo --schedule cosine",
    "time-samplers": "unmask evaluate runs/demo --estimator importance",
    "backbones": "unmask config demo --backbone dit",
    "loggers": "unmask train demo --training.log_to tensorboard",
    "tokenizers": "unmask train demo --data.tokenizer.kind bytes",
    "sources": "unmask evaluate stories --data notes.txt",
    "formats": "unmask export runs/demo FOLDER --format huggingface",
}
_HEADINGS = ("model", "parameters", "tokens", "length", "bound", "licence of the data", "size")


def add(commands: Commands) -> None:
    _add_models(commands)
    for name in ("recipes", *_REGISTRIES):
        summary = f"list the {name.replace('-', ' ')}"
        parser = commands.add_parser(name, help=summary, description=summary)
        if name == "samplers":
            parser.add_argument(
                "name",
                nargs="?",
                metavar="NAME",
                help="sampler whose fields to list; by default all samplers are listed",
            )
        add_examples(parser, f"unmask {name}", _EXAMPLES[name])
        parser.set_defaults(execute=partial(names, name))


def _add_models(commands: Commands) -> None:
    summary = "list the models that ship with the package"
    parser = commands.add_parser("models", help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each model")
    add_examples(parser, "unmask models", "unmask models --json")
    parser.set_defaults(execute=models)


def models(args: Namespace) -> None:
    installed = shipped.names()
    facts = {name: {**shipped.card(name), "bytes": shipped.size(name)} for name in installed}
    if args.json:
        for name in installed:
            print(json.dumps({"name": name, **facts[name]}))
        return
    if installed:
        _show(facts)
    for name in shipped.NAMES:
        if name not in installed:
            recipe = shipped.recipe(name)
            print(f"{name} is not in this installation; 'unmask train {recipe}' trains it")


def names(name: str, args: Namespace) -> None:
    summaries = recipes.summaries() if name == "recipes" else _registry(name).summaries()
    if chosen := getattr(args, "name", None):
        summaries = fields(chosen)
    width = max(map(len, summaries), default=0)
    for entry, summary in summaries.items():
        print(f"{entry:<{width}}  {summary}".rstrip())


def fields(sampler: str) -> dict[str, str]:
    """The summary of a sampler and of each of its fields, with help, default and range."""
    from unmask.generation.sampler_spec import sampler_options

    options = sampler_options(sampler)  # raises an error for an unknown sampler
    found = {sampler: _registry("samplers").summaries()[sampler]}
    for one in options:
        about = filter(None, (help_of(one), one.range))
        found[f"{sampler}:{one.name}="] = ", ".join(about)
    return found


def _registry(name: str) -> Registry[object]:
    module, attribute = _REGISTRIES[name]
    return getattr(import_module(module), attribute)


def _show(facts: dict[str, dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(*_HEADINGS)
    for name, card in facts.items():
        size = f"{card['bytes'] / 1e6:.1f} MB"
        if "bound" not in card:
            table.add_row(name, *["?"] * (len(_HEADINGS) - 2), size)
            continue
        bound = card["bound"]
        table.add_row(
            name,
            f"{card['parameters'] / 1e6:.1f}M",
            f"{card['vocabulary']:,}",
            str(card["length"]),
            signed(bound["certificate"], f"{bound['bits_per_byte']:.3f} bits/byte"),
            card["licence"],
            size,
        )
    print_whole(table)
