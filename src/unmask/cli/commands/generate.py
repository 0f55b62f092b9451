"""unmask generate, fill and edit: generation, infilling and editing of texts."""

import argparse
import json
import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.checks import check_model, check_source
from unmask.cli.output.terminal import Stopwatch
from unmask.cli.parser import (
    Commands,
    Parser,
    add_examples,
    add_model,
    add_sampling,
    given,
    group_of,
)
from unmask.data.sources.fasta import SUFFIXES
from unmask.errors import UnmaskError
from unmask.files.storage import check_place, replace
from unmask.generation.sampling_params import sampling_options

if TYPE_CHECKING:
    from unmask.data.retrieval import Retriever
    from unmask.generation.generator import Result
    from unmask.model import Model

_FORMATS = ("text", "json", "fasta")
_ENDINGS = {".txt": "text", ".json": "json", ".jsonl": "json"}
_WIDTH = 60  # bases in a line of FASTA
_GAP = re.compile(r"\[MASK(?::\d+)?\]")


def add(commands: Commands) -> None:
    _add_generate(commands)
    _add_fill(commands)
    _add_edit(commands)


def _add_generate(commands: Commands) -> None:
    summary = "generate texts, with or without a prompt"
    parser = commands.add_parser("generate", help=summary, description=summary)
    add_model(parser)
    parser.add_argument(
        "--prompt", action="append", metavar="TEXT", help="beginning of the text; repeatable"
    )
    parser.add_argument(
        "--length",
        metavar="N",
        default=argparse.SUPPRESS,
        help="tokens of a text, prompt included, or auto for as many as it needs; by default the model's",
    )
    parser.add_argument(
        "--no-stop",
        action="store_false",
        dest="stop",
        default=argparse.SUPPRESS,
        help="draw no EOS: fill the whole length",
    )
    group = parser.add_argument_group("retrieval")
    group.add_argument(
        "--retrieve",
        metavar="SOURCE",
        help="file or folder; its paragraphs that fit the prompt best (BM25) precede the prompt as context",
    )
    group.add_argument(
        "--passages", type=int, metavar="K", help="most paragraphs of the context (8)"
    )
    add_sampling(parser)
    _add_output(parser)
    add_examples(
        parser,
        'unmask generate stories --prompt "Tom has" --n 3 --temperature 0.8',
        'unmask generate wiki --prompt "The river" --retrieve notes/ --passages 4',
        "unmask generate runs/demo --sampler confidence --steps 16 --watch",
    )
    parser.set_defaults(execute=generate)


def _add_fill(commands: Commands) -> None:
    summary = "fill the gaps of a text: [MASK] is one token, [MASK:4] four tokens"
    parser = commands.add_parser("fill", help=summary, description=summary)
    add_model(parser)
    parser.add_argument(
        "text",
        metavar="TEXT",
        help='text with gaps, as "The [MASK] sat on the [MASK:4]."; - for standard input',
    )
    add_sampling(parser)
    _add_output(parser)
    add_examples(
        parser,
        'unmask fill stories "Tom has [MASK:2]." --n 3',
        'unmask fill runs/demo "The [MASK] sat on the [MASK:4]." --seed 1 --json',
    )
    parser.set_defaults(execute=fill)


def _add_edit(commands: Commands) -> None:
    summary = "mask some tokens of a text and fill them again; the others stay"
    parser = commands.add_parser("edit", help=summary, description=summary)
    add_model(parser)
    parser.add_argument("file", metavar="FILE", help="file of the text, - for standard input")
    group = parser.add_argument_group("tokens to rewrite", argument_default=argparse.SUPPRESS)
    group.add_argument(
        "--remask", type=float, metavar="X", help="random share of the tokens, in (0, 1]"
    )
    group.add_argument(
        "--remask-span", metavar="A:B", help="tokens from A up to B, B excluded, counted from 0"
    )
    group.add_argument(
        "--remask-uncertain", type=int, metavar="N", help="the N least likely tokens"
    )
    group.add_argument(
        "--remask-style",
        type=float,
        metavar="X",
        help="share of the tokens, those that speak most against --style (0.25)",
    )
    group.add_argument(
        "--style",
        metavar="NAME",
        help="class label of the new text, for a model trained with labels; --guidance strengthens it",
    )
    add_sampling(parser)
    _add_output(parser)
    add_examples(
        parser,
        "unmask edit stories story.txt --remask 0.2",
        "unmask edit stories story.txt --remask-uncertain 8 --seed 1",
        "unmask edit runs/reviews review.txt --style positive --guidance 3",
    )
    parser.set_defaults(execute=edit)


