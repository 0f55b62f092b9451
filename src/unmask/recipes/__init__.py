"""Recipes: named configurations, one YAML file each, with a summary in its first line."""

import re
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

import yaml

from unmask.errors import UnmaskError, unknown
from unmask.extension import extensions

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | None"

AUTO = ("auto", "finetune")  # recipes that fit the text
ADAPT = "adapt"  # the recipe that fits the model that it starts from
_FOLDER = Path(__file__).parent
_SUFFIXES = (".yaml", ".yml")
_LARGEST = 2**18  # most bytes of a recipe
_MOST = 10_000  # most values of a recipe
_DEEPEST = 100  # most nested brackets
_NULL = "tag:yaml.org,2002:null"


def names() -> list[str]:
    """Names of the recipes of the package and of extensions."""
    return sorted(_files())


def summaries() -> dict[str, str]:
    """The comment in the first line of each recipe, by name."""
    return {name: _first_comment(path) for name, path in sorted(_files().items())}


def _files() -> dict[str, Path]:
    folders = (*(each.folder / "recipes" for each in extensions()), _FOLDER)
    return {path.stem: path for folder in folders for path in folder.glob("*.yaml")}


def locate(recipe: str, beside: Path = Path()) -> Path:
    """The file of a recipe: a known name, or a path relative to the folder `beside`."""
    known = _files()
    if recipe in known:
        return known[recipe]
    if not recipe.endswith(_SUFFIXES):
        if (beside / recipe).is_file():
            raise UnmaskError(
                f"{recipe} is a file, but no recipe: to train on its text, give finetune "
                f"--data.train {recipe}"
            )
        raise unknown("recipe", recipe, known)
    path = beside / recipe
    if not path.is_file():
        raise UnmaskError(f"there is no recipe file {path}: check the path")
    return path


def require_text(recipe: str, settings: Mapping[str, object]) -> None:
    """Raises an error if a recipe needs a text or a model that is not among the settings."""
    if recipe in (*AUTO, ADAPT) and "data.train" not in settings:
        raise UnmaskError(f"{recipe} has no text to train on: give --data.train FILE")
    if recipe == ADAPT:
        required_start(settings)


def required_start(settings: Mapping[str, object]) -> str:
    """The model that the settings start from; an error if there is none."""
    if start := settings.get("init_from"):
        return str(start)
    raise UnmaskError(
        "adapt has no model to start from: give --init-from MODEL, such as stories-ar"
    )


def read(path: Path) -> dict[str, Tree]:
    """A YAML file as a tree with text leaves, which the type of a field converts later.

    For example, `1e-3` can become a number, and `no` can stay a word.
    """
    if path.stat().st_size > _LARGEST:
        raise UnmaskError(f"{path} is larger than {_LARGEST:,} bytes: it is no recipe")
    try:
        text = path.read_text("utf-8")
        if _brackets(text) > _DEEPEST:  # PyYAML would take minutes for it
            raise RecursionError
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        tree = {} if node is None else _TreeBuilder(path).tree(node)
    except UnicodeDecodeError:
        raise UnmaskError(f"{path} is not UTF-8 text: save it as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UnmaskError(f"{path} is not YAML: {error.problem}{line}") from None
    except RecursionError:
        raise UnmaskError(f"{path} is nested too deeply") from None
    except yaml.YAMLError:
        raise UnmaskError(
            f"{path} is not YAML: it holds control characters (remove them)"
        ) from None
    if not isinstance(tree, dict):
        raise UnmaskError(f"{path} should hold sections such as 'training:', not a single value")
    return tree


def _brackets(text: str) -> int:
    """The largest number of nested brackets."""
    steps = (1 if sign in "[{" else -1 for sign in re.findall(r"[\[\]{}]", text))
    return max(accumulate(steps, lambda depth, step: max(0, depth + step)), default=0)


class _TreeBuilder:
    """Converts YAML nodes to trees. Aliases are expanded, so it limits the number of values."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    def tree(self, node: yaml.Node) -> Tree:
        self._count += 1
        if self._count > _MOST:
            raise UnmaskError(f"{self._path} grows to more than {_MOST:,} values: it is no recipe")
        if isinstance(node, yaml.SequenceNode):
            return [self.tree(item) for item in node.value]
        if not isinstance(node, yaml.MappingNode):
            return None if node.tag == _NULL else node.value
        tree: dict[str, Tree] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise UnmaskError(
                    f"{self._path} has a key that is no word, at line {line}: write a field's name"
                )
            if key.value in tree:
                raise UnmaskError(
                    f"{self._path} gives {key.value!r} twice, again at line {line}: remove one"
                )
            tree[key.value] = self.tree(value)
        return tree


def _first_comment(path: Path) -> str:
    return path.read_text("utf-8").partition("\n")[0].removeprefix("#").strip()
