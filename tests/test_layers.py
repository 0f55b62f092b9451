"""Imports run one way through the layers, and siblings never import each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import unmask

ROOT = Path(unmask.__file__).parent

# lowest first; the members of one layer may not import each other, except in the first
LAYERS = [
    {
        *("errors", "registry", "vocabulary", "randomness"),
        *("recipes", "shipped", "files", "runtime", "imports", "shapes"),
    },
    {"diffusion", "backbones", "constraints"},
    {"methods", "samplers", "data"},
    {"training", "evaluation"},
    {"config"},
    {"runs"},
    {"api"},
    {"serve", "harness", "hub"},
    {"play"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
# the lazy public API names modules above it without importing them, and any module may read it
SURFACE = "__init__"


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """The parts of the package that a file imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "unmask":
            names = [f"unmask.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [node.module or ""]
        else:
            continue
        parts = [name.split(".") for name in names]
        yield from (part[1] for part in parts if part[0] == "unmask" and len(part) > 1)


def allowed(importer: str, target: str) -> bool:
    if target not in LEVEL:  # a name of the public surface, such as __version__
        return target in unmask.__all__
    return (
        importer == target
        or LEVEL[target] < LEVEL[importer]
        or LEVEL[target] == LEVEL[importer] == 0
    )


FILES = sorted(path for path in ROOT.rglob("*.py") if part_of(path) != SURFACE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path):
    importer = part_of(path)
    assert importer in LEVEL, f"{importer} has no layer"
    wrong = [name for name in imported(ast.parse(path.read_text())) if not allowed(importer, name)]
    assert not wrong, f"{importer} may not import {wrong}"


def test_the_rule_can_fail():
    tree = ast.parse("def f():\n    from unmask.training import x\n    from unmask import api")
    assert list(imported(tree)) == ["training", "api"]
    assert not allowed("methods", "training")
    assert not allowed("methods", "samplers")
    assert allowed("training", "methods")