def _add_output(parser: Parser) -> None:
    group = group_of(parser, "output")
    group.add_argument(
        "--out", type=Path, metavar="FILE", help="file for the texts; by default the terminal"
    )
    group.add_argument(
        "--format",
        choices=_FORMATS,
        help="text, json or fasta; by default that of the file's ending, and fasta for texts of a "
        "model of DNA",
    )


def generate(args: Namespace) -> None:
    options = given(args, "stop")
    if hasattr(args, "length"):
        options["length"] = _length(args.length)
    if args.retrieve is not None:
        if not args.prompt:
            raise UnmaskError(
                "--retrieve searches with the prompt, and there is none: give --prompt"
            )
        if args.watch and len(args.prompt) > 1:
            raise UnmaskError("--watch shows the texts of one context: give one --prompt")
        if args.passages is not None and args.passages < 1:
            raise UnmaskError(f"--passages must be 1 or more, not {args.passages}")
    elif args.passages is not None:
        raise UnmaskError("--passages counts passages of --retrieve: give --retrieve too")
    _write(args, "generate", args.prompt, options)


def fill(args: Namespace) -> None:
    from rich.text import Text

    text = _text("-") if args.text == "-" else args.text

    def marked(result: object) -> Text:
        line = Text(str(result))
        for start, end in filled_spans(text, str(result)):
            line.stylize("bold green", start, end)
        return line

    _write(args, "fill", text, {}, marked, separator="")


def edit(args: Namespace) -> None:
    options = given(args, "remask", "remask_uncertain", "remask_style", "style")
    if hasattr(args, "remask_span"):
        options["remask_span"] = _span(args.remask_span)
    _write(args, "edit", _text(args.file), options)


def _write(
    args: Namespace,
    verb: str,
    text: Any,
    options: dict[str, Any],
    render: Callable[["Result"], Any] = str,
    separator: str = "\n",
) -> None:
    """Calls the model's method `verb` and shows its texts: plain, as JSON or FASTA, or step by step.

    In a terminal a single text is shown step by step by default: its first tokens appear after one step.
    """
    _check_output(args)
    model = _loaded(args, options)
    if not args.json:
        _announce_windows(model, options.get("length"))
    arguments = {"prompts" if verb == "generate" else verb: text}
    several = options.get("n", 1) > 1 or (isinstance(text, list) and len(text) > 1)
    watchable = not (several or args.json or args.out or args.format) and render is str
    if args.watch or (args.watch is None and watchable and _interactive()):
        _watch(args, model, {**arguments, **options})
        return
    retrieves = getattr(args, "retrieve", None) is not None
    texts = _with_context(model, args) if retrieves else partial(model.texts, **arguments)
    dna = verb == "generate" and model.tokenizer.vocabulary.complement_ids is not None
    form = _format(args, dna)
    _print(args, partial(texts, **options), form, options.get("label"), render, separator)


def _check_output(args: Namespace) -> None:
    """Raises an error for options that exclude each other, and for files that do not exist."""
    if args.watch and args.json:
        raise UnmaskError("--watch and --json exclude each other: give one of them")
    if args.watch and (args.out or args.format):
        raise UnmaskError("--watch shows texts in the terminal: leave --out and --format out")
    if args.out is not None:
        check_place(args.out)
    check_model(args.model)
    if getattr(args, "retrieve", None) is not None:
        check_source(args.retrieve)


def _loaded(args: Namespace, options: dict[str, Any]) -> "Model":
    """The model of the arguments. Adds the sampling options to `options`, with their models loaded."""
    from unmask.model import load

    model = load(args.model, **given(args, "device", "precision", "compile"))
    options |= given(args, *(one.name for one in sampling_options("cli")))
    if "guide" in options:
        options["guide"] = load(options["guide"], **given(args, "device"))
    if "order_policy" in options:
        from unmask.samplers.order_policy import OrderPolicy

        options["order_policy"] = OrderPolicy.load(options["order_policy"])
        options.setdefault("sampler", "learned_order")
    return model


def _watch(args: Namespace, model: "Model", options: dict[str, Any]) -> None:
    """Shows the steps of a text in the terminal."""
    from unmask.generation.display import watch

    clock = Stopwatch()
    if getattr(args, "retrieve", None) is not None:
        options["context"] = _passages(_retriever(model, args), args.prompt[0], args)
    last = watch(
        model.stream(**options),
        model.tokenizer,
        conditional=model.conditional,
        on_screen=clock.shown,
        brief=not args.watch,
    )
    if args.time and last is not None:
        calls = [int(last.calls.max())] * len(last.tokens)
        clock.print_times(last.tokens.numel(), calls, last.seconds)


