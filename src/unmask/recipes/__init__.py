"""Named runs: one YAML file each, its first comment line the summary."""

from pathlib import Path
from typing import TypeAlias

import yaml

from unmask.errors import UnmaskError, unknown

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | None"

_FOLDER = Path(__file__).parent
_SUFFIXES = (".yaml", ".yml")
_LARGEST = 2**18  # bytes,
_MOST = 10_000  # and values, of a recipe
_NULL = "tag:yaml.org,2002:null"


def names() -> list[str]:
    """The recipes that ship with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def summaries() -> dict[str, str]:
    """Each recipe with the comment on its first line."""
    return {name: _first_comment(_FOLDER / f"{name}.yaml") for name in names()}


def locate(recipe: str, beside: Path = Path()) -> Path:
    """The file of a recipe: a shipped name, or a path (relative to the folder `beside`)."""
    if recipe in names():
        return _FOLDER / f"{recipe}.yaml"
    if not recipe.endswith(_SUFFIXES):
        raise unknown("recipe", recipe, names())
    path = beside / recipe
    if not path.is_file():
        raise UnmaskError(f"there is no recipe file {path}")
    return path


def read(path: Path) -> dict[str, Tree]:
    """A YAML file as a tree whose leaves are text, for the field's type to read: `1e-3` is a number, `no` a word."""
    if path.stat().st_size > _LARGEST:
        raise UnmaskError(f"{path} is larger than {_LARGEST:,} bytes: it is no recipe")
    try:
        node = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
        tree = {} if node is None else _Trees(path).tree(node)
    except UnicodeDecodeError:
        raise UnmaskError(f"{path} is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UnmaskError(f"{path} is not YAML: {error.problem}{line}") from None
    except RecursionError:
        raise UnmaskError(f"{path} is nested too deeply") from None
    except yaml.YAMLError:
        raise UnmaskError(f"{path} is not YAML: it holds control characters") from None
    if not isinstance(tree, dict):
        raise UnmaskError(f"{path} should hold sections such as 'training:', not a single value")
    return tree


class _Trees:
    """Nodes as plain trees; an alias is written out each time, so what it grows to is counted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made = 0

    def tree(self, node: yaml.Node) -> Tree:
        self._made += 1
        if self._made > _MOST:
            raise UnmaskError(f"{self._path} grows to more than {_MOST:,} values: it is no recipe")
        if isinstance(node, yaml.SequenceNode):
            return [self.tree(item) for item in node.value]
        if not isinstance(node, yaml.MappingNode):
            return None if node.tag == _NULL else node.value
        tree: dict[str, Tree] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise UnmaskError(f"{self._path} has a name that is no word, at line {line}")
            if key.value in tree:
                raise UnmaskError(f"{self._path} gives {key.value!r} twice, again at line {line}")
            tree[key.value] = self.tree(value)
        return tree


def _first_comment(path: Path) -> str:
    return path.read_text("utf-8").partition("\n")[0].removeprefix("#").strip()
