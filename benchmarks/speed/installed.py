"""Size on disk of an installation: the package, torch with its dependencies, and all other dependencies.

    python3 -m venv clean && clean/bin/pip install -c constraints.txt dist/unmask-*.whl
    clean/bin/python benchmarks/speed installed

Run it with the Python of an environment that contains only the wheel and its dependencies. Prints one JSON line for
each part, in megabytes, without compiled bytecode.
"""

import json
import re
from importlib.metadata import PackageNotFoundError, distribution


def needed(name: str) -> set[str]:
    """A package and its installed dependencies, without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if one in found:
            continue
        try:
            lines = distribution(one).requires or []
        except PackageNotFoundError:  # it belongs to another platform or to an extra
            continue
        found.add(one)
        waiting += [re.match(r"[\w.-]+", line)[0] for line in lines if "extra ==" not in line]
    return found


def megabytes(name: str) -> float:
    """Size of a package's own files."""
    files = [file.locate() for file in distribution(name).files or [] if file.suffix != ".pyc"]
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6


def main() -> None:
    everything, torch = needed("unmask"), needed("torch")
    own = {"unmask"}
    parts = {"unmask": own, "torch and its own": torch, "all else": everything - torch - own}
    for part, names in parts.items():
        sizes = {name: round(megabytes(name), 1) for name in names}
        largest = sorted(sizes, key=lambda name: -sizes[name])[:8]
        row = {"part": part, "packages": len(names), "MB": round(sum(map(megabytes, names)), 1)}
        print(json.dumps(row | {"largest": {name: sizes[name] for name in largest}}))
