"""unmask card: measures an exported model and writes its card into its folder."""

import argparse
from argparse import Namespace
from pathlib import Path
from typing import Any

from unmask.cli.parser import Commands, given
from unmask.errors import UnmaskError
from unmask.likelihood.figure_text import signed, with_error


def add(commands: Commands) -> None:
    summary = "measure an exported model and write its card, README.md, into its folder"
    parser = commands.add_parser("card", help=summary, description=summary)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="an exported model")
    add = parser.add_argument
    add("--data", required=True, metavar="SOURCE", help="held-out text that the bound is of")
    add("--about", required=True, metavar="TEXT", help="what the model is and what it read")
    add("--licence", required=True, metavar="TEXT", help="of the text that it was trained on")
    options = parser.add_argument_group("measure", argument_default=argparse.SUPPRESS)
    add = options.add_argument
    add("--judge", metavar="JUDGE", help="of the texts, as in evaluate (GPT-2-large)")
    add("--judge-prefix", metavar="TOKEN", help="what the judge reads before a text")
    add("--draws", type=int, metavar="N", help="noise draws per row (8)")
    add("--samples", type=int, metavar="N", help="texts to judge (200)")
    add("--recipe", metavar="NAME", help="that trained it; the one of its name unless given")
    add("--device", metavar="NAME", help="cpu, cuda, mps; by default the best there is")
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    if not (args.folder / "model.json").is_file():
        raise UnmaskError(f"{args.folder} is no exported model: make one with 'unmask export'")
    from unmask import api
    from unmask.api import cards
    from unmask.api.judging import DEFAULT_JUDGE, load_judge

    model = api.load(args.folder, **given(args, "device"))
    recipe = getattr(args, "recipe", None) or cards.likely_recipe(args.folder, model.config)
    command = recipe and cards.training_command(model.config, recipe)
    judge = load_judge(
        getattr(args, "judge", DEFAULT_JUDGE),
        getattr(args, "device", "auto"),
        getattr(args, "judge_prefix", None),
    )
    options = given(args, "draws")
    if hasattr(args, "samples"):
        options["n"] = args.samples
    facts = cards.measure_card(model, args.data, judge, **options)
    facts = {"about": args.about, "licence": args.licence, "command": command, **facts}
    cards.write_card(args.folder, page(args.folder.name, facts, model.defaults), facts)
    print(f"{args.folder / 'README.md'} is written")


def page(name: str, facts: dict[str, Any], defaults: dict[str, Any]) -> str:
    """The card as people read it."""
    rows = {
        "method, network": f"{facts['method']}, {facts['backbone']}",
        "parameters": f"{facts['parameters']:,}",
        "tokens": f"{facts['vocabulary']:,} in the vocabulary, rows of {facts['length']}",
        "licence of the data": facts["licence"],
        **_bound(facts["bound"]),
        **{key: line for row in facts["texts"] for key, line in _texts(row).items()},
        "writes, unless told otherwise": _told(defaults) or "its whole length, a token a step",
        "weights": facts["weights"],
        "measured": facts["date"]
        + ", "
        + ", ".join(f"{part} {version}" for part, version in facts["versions"].items()),
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    command = facts["command"] or f"unmask train {name}.yaml"
    file = "" if facts["command"] else f", the file `{name}.yaml`"
    samples = "\n\n".join(
        f"Seed {sample['seed']}:\n\n{_quoted(sample['text'])}" for sample in facts["samples"]
    )
    return f"""# {name}

{facts["about"]}

| | |
|---|---|
{table}

## Training

```bash
{command}
```

The whole configuration{file}:

```yaml
{facts["configuration"].rstrip()}
```

## Samples

What `unmask generate {name} --seed N --device {facts["device"]}` wrote, in order, none left out.

{samples}
"""


def _bound(bound: dict[str, Any]) -> dict[str, str]:
    certificate = bound["certificate"]
    bits = with_error(bound["bits_per_byte"], bound["bits_per_byte_error"])
    nats = with_error(bound["nats"], bound["error"])
    draws = bound["draws"]
    about = (
        f"{bound['tokens']:,} tokens, packing {bound['packing']}, {draws} draw{'s' * (draws > 1)}"
    )
    return {
        f"bound on {bound['data']}": f"{signed(certificate, bits)} bits per byte, "
        f"{signed(certificate, nats)} nats per token ({about})"
    }


def _texts(row: dict[str, Any]) -> dict[str, str]:
    """A row of a comparison: what it measured, and how the texts were made."""
    real = row["steps"] is None and row["calls"] is None
    made = f"{row['n']} real texts" if real else f"{row['n']} texts by {row['sampler']}"
    if row["steps"] is not None:
        made += f", {row['steps']} steps"
    if row["temperature"] is not None:
        made += f", temperature {row['temperature']:g}"
    perplexity = signed(row["certificate"], f"{row['perplexity']:.1f}")
    bits = signed(row["certificate"], f"{row['bits_per_byte']:.3f}")
    value = (
        f"gen-PPL {perplexity} per token, {bits} bits per byte (judge: {row['judge']}); "
        f"entropy {row['entropy']:.3f} nats"
    )
    return {made: value}


def _told(defaults: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in defaults.items())


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or "> (nothing)"
