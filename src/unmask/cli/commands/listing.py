"""unmask models, and unmask list: recipes and registered components."""

import json
from argparse import Namespace
from importlib import import_module
from typing import Any

from unmask import recipes, shipped
from unmask.cli.output.tables import print_whole
from unmask.cli.parser import Commands, add_examples, help_of
from unmask.errors import UnmaskError
from unmask.likelihood.figure_text import signed
from unmask.registry import Registry

GROUP = "look"

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
KINDS = ("models", "recipes", *_REGISTRIES)
_HEADINGS = ("model", "parameters", "tokens", "length", "bound", "licence of the data", "size")


def add(commands: Commands) -> None:
    _add_models(commands)
    summary = "list the shipped models, the recipes, or the components of a kind"
    parser = commands.add_parser("list", help=summary, description=summary)
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=", ".join(KINDS))
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="sampler whose fields to list, or method whose facts to list; by default all entries",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for models")
    add_examples(
        parser, "unmask list recipes", "unmask list samplers confidence", "unmask list methods"
    )
    parser.set_defaults(execute=listed)


def _add_models(commands: Commands) -> None:
    summary = "list the models that ship with the package, or say what a folder holds"
    parser = commands.add_parser("models", help=summary, description=summary)
    parser.add_argument(
        "model",
        nargs="?",
        metavar="PATH",
        help="folder, GGUF file or hub name to recognise: its format, method, network and MASK",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each model")
    add_examples(parser, "unmask models", "unmask models --json", "unmask models runs/demo")
    parser.set_defaults(execute=models)


def models(args: Namespace) -> None:
    if getattr(args, "model", None) is not None:
        _recognise(args)
        return
    installed = shipped.names()
    facts = {name: {**shipped.card(name), "bytes": shipped.size(name)} for name in installed}
    if args.json:
        for name in installed:
            print(json.dumps({"name": name, **facts[name]}))
        return
    if installed:
        _show(facts)
    for name in shipped.known():
        if name not in installed:
            print(f"{name} is not in this installation: {shipped.remedy(name)}")


def _recognise(args: Namespace) -> None:
    """Prints the facts of one model."""
    from unmask.formats.recognised import recognised

    found = recognised(args.model)
    if args.json:
        print(json.dumps({"name": args.model, **found}))
        return
    for name, fact in found.items():
        print(f"{name:<13}  {fact}")


def listed(args: Namespace) -> None:
    details = {"samplers": fields, "methods": method_facts}
    if args.name is not None and args.kind not in details:
        raise UnmaskError(f"{args.kind} have no further facts: leave {args.name} out")
    if args.json and args.kind != "models":
        raise UnmaskError("--json is for models: leave it out")
    if args.kind == "models":
        return models(args)
    if args.kind == "methods" and args.name is None:
        return _print_methods()
    if args.name is not None:
        summaries = details[args.kind](args.name)
    elif args.kind == "recipes":
        summaries = recipes.summaries()
    else:
        summaries = _registry(args.kind).summaries()
    width = max(map(len, summaries), default=0)
    for entry, summary in summaries.items():
        print(f"{entry:<{width}}  {summary}".rstrip())
    return None


def fields(sampler: str) -> dict[str, str]:
    """The summary of a sampler and of each of its fields, with help, default and range."""
    from unmask.generation.sampler_spec import sampler_options

    options = sampler_options(sampler)  # raises an error for an unknown sampler
    found = {sampler: _registry("samplers").summaries()[sampler]}
    for one in options:
        about = filter(None, (help_of(one), one.range))
        found[f"{sampler}:{one.name}="] = ", ".join(about)
    return found


def method_facts(name: str) -> dict[str, str]:
    """Properties of a method: latents, noise schedule, certificate, samplers, filling, scoring."""
    from unmask.generation.sampler_spec import suitable_samplers
    from unmask.methods.method import METHODS

    kind = METHODS[name]  # raises an error for an unknown method
    can = kind.capabilities
    samplers = [each for each in suitable_samplers(kind) if each != kind.sampler]
    return {
        name: METHODS.summaries()[name],
        "latent": "vectors"
        if can.latent
        else "tokens"
        if can.states == "masks"
        else "uniform tokens",
        "schedule": kind.noise_schedule,
        "certificate": kind.certificate,
        "fills": "yes" if can.generate and can.infill else "no",
        "scored": "yes" if can.score and kind.certificate != "none" else "no",
        "samplers": ", ".join([kind.sampler, *samplers]) if can.generate else "none",
    }


def _print_methods() -> None:
    """Prints a line for each method, below a line of headings."""
    rows = []
    for name in _registry("methods"):
        summary, *facts = method_facts(name).values()
        first, *others = facts[-1].split(", ")
        facts[-1] = f"{first} and {len(others)} more" if others else first
        rows.append([name, *facts, summary])
    headings = list(method_facts(rows[0][0]))
    lines = [["method", *headings[1:], "summary"], *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        )


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
