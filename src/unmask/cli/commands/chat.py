"""unmask chat: a conversation with a model in the terminal."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from unmask.cli.checks import check_model
from unmask.cli.parser import Commands, add_examples, add_model, add_sampling, given
from unmask.errors import UnmaskError
from unmask.generation.sampling_params import sampling_options

if TYPE_CHECKING:
    from unmask.model import Model

GROUP = "write"

_LEAST = 64  # tokens that are kept free for an answer
_NEW = "/new"


def add(commands: Commands) -> None:
    summary = "chat with a model that has a chat template, line by line"
    parser = commands.add_parser("chat", help=summary, description=summary)
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", help="message of the system, before the chat")
    parser.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        help="most tokens of an answer; by default all that the model has left, or 128 if it writes the "
        "whole answer at once",
    )
    add_sampling(parser, shown=False)
    add_examples(
        parser,
        "unmask chat SmolLM2-135M-Instruct.Q4_1.gguf --temperature 0.7 --top-p 0.9",
        "unmask chat folder/ --tokens 40",
        'echo "Name three colours." | unmask chat folder/ --tokens 40 --json',
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    from unmask.data.tokenizers.chat_format import chat_format
    from unmask.model import load

    check_model(args.model)
    model = load(args.model, **given(args, "device", "precision", "compile"))
    options = given(args, *(one.name for one in sampling_options("cli")))
    if "guide" in options:
        raise UnmaskError("a chat takes no guide: leave --guide out")
    if options.get("n", 1) != 1:
        raise UnmaskError("a chat has one answer to each message: leave --n out")
    form = chat_format(model.tokenizer)  # raises an error for a model without a template
    system = [] if args.system is None else [{"role": "system", "content": args.system}]
    messages = list(system)
    for line in _lines():
        if line == _NEW:
            messages = list(system)
            continue
        messages.append({"role": "user", "content": line})
        dropped = 0
        while (
            len(messages) > len(system) + 1
            and len(form.ids(messages)) + (args.tokens or _LEAST) > model.length
        ):
            del messages[len(system) : len(system) + 2]
            dropped += 2
        if dropped:
            _note(f"the chat is longer than {model.length} tokens: {dropped} messages are left out")
        answer = "".join(_shown(model, messages, args.tokens, options, args.json))
        messages.append({"role": "assistant", "content": answer})


def _shown(
    model: "Model",
    messages: list[dict[str, str]],
    tokens: int | None,
    options: dict[str, Any],
    as_json: bool,
) -> Iterator[str]:
    """The pieces of an answer, printed as they come."""
    pieces = []
    for piece in model.chat_stream(messages, tokens=tokens, **options):
        pieces.append(piece)
        if not as_json:
            print(piece, end="", flush=True)
        yield piece
    message = {"role": "assistant", "content": "".join(pieces)}
    print(json.dumps(message, ensure_ascii=False) if as_json else "", flush=True)


def _lines() -> Iterator[str]:
    """The messages of the user: lines of the terminal or of standard input, without empty ones."""
    typed = sys.stdin.isatty()
    if typed:
        _note(f"Ctrl-D ends the chat, {_NEW} begins another one")
    while True:
        try:
            line = input("> " if typed else "").strip()
        except EOFError:
            return
        if line:
            yield line


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
