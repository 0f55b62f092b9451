"""Rules of the code base: layers of imports, no import cycles,
sizes of folders and files, names.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import count_code
import pytest
from count_code import code_lines

import unmask

ROOT = Path(unmask.__file__).parent
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(ROOT.rglob("*.py"))
}
# layers, the lowest first; members of a layer do not import each other, except in the first
LAYERS = [
    {
        *("errors", "registry", "options", "vocabulary", "randomness", "shapes", "imports"),
        *("cancellation", "recipes", "shipped", "version", "extension"),
    },
    {"files"},
    {"runtime"},
    {"diffusion", "backbones", "data", "constraints"},
    {"methods", "samplers"},
    {"training"},
    {"config"},
    {"bundle"},
    {"generation", "likelihood", "representation"},
    {"formats"},
    {"model"},
    {"evaluation"},
    {"runs"},
    {"serve", "integrations"},
    {"cli"},
    {"extensions"},  # each may import all of the core, as a plugin does, and no other extension
    {"__main__"},
    {"__init__"},  # the package's face: users import it, and no file of the package does
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
REGISTRIES = {"methods", "samplers", "backbones", "cli/commands", "evaluation/suites"}
# most files of a folder, of a registry's folder; fewest lines of a file
MOST, MOST_ENTRIES, LEAST = 14, 24, 25


def module_of(file: str) -> str:
    return "unmask." + file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


MODULES = {module_of(file): file for file in SOURCES} | {"unmask": "__init__.py"}


def imported(source: str) -> Iterator[str]:
    """The modules of the package that a file names, also in functions,
    under TYPE_CHECKING and in strings.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module or ""
        elif isinstance(node, ast.Constant) and node.value in MODULES.keys() - {"unmask"}:
            yield node.value


