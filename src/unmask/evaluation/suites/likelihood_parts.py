"""Parts of a likelihood: their orders and shards as text, and the merging of measured parts."""

import json
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.errors import UnmaskError

if TYPE_CHECKING:
    from unmask.likelihood.bound import Bound

_NAMES = ("model", "data")  # may differ between parts: machines may name the same file differently


def parse_order(text: str | None) -> Any:
    """The name of an order, or a list of positions."""
    if not text or not text[0].isdigit():
        return text
    try:
        return [int(position) for position in text.split(",")]
    except ValueError:
        raise UnmaskError(
            f"--order {text!r} is no list of positions: give one such as 2,0,1"
        ) from None


def parse_shard(text: str | None) -> tuple[int, int]:
    """The number of a shard and the number of shards of I/N."""
    number, slash, count = ("0/1" if text is None else text).partition("/")
    if not (slash and number.isdecimal() and count.isdecimal()):
        raise UnmaskError(f"--shard {text!r} is no shard: give I/N, as 0/2 for the first of two")
    return int(number), int(count)


def merged(files: list[Path]) -> "tuple[Bound, dict[str, Any], str | None]":
    """The bound of the parts in files, with their common conditions and the name of the model."""
    from unmask.likelihood.bound import Bound
    from unmask.likelihood.sums import Sums

    parts: list[Sums] = []
    first: dict[str, Any] = {}
    names: list[str | None] = []
    for file in files:
        if not file.is_file():
            raise UnmaskError(f"no file {file}: give files that --save wrote")
        try:
            saved = json.loads(file.read_text(encoding="utf-8"))
            sums, conditions = Sums.from_dict(saved["sums"]), saved["conditions"]
        except (ValueError, KeyError, TypeError, UnmaskError):
            raise UnmaskError(
                f"{file} holds no part: make it with 'unmask evaluate MODEL --shard I/N --save FILE'"
            ) from None
        first = first or conditions
        for name in first | conditions:
            if name not in _NAMES and first.get(name) != conditions.get(name):
                raise UnmaskError(
                    f"these are no parts of one measurement: {name} is {first.get(name)} in {files[0]} "
                    f"and {conditions.get(name)} in {file}; measure both with the same settings"
                )
        parts.append(sums)
        names.append(saved.get("model"))
    return Bound.from_sums(reduce(add, parts)), first, names[0]
