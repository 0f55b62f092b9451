"""Checks that an extension can be deleted: a copy of the tree without it passes lint,
types and tests.

    python tests/helpers/without_extension.py NAME [--quick] [pytest arguments]

The copy lacks `src/unmask/extensions/NAME`, `tests/extensions/NAME`, `docs/extensions/NAME.md` and
the tests of its benchmarks. It runs ruff, mypy and the fast tests, or with --quick the rules of the
code base and a short smoke test.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
SMOKE = """
from unmask import cli
lists = ("methods", "samplers", "backbones", "tokenizers", "sources", "formats", "recipes")
size = "--backbone.width 16 --backbone.depth 1 --backbone.heads 2 --data.length 16".split()
steps = "--training.steps 2 --training.batch 2 --training.validation_rows 2".split()
for command in (
    *([name] for name in lists),
    ["train", "demo", "--run", "tiny", *size, *steps],
    ["generate", "tiny", "--steps", "2"],
):
    assert cli.main(command) == 0, command
"""


def places(name: str) -> list[str]:
    """The files and folders of an extension."""
    return [
        f"src/unmask/extensions/{name}",
        f"tests/extensions/{name}",
        f"docs/extensions/{name}.md",
        f"tests/benchmarks/test_{name}_room.py",
    ]


def copy_without(name: str, folder: Path) -> None:
    """Copies the tree to a folder without an extension."""
    if not (ROOT / places(name)[0]).is_dir():
        raise SystemExit(f"there is no extension {name}")
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    gone = tuple(place if "." in place else f"{place}/" for place in places(name))
    for file in filter(None, listed):
        if not file.startswith(gone) and (ROOT / file).is_file():
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(ROOT / file, target)
            except OSError:
                shutil.copyfile(ROOT / file, target)


def check(folder: Path, *commands: list[str]) -> bool:
    """Runs Python programs in a copy. True if all succeed."""
    settings = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1"}
    for command in commands:
        print("$ python", *command[:4], flush=True)
        if subprocess.run([sys.executable, *command], cwd=folder, env=settings).returncode:
            return False
    return True


def without(name: str, folder: Path, quick: bool = False, tests: list[str] | None = None) -> bool:
    """True if a copy of the tree without an extension passes its checks."""
    copy_without(name, folder)
    if quick:
        rules = ["tests/test_architecture.py", "tests/test_extension.py"]
        return check(folder, ["-c", SMOKE], ["-m", "pytest", "-q", "-x", *rules])
    lint = [["-m", "ruff", "check"], ["-m", "ruff", "format", "--check"], ["-m", "mypy"]]
    return check(folder, *lint, ["-m", "pytest", "-q", *(tests or [])])


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    quick = "--quick" in rest
    with TemporaryDirectory() as folder:
        done = without(name, Path(folder), quick, [each for each in rest if each != "--quick"])
    print(f"without {name}: {'all checks pass' if done else 'a check fails'}")
    sys.exit(not done)
