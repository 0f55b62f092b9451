"""What generate, fill and edit share: the model and its options, frames to watch, results to print."""

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from unmask.cli.output.stopwatch import Stopwatch
from unmask.cli.parser import SAMPLING, given
from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.api.running import Result


def write(
    args: Namespace,
    verb: str,
    text: Any,
    options: dict[str, Any],
    form: Callable[["Result"], Any] = str,
    gap: str = "\n",
) -> None:
    """Texts that the model's `verb` makes, with a gap between, as JSON, or as they form.

    A single text is seen forming wherever there is a screen: its first words are there after one step.
    """
    from rich.console import Console

    from unmask import api

    if args.watch and args.json:
        raise UnmaskError("--watch shows text and --json prints none: give one of them")
    model = api.load(args.model, **given(args, "device", "precision", "compile"))
    options = {**options, **given(args, *SAMPLING)}
    if hasattr(args, "guide"):
        options["guide"] = api.load(args.guide, **given(args, "device"))
    clock = Stopwatch()
    source = {"prompts" if verb == "generate" else verb: text}
    several = options.get("n", 1) > 1 or (isinstance(text, list) and len(text) > 1)
    usual = form is str and not several and not args.json and _on_a_screen()
    if args.watch or (args.watch is None and usual):
        from unmask.api.watching import watch

        frames = model.stream(**source, **options)
        last = watch(
            frames,
            model.tokenizer,
            conditional=model.conditional,
            on_screen=clock.shown,
            brief=not args.watch,
        )
        if args.time and last is not None:
            calls = [int(last.calls.max())] * len(last.tokens)
            clock.tell(last.tokens.numel(), calls, last.seconds)
        return
    console = Console(highlight=False, soft_wrap=True)
    begun = time.perf_counter()
    written: list["Result"] = []
    for result in model.texts(**source, **options):
        if args.json:
            print(json.dumps(asdict(result)), flush=True)
        else:
            console.print(gap * bool(written), end="")
            console.print(form(result), markup=False)
        clock.shown()
        written.append(result)
    if args.time:
        seconds = time.perf_counter() - begun
        clock.tell(sum(len(r.ids) for r in written), [r.calls for r in written], seconds)


def _on_a_screen() -> bool:
    """Whether what is printed can be taken back."""
    return bool(sys.stdout and sys.stdout.isatty()) and os.environ.get("TERM", "dumb") != "dumb"
