"""Parallel files such as `train.{de,en}`: line n of each file is a field of record n."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from unmask.data.documents.fields import Fields
from unmask.data.documents.read_errors import ReadErrors
from unmask.data.sources.text_files import read_lines
from unmask.errors import UnmaskError

_ENDED = object()
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def parallel_files(source: str) -> dict[str, Path]:
    """The files of a source with braces, by the name in the braces; empty without braces."""
    found = _BRACES.search(source)
    if found is None:
        return {}
    names = [name.strip() for name in found[1].split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise UnmaskError(f"{source}: the braces need different names, such as {{de,en}}")
    paths = {name: Path(source[: found.start()] + name + source[found.end() :]) for name in names}
    for path in paths.values():
        if not path.is_file():
            raise UnmaskError(f"no file {path}, which {source} names")
    return paths


def read_parallel(
    source: str,
    paths: dict[str, Path],
    fields: Fields,
    faults: ReadErrors,
    digests: dict[Path, str],
) -> Iterator[str]:
    """The documents of parallel files; an error if the files differ in their number of lines."""
    columns = fields.columns(list(paths), source)
    with ExitStack() as stack:
        by_file = [ReadErrors(faults.allowed) for _ in columns]  # unreadable lines of each file
        lines = [
            stack.enter_context(read_lines(paths[name], found, digests))
            for name, found in zip(columns, by_file, strict=True)
        ]
        for number, values in enumerate(zip_longest(*lines, fillvalue=_ENDED), start=1):
            if _ENDED in values:
                ended, longer = (paths[columns[i]] for i in _ended_and_longer(values))
                raise UnmaskError(
                    f"{ended} has {number - 1} lines and {longer} has more: parallel files "
                    "need the same number of lines"
                )
            faults.seen += 1
            if None in values:  # one unreadable line makes the record unreadable
                faults.add(by_file[values.index(None)].first)
                continue
            record = dict(zip(columns, values, strict=True))
            yield faults.document(fields.document, record, f"{source}:{number}")
        faults.files += [file for found in by_file for file in found.files]


def _ended_and_longer(values: tuple[object, ...]) -> tuple[int, int]:
    """The index of a file that has ended and of a file that has not."""
    longer = next(i for i, value in enumerate(values) if value is not _ENDED)
    return values.index(_ENDED), longer
