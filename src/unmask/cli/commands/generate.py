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

from unmask.cancellation import cancelled_by
from unmask.cli.checks import check_model, check_source
from unmask.cli.output.terminal import Stopwatch, Waiting
from unmask.cli.parser import (
    Commands,
    Parser,
    add_examples,
    add_model,
    add_options,
    add_sampling,
    given,
    group_of,
)
from unmask.data.sources.registered_forms import FILE_FORMS
from unmask.errors import UnmaskError
from unmask.extension import attachments
from unmask.files.storage import check_place, replace
from unmask.generation.context import CONTEXT_SOURCES, ContextSource
from unmask.generation.sampling_params import sampling_options
from unmask.options import Option, options_of

if TYPE_CHECKING:
    from unmask.generation.generator import Result
    from unmask.model import Model
    from unmask.vocabulary import Vocabulary

GROUP = "write"

_ENDINGS = {".txt": "text", ".json": "json", ".jsonl": "json"}
_COMMON = ("n", "seed", "steps", "temperature", "top_p", "sampler", "watch", "json")
_MANY = 100  # steps for each token beyond which a line says that they take time
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
    for source, options in _context_options().items():
        add_options(parser, options, source)
    add_sampling(parser)
    _add_output(parser)
    add_examples(
        parser,
        'unmask generate stories --prompt "Tom has" --n 3 --temperature 0.8',
        "unmask generate runs/demo --sampler confidence --steps 16 --watch",
    )
    parser.show_first("prompt", "length", *_COMMON)
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
    parser.show_first(*_COMMON)
    parser.set_defaults(execute=fill)


def _add_edit(commands: Commands) -> None:
    summary = "mask some tokens of a text and fill them again; the others stay"
    parser = commands.add_parser("edit", help=summary, description=summary)
    add_model(parser)
    parser.add_argument(
        "text", metavar="TEXT", help="the text, or a file that has it, or - for standard input"
    )
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
        'unmask edit stories "Tom had a red cow. He sat on it." --remask-uncertain 3',
        "unmask edit stories story.txt --remask 0.2",
        "unmask edit stories story.txt --remask-uncertain 8 --seed 1",
        "unmask edit runs/reviews review.txt --style positive --guidance 3",
    )
    parser.show_first("remask", "remask_span", "remask_uncertain", "style", *_COMMON)
    parser.set_defaults(execute=edit)


def _add_output(parser: Parser) -> None:
    group = group_of(parser, "output")
    group.add_argument(
        "--out", type=Path, metavar="FILE", help="file for the texts; by default the terminal"
    )
    group.add_argument(
        "--format",
        choices=("text", "json", *_written_forms()),
        help=f"{', '.join(('text', 'json', *_written_forms()))}; by default that of the file's ending, or of the "
        "model's tokens",
    )


def generate(args: Namespace) -> None:
    options = given(args, "stop")
    if hasattr(args, "length"):
        options["length"] = _length(args.length)
    source = _chosen_source(args)
    if source is not None:
        option = _context_options()[source[0]][0].name
        if not args.prompt:
            raise UnmaskError(
                f"--{option} searches with the prompt, and there is none: give --prompt"
            )
        if args.watch and len(args.prompt) > 1:
            raise UnmaskError("--watch shows the texts of one context: give one --prompt")
    _write(args, "generate", args.prompt, options, source=source)


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
    _write(args, "edit", _text(args.text), options)


def _write(
    args: Namespace,
    verb: str,
    text: Any,
    options: dict[str, Any],
    render: Callable[["Result"], Any] = str,
    separator: str = "\n",
    source: tuple[str, Any] | None = None,
) -> None:
    """Calls the model's method `verb` and shows its texts: plain, in another form, or step by step.

    In a terminal a single text is shown step by step by default: its first tokens appear after one step.
    """
    _check_output(args)
    if source is not None:
        _check_sources(*source)
    model = _loaded(args, options)
    if not args.json:
        _announce_windows(model, options.get("length"))
        _announce_steps(model, options)
    arguments = {"prompts" if verb == "generate" else verb: text}
    several = options.get("n", 1) > 1 or (isinstance(text, list) and len(text) > 1)
    watchable = not (several or args.json or args.out or args.format) and render is str
    if args.watch or (args.watch is None and watchable and _interactive()):
        if source is not None:
            options["context"] = _passages(_opened(model, *source), args.prompt[0])
        _watch(args, model, {**arguments, **options})
        return
    texts: Callable[..., Iterator["Result"]] = partial(model.texts, **arguments)
    if source is not None:
        texts = _with_context(model, args.prompt, _opened(model, *source))
    form = _format(args, model.tokenizer.vocabulary if verb == "generate" else None)
    with cancelled_by(Waiting()):
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