def _print(
    args: Namespace,
    texts: Callable[[], Iterator["Result"]],
    form: str,
    label: str | None,
    render: Callable[["Result"], Any],
    separator: str,
) -> None:
    """Prints each text as soon as it is written, or saves all of them in the file of --out."""
    from rich.console import Console

    clock, start = Stopwatch(), time.perf_counter()
    console = Console(highlight=False, soft_wrap=True)
    written: list["Result"] = []
    lines: list[str] = []
    for result in texts():
        written.append(result)
        line = result.text
        if form == "json":
            line = json.dumps(asdict(result))
        elif form == "fasta":
            line = fasta_record(result, len(written), label)
        if args.out is not None:
            lines.append(line)
        elif form == "text":
            console.print(separator * (len(written) > 1), end="")
            console.print(render(result), markup=False)
        else:
            print(line, flush=True)
        clock.shown()
    if args.out is not None:
        replace(args.out, "".join(f"{line}\n" for line in lines).encode())
    if args.time:
        seconds = time.perf_counter() - start
        clock.print_times(sum(len(r.ids) for r in written), [r.calls for r in written], seconds)


def _announce_windows(model: "Model", length: Any) -> None:
    """Prints a line if a text is longer than the model's rows."""
    if isinstance(length, int) and length > model.length and not model.conditional:
        print(
            f"the model reads {model.length} tokens: a text of {length} is written in windows "
            "('unmask list samplers semi_autoregressive')",
            file=sys.stderr,
        )


def _with_context(model: "Model", args: Namespace) -> Callable[..., Iterator["Result"]]:
    """A function with the arguments of `texts`; each prompt gets the paragraphs that fit it best."""
    from unmask.randomness import row_seeds

    retriever = _retriever(model, args)

    def texts(seed: int = 0, n: int = 1, **options: Any) -> Iterator["Result"]:
        seeds = row_seeds(seed, n * len(args.prompt))  # as without retrieval
        for number, prompt in enumerate(args.prompt):
            own = {"context": _passages(retriever, prompt, args), "n": n, **options}
            yield from model.texts([prompt], seed=seeds[n * number : n * (number + 1)], **own)

    return texts


def _retriever(model: "Model", args: Namespace) -> "Retriever":
    from unmask.data.retrieval import Retriever

    if model.conditional:
        raise UnmaskError("a model of pairs reads a source and no context: leave --retrieve out")
    return Retriever.of(args.retrieve)


def _passages(retriever: "Retriever", prompt: str, args: Namespace) -> list[str]:
    """The passages for a prompt; prints a line if there is none."""
    found = retriever.search(prompt, args.passages or 8)
    if not found:
        print(
            f"no passage of {args.retrieve} shares a word with {prompt[:40]!r}: the text has no context",
            file=sys.stderr,
        )
    return found


def _format(args: Namespace, dna: bool) -> str:
    """The format of the output: json, fasta or text."""
    if args.json:
        return "json"
    ending = args.out.suffix.lower() if args.out is not None else ""
    by_ending = "fasta" if ending in SUFFIXES else _ENDINGS.get(ending)
    return args.format or by_ending or ("fasta" if dna and not ending else "text")


def fasta_record(result: "Result", number: int, label: str | None) -> str:
    """A generated sequence as a FASTA record, with lines of 60 bases.

    Args:
        result: the sequence.
        number: the number in the record's name, from 1.
        label: the class label that it was generated for, if any.
    """
    about = "" if label is None else f" label={label}"
    text = result.text
    body = [text[start : start + _WIDTH] for start in range(0, len(text), _WIDTH)]
    return "\n".join([f">sequence_{number} length={len(text)} seed={result.seed}{about}", *body])


def _interactive() -> bool:
    """True if standard output is a terminal that can replace printed text."""
    return bool(sys.stdout and sys.stdout.isatty()) and os.environ.get("TERM", "dumb") != "dumb"


def _length(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise UnmaskError(f"--length is {text!r}: give a number of tokens or auto") from None


def filled_spans(template: str, text: str) -> list[tuple[int, int]]:
    """The spans of the filled gaps in the text; empty if the tokenizer changed the text around them."""
    *before, last = _GAP.split(template)
    # a space before a gap counts as part of the gap, because a token may or may not include it
    kept = [re.escape(piece.removesuffix(" ")) for piece in before] + [re.escape(last)]
    match = re.fullmatch("(.*?)".join(kept), text, re.DOTALL)
    return [match.span(gap + 1) for gap in range(match.re.groups)] if match else []


def _span(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text, re.ASCII)
    if match is None:
        raise UnmaskError(f"--remask-span is {text[:40]!r}: give two positions such as 10:40")
    return int(match[1]), int(match[2])


def _text(file: str) -> str:
    """The text of a file, without its last line break."""
    if file != "-" and not Path(file).is_file():
        raise UnmaskError(f"no file {file}: give a text to edit, or - for standard input")
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UnmaskError(
            f"{file} is not UTF-8 at byte {error.start}: convert it to UTF-8"
        ) from None
