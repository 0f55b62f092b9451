"""unmask card: measures an exported model and writes its model card."""

import argparse
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands, add_examples, given
from unmask.errors import UnmaskError

GROUP = "measure"


def add(commands: Commands) -> None:
    summary = "measure an exported model and write its model card, README.md, into its folder"
    parser = commands.add_parser("card", help=summary, description=summary)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of an exported model")
    add = parser.add_argument
    add("--data", required=True, metavar="SOURCE", help="held-out text or pairs for the bound")
    add(
        "--about",
        required=True,
        metavar="TEXT",
        help="description of the model and its training text",
    )
    add("--licence", required=True, metavar="TEXT", help="licence of the training text")
    options = parser.add_argument_group("measure", argument_default=argparse.SUPPRESS)
    add = options.add_argument
    add(
        "--judge",
        metavar="JUDGE",
        help="judge of the texts, as in evaluate (GPT-2-large; none for DNA and pairs)",
    )
    add(
        "--judge-prefix",
        metavar="TOKEN",
        help="token before each text in the judge's input; by default <|endoftext|> or its BOS",
    )
    add("--draws", type=int, metavar="N", help="noise draws per row (8)")
    add("--samples", type=int, metavar="N", help="texts to judge (200)")
    add(
        "--recipe",
        metavar="NAME",
        help="recipe that trained the model; by default the one with the folder's name",
    )
    add("--device", metavar="NAME", help="cpu, cuda or mps; by default the fastest available")
    add_examples(
        parser,
        'unmask card exported --data valid.txt --about "Short stories." --licence MIT',
        'unmask card exported --data valid.txt --about "Short stories." --licence MIT '
        "--judge smollm2.gguf",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    if not (args.folder / "model.json").is_file():
        raise UnmaskError(f"{args.folder} is no exported model: make one with 'unmask export'")
    from unmask.evaluation.judges.load_judge import DEFAULT_JUDGE, load_judge
    from unmask.evaluation.measure_card import measure_card
    from unmask.formats.model_card import card_page, likely_recipe, training_command, write_card
    from unmask.model import load

    model = load(args.folder, **given(args, "device"))
    recipe = getattr(args, "recipe", None) or likely_recipe(args.folder, model.config)
    command = recipe and training_command(model.config, recipe)
    judge = None
    judged = model.tokenizer.vocabulary.complement_ids is None and not model.conditional
    if hasattr(args, "judge") or judged:
        judge = load_judge(
            getattr(args, "judge", DEFAULT_JUDGE),
            getattr(args, "device", "auto"),
            getattr(args, "judge_prefix", None),
        )
    options = given(args, "draws")
    if hasattr(args, "samples"):
        options["n"] = args.samples
    facts = measure_card(model, args.data, judge, **options)
    facts = {"about": args.about, "licence": args.licence, "command": command, **facts}
    write_card(args.folder, card_page(args.folder.name, facts), facts)
    print(f"wrote {args.folder / 'README.md'}")
