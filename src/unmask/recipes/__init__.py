"""Named runs: one YAML file each, its first comment line the summary."""

from pathlib import Path
from typing import TypeAlias

import yaml

from unmask.errors import UnmaskError, unknown

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | None"

_FOLDER = Path(__file__).parent
_SUFFIXES = (".yaml", ".yml")
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
    try:
        node = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError:
        raise UnmaskError(f"{path} is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UnmaskError(f"{path} is not YAML: {error.problem}{line}") from None
    except yaml.YAMLError:
        raise UnmaskError(f"{path} is not YAML: it holds control characters") from None
    tree = {} if node is None else _tree(node, path)
    if not isinstance(tree, dict):
        raise UnmaskError(f"{path} should hold sections such as 'training:', not a single value")
    return tree


def _tree(node: yaml.Node, path: Path) -> Tree:
    if isinstance(node, yaml.SequenceNode):
        return [_tree(item, path) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return None if node.tag == _NULL else node.value
    tree: dict[str, Tree] = {}
    for key, value in node.value:
        if str(key.value) in tree:
            line = key.start_mark.line + 1
            raise UnmaskError(f"{path} gives {key.value!r} twice, again at line {line}")
        tree[str(key.value)] = _tree(value, path)
    return tree


def _first_comment(path: Path) -> str:
    return path.read_text("utf-8").partition("\n")[0].removeprefix("#").strip()
