"""unmask fill: the gaps of a text, filled."""

import re
from argparse import Namespace

from unmask.cli.parser import Commands, add_model, add_sampling

_GAP = re.compile(r"\[MASK(?::\d+)?\]")


def add(commands: Commands) -> None:
    summary = "fill the gaps of a text: [MASK] is one token, [MASK:4] four"
    parser = commands.add_parser("fill", help=summary, description=summary)
    add_model(parser)
    parser.add_argument("text", metavar="TEXT", help='such as "The [MASK] sat on the [MASK:4]."')
    add_sampling(parser)
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from rich.text import Text

    from unmask.cli.output.written_texts import write

    def marked(result: object) -> Text:
        line = Text(str(result))
        for start, end in filled_spans(args.text, str(result)):
            line.stylize("bold green", start, end)
        return line

    write(args, "fill", args.text, {}, marked, gap="")


def filled_spans(template: str, text: str) -> list[tuple[int, int]]:
    """Where in the text the template's gaps were; nothing if the tokenizer changed what it was given."""
    *before, last = _GAP.split(template)
    # a space before a gap belongs to the gap: a token may bring its own, or none
    kept = [re.escape(piece.removesuffix(" ")) for piece in before] + [re.escape(last)]
    match = re.fullmatch("(.*?)".join(kept), text, re.DOTALL)
    return [match.span(gap + 1) for gap in range(match.re.groups)] if match else []