def edges(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Maps a file to the files that it imports or names.
    The package's __init__ may name all of them.
    """
    return {
        file: {MODULES[name] for name in imported(source) if name in MODULES} - {file}
        for file, source in sources.items()
        if file != "__init__.py"
    }


EDGES = edges(SOURCES)
# the __init__ of a package names its own modules, and these do not import it
FILES = {file: found for file, found in EDGES.items() if not file.endswith("__init__.py")}


def part_of(file: str) -> str:
    """The package or module of a file: "methods", "registry", or "extensions/glue"."""
    first, *rest = file.removesuffix(".py").split("/")
    return f"{first}/{rest[0]}" if first == "extensions" else first


def level_of(part: str) -> int:
    name = part.partition("/")[0]
    assert name in LEVEL, f"{part} has no layer"
    return LEVEL[name]


# 1. Layers


def upward(edges: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Imports from a lower layer to a higher one."""
    found = set()
    for file, targets in edges.items():
        for target in targets:
            above, below = part_of(file), part_of(target)
            down = level_of(below) < level_of(above) or level_of(below) == level_of(above) == 0
            if above != below and not down:
                found.add((file, target))
    return found


def test_imports_follow_the_layers():
    assert upward(EDGES) == set()


@pytest.mark.parametrize(
    "line",
    [
        "def f():\n    from unmask.training.trainer import Trainer",
        "if TYPE_CHECKING:\n    from unmask.training import trainer",
        'home = "unmask.training.trainer"',
        "import unmask.training.trainer",
    ],
)
def test_an_upward_import_is_found_anywhere_in_a_file(line):
    found = upward(edges({"methods/mdlm.py": line}))
    assert found == {("methods/mdlm.py", "training/trainer.py")}


@pytest.mark.parametrize("line", ["from unmask import __version__, recipes", "import unmask"])
def test_an_import_of_the_packages_face_is_found(line):
    assert upward(edges({"cli/parser.py": line})) == {("cli/parser.py", "__init__.py")}


@pytest.mark.parametrize(
    "file", ["methods/mdlm.py", "cli/__init__.py", "extensions/other/suite.py"]
)
@pytest.mark.parametrize("line", ["import {}", "from {} import Ratio", 'home = "{}"'])
def test_an_import_of_an_extension_is_found_outside_it(file, line, monkeypatch):
    module, target = "unmask.extensions.kites.wind", "extensions/kites/wind.py"
    monkeypatch.setitem(MODULES, module, target)
    assert upward(edges({file: line.format(module)})) == {(file, target)}
    assert upward(edges({"extensions/kites/suite.py": line.format(module)})) == set()


# 2. Cycles and __init__ files


def circles(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of files that import each other (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(file: str) -> None:
        number[file] = low[file] = len(number)
        stack.append(file)
        for target in edges.get(file, ()):
            if target not in number:
                visit(target)
                low[file] = min(low[file], low[target])
            elif target in stack:
                low[file] = min(low[file], number[target])
        if low[file] == number[file]:
            group = set()
            while file not in group:
                group.add(stack.pop())
            if len(group) > 1:
                found.append(group)

    for file in edges:
        if file not in number:
            visit(file)
    return found


def test_there_are_no_import_cycles():
    assert circles(FILES) == []


def test_an_import_cycle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]


def through_faces(edges: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Imports of a package's __init__ instead of the module that defines a name."""
    return {
        (file, target)
        for file, targets in edges.items()
        for target in targets
        if target.endswith("/__init__.py") and part_of(file) != part_of(target)
        if "\ndef " not in SOURCES[target]
    }


def test_no_module_imports_a_name_through_a_packages_init():
    assert through_faces(FILES) == set()


def test_an_import_through_a_packages_init_is_found():
    line = "from unmask.methods import MDLM"
    found = through_faces(edges({"training/step.py": line}))
    assert found == {("training/step.py", "methods/__init__.py")}


# 3. Sizes


def crowded(files: list[str]) -> set[str]:
    """Folders with too many files."""
    count = Counter(file.rpartition("/")[0] for file in files if not file.endswith("__init__.py"))
    return {
        folder
        for folder, files in count.items()
        if files > (MOST_ENTRIES if folder in REGISTRIES else MOST)
    }


def thin(sources: Mapping[str, str]) -> set[str]:
    """Files with too few lines. Entries of a registry may be short."""
    return {
        file
        for file, source in sources.items()
        if len(source.splitlines()) < LEAST
        and not re.search(r"__(init|main)__|^version\.py$", file)
        and file.rpartition("/")[0] not in REGISTRIES
    }


def test_no_folder_has_too_many_files_and_no_file_too_few_lines():
    assert crowded(list(SOURCES)) == set()
    assert thin(SOURCES) == set()


def test_a_crowded_folder_and_a_short_file_are_found():
    assert crowded([f"files/{n}.py" for n in range(15)]) == {"files"}
    assert crowded([f"methods/{n}.py" for n in range(15)]) == set()
    assert thin({"files/a.py": "x = 1\n" * 24, "files/b.py": "x = 1\n" * 25}) == {"files/a.py"}


# 4. Names


def namesakes(files: list[str]) -> dict[str, set[str]]:
    """Modules with the same name as another module or a package of the core.

    A command may have the name of its function, and an extension has names of its own.
    """
    places = defaultdict(set)
    for file in files:
        if file.startswith("extensions/"):
            continue
        folder, _, name = file.rpartition("/")
        if name == "__init__.py":
            places[folder.rpartition("/")[2]].add(f"{folder}/")
        elif not folder.startswith("cli/commands"):
            places[name.removesuffix(".py")].add(file)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_modules_have_one_name():
    assert namesakes(list(SOURCES)) == {}


def test_a_namesake_is_found():
    files = ["a/base.py", "b/base.py", "c/__init__.py", "a/c.py", "cli/commands/base.py"]
    assert namesakes(files) == {"base": {"a/base.py", "b/base.py"}, "c": {"c/", "a/c.py"}}


def asked_classes(source: str) -> Iterator[str]:
    """The names of classes in the type checks of a file: isinstance, issubclass, type()
    is, case.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                compared: list[ast.expr] = [kinds]
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=compared):
                pass
            case ast.MatchClass(cls=kind):
                compared = [kind]
            case _:
                continue
        for part in (inner for each in compared for inner in ast.walk(each)):
            if isinstance(part, ast.Name | ast.Attribute):
                yield part.id if isinstance(part, ast.Name) else part.attr


def family(kind: type) -> dict[str, str]:
    """A class and all classes of the package that derive from it,
    each with its place as `part_of` names it.
    """
    file = kind.__module__.removeprefix("unmask.").replace(".", "/")
    found = {kind.__name__: part_of(file)}
    for each in kind.__subclasses__():
        if each.__module__.startswith("unmask."):
            found |= family(each)
    return found


def test_code_asks_methods_and_samplers_for_capabilities_not_classes():
    from unmask.methods.method import METHODS, Method
    from unmask.samplers.sampler import SAMPLERS, Sampler

    assert list(METHODS) and list(SAMPLERS)  # imports the classes of extensions
    homes = family(Method) | family(Sampler)
    found = {
        (file, name)
        for file, source in SOURCES.items()
        for name in homes.keys() & set(asked_classes(source))
        if part_of(file) != homes[name]
    }
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(method, MDLM)",
        "isinstance(method, methods.MDLM)",
        "issubclass(kind, SEDD | MDLM)",
        "type(method) is MDLM",
        "match method:\n    case MDLM():\n        pass",
    ],
)
def test_a_type_check_is_found(line):
    assert "MDLM" in set(asked_classes(line))


# 9. Lines of code


def test_lines_of_code_leave_out_blank_lines_comments_and_docstrings():
    source = '''"""Module."""

# comment
x = """two
lines"""  # of data


def f():
    """Function."""
    return x

'''
    assert code_lines(source) == 4


def test_a_part_above_its_ceiling_fails(monkeypatch, capsys):
    settings = {"tool": {"lines-of-code": {"examples": {"budget": 2, "ceiling": 10_000}}}}
    monkeypatch.setattr(count_code.tomllib, "loads", lambda text: settings)
    assert count_code.main() == 0
    settings["tool"]["lines-of-code"]["examples"]["ceiling"] = 1
    assert count_code.main() == 1
    assert "examples has grown above its ceiling of 1 lines" in capsys.readouterr().out


def test_core_is_src_without_the_extensions(tmp_path, monkeypatch):
    for name, code in (
        ("loop", "a = 1\nb = 2\n"),
        ("extensions/kites/wind", '"""Wind."""\nc = 3\n'),
    ):
        file = tmp_path / "src" / "unmask" / f"{name}.py"
        file.parent.mkdir(parents=True)
        file.write_text(code)
    monkeypatch.setattr(count_code, "ROOT", tmp_path)
    assert count_code.folders_of("core") == {"src/unmask": 2}
    assert count_code.folders_of("src") == {"src/unmask": 2, "src/unmask/extensions/kites": 1}