def _loaded(args: Namespace, options: dict[str, Any]) -> "Model":
    """The model of the arguments. Adds the sampling options to `options`, with their models loaded."""
    from unmask.model import load

    model = load(args.model, **given(args, "device", "precision", "compile"))
    options |= given(args, *(one.name for one in sampling_options("cli")))
    if "guide" in options:
        options["guide"] = load(options["guide"], **given(args, "device"))
    for name, kind in attachments().items():
        if name in options:
            options[name] = kind.type.load(options[name])
            options.setdefault("sampler", kind.sampler)
    return model


def _watch(args: Namespace, model: "Model", options: dict[str, Any]) -> None:
    """Shows the steps of a text in the terminal."""
    from unmask.generation.display import watch

    clock = Stopwatch()
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
        elif form in FILE_FORMS:
            line = FILE_FORMS[form].record(result.text, len(written), result.seed, label)
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


def _announce_steps(model: "Model", options: dict[str, Any]) -> None:
    """Prints a line if there are far more steps than tokens."""
    if "steps" not in options:
        return
    steps, length = options["steps"], options.get("length")
    tokens = min(model.length, length) if isinstance(length, int) else model.length
    if steps > _MANY * tokens:
        print(
            f"{steps:,} steps for {tokens:,} tokens: most steps change nothing, but each takes time; --steps "
            f"{tokens} is one step for each token",
            file=sys.stderr,
        )


def _with_context(
    model: "Model", prompts: list[str], source: ContextSource
) -> Callable[..., Iterator["Result"]]:
    """A function with the arguments of `texts`; each prompt gets the passages that fit it best."""
    from unmask.randomness import row_seeds

    def texts(seed: int = 0, n: int = 1, **options: Any) -> Iterator["Result"]:
        seeds = row_seeds(seed, n * len(prompts))  # as without context
        for number, prompt in enumerate(prompts):
            own = {"context": _passages(source, prompt), "n": n, **options}
            yield from model.texts([prompt], seed=seeds[n * number : n * (number + 1)], **own)

    return texts


def _context_options() -> dict[str, list[Option]]:
    """The options of each context source, by its name."""
    return {name: options_of(CONTEXT_SOURCES[name].Options, "cli") for name in CONTEXT_SOURCES}


def _chosen_source(args: Namespace) -> tuple[str, Any] | None:
    """The name and the checked options of the context source that the user chose, if any."""
    for name, options in _context_options().items():
        if own := given(args, *(one.name for one in options)):
            return name, CONTEXT_SOURCES[name].Options(**own)
    return None


def _check_sources(name: str, options: Any) -> None:
    for one in _context_options()[name]:
        if one.metavar == "SOURCE":
            check_source(getattr(options, one.name))


def _opened(model: "Model", name: str, options: Any) -> ContextSource:
    """The context source of a name."""
    if model.conditional:
        option = _context_options()[name][0].name
        raise UnmaskError(f"a model of pairs reads a source and no context: leave --{option} out")
    return CONTEXT_SOURCES.build(name, options=options)


def _passages(source: ContextSource, prompt: str) -> list[str]:
    """The passages for a prompt; prints a line if there is none."""
    found = source.passages(prompt)
    if not found:
        print(source.without(prompt), file=sys.stderr)
    return found


def _written_forms() -> list[str]:
    """The registered forms of files that texts can be written in."""
    return [name for name in FILE_FORMS if FILE_FORMS[name].writes]


def _format(args: Namespace, vocabulary: "Vocabulary | None") -> str:
    """The format of the output: json, text or a registered form, by default that of the vocabulary."""
    if args.json:
        return "json"
    if args.format:
        return str(args.format)
    ending = args.out.suffix.lower() if args.out is not None else ""
    forms = {name: FILE_FORMS[name] for name in _written_forms()}
    fitting = [name for name, form in forms.items() if ending in form.suffixes]
    if not ending and vocabulary is not None:
        fitting = [name for name, form in forms.items() if form.suits(vocabulary)]
    return _ENDINGS.get(ending) or next(iter(fitting), "text")


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
    """The text of a file without its last line break, or `file` itself if it has several words."""
    if file != "-" and not os.path.isfile(file):
        if len(file.split()) > 1:
            return file
        raise UnmaskError(
            f"no file {file}: give a file, a text of several words, or - for standard input"
        )
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UnmaskError(
            f"{file} is not UTF-8 at byte {error.start}: convert it to UTF-8"
        ) from None
