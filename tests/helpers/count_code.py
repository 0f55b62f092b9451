"""Lines of code of the parts of the repository,
beside their budgets and ceilings in pyproject.toml.

usage: count_code.py [--by-folder]; `make lint` runs it,
and it fails when a part is above its ceiling
"""

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """The lines of a source without blank lines, comments and docstrings."""
    docs: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Module(body=[ast.Expr(ast.Constant(str())) as text, *_])
                | ast.ClassDef(body=[ast.Expr(ast.Constant(str())) as text, *_])
                | ast.FunctionDef(body=[ast.Expr(ast.Constant(str())) as text, *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(ast.Constant(str())) as text, *_])
            ):
                docs.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docs)


def folders_of(part: str) -> dict[str, int]:
    """Lines of code by folder. `core` is `src` without the extensions."""
    lines: Counter[str] = Counter()
    for file in sorted((ROOT / ("src" if part == "core" else part)).rglob("*.py")):
        folder = file.parent.relative_to(ROOT).as_posix()
        if part != "core" or not f"{folder}/".startswith("src/unmask/extensions/"):
            lines[folder] += code_lines(file.read_text(encoding="utf-8"))
    return lines


def main() -> int:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    above = 0
    for part, limits in settings["tool"]["lines-of-code"].items():
        lines = folders_of(part)
        total, ceiling = lines.total(), limits["ceiling"]
        print(f"{part:<10} {total:>6,} lines of code, budget {limits['budget']:,}")
        if "--by-folder" in sys.argv:
            for folder, count in lines.most_common():
                print(f"{count:>17,} {folder}")
        if total > ceiling:
            above = 1
            print(f"{part} has grown above its ceiling of {ceiling:,} lines (pyproject.toml)")
    return above


if __name__ == "__main__":
    sys.exit(main())
