"""What generate, fill and edit share: the model and its options, frames to watch, results to print."""

import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from unmask.cli.parser import SAMPLING, given

if TYPE_CHECKING:
    from unmask.api import Model, Result


@contextmanager
def prepared(args: Namespace) -> Iterator[tuple["Model", dict[str, Any]]]:
    """The model and the options that were given, the text shown as it forms if it is to be watched."""
    from unmask import api

    device = given(args, "device")
    model = api.load(args.model, **device)
    options = given(args, *SAMPLING)
    if hasattr(args, "guide"):
        options["guide"] = api.load(args.guide, **device)
    if not args.watch:
        yield model, options
        return
    from unmask.cli.watch import Watch

    with Watch(model.tokenizer) as watch:
        yield model, {**options, "on_frame": watch.show}


def show(
    results: Iterable["Result"],
    as_json: bool,
    form: Callable[["Result"], Any] = str,
    gap: str = "\n",
) -> None:
    """One text after the other with a gap between, or one line of JSON each."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for number, result in enumerate(results):
        if as_json:
            print(json.dumps(asdict(result)))
        else:
            console.print(gap * bool(number), end="")
            console.print(form(result), markup=False)
