"""Rules of plain prose for docstrings, help texts, errors and log lines of the code,
and for the pages.

`python tests/test_prose.py PATH …` prints the faults of files or folders.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).parents[1]
ROOT = PROJECT / "src" / "unmask"
PAGES = [*sorted((PROJECT / "docs").rglob("*.md")), PROJECT / "examples" / "README.md"]
PAGES += [PROJECT / "README.md", PROJECT / "CHANGELOG.md"]
PAGES += sorted((PROJECT / "benchmarks").rglob("*.md"))
CODE = ("src/unmask", "benchmarks", "tests")
OPENINGS = ("What", "Whether", "How", "That", "Which")
BANNED = ("told", "nobody", "somebody", "company", "in the box")
LONGEST = 30  # words of a sentence
PRINTED = {"say", "warn", "warning", "info", "error", "print"}  # calls whose text a user reads
HELPFUL = {"help", "description", "summary", "epilog", "usage"}
FACES = (
    *("unmask", "unmask.backbones", "unmask.config", "unmask.constraints", "unmask.diffusion"),
    *("unmask.methods", "unmask.samplers", "unmask.training"),
)


class Prose(NamedTuple):
    """A text that a reader sees, and its place."""

    place: str
    text: str


def text_of(node: ast.expr) -> str:
    """The text of a string, with X for each inserted value."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                text_of(part) if isinstance(part, ast.Constant) else "X" for part in parts
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
    return ""


def proses(file: Path) -> Iterator[Prose]:
    """The docstrings, help texts, errors and printed lines of a file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 1)
        place = f"{file}:{line}"
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield Prose(place, text)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in PRINTED or name.endswith(("Error", "Warning")) or name == "Damaged":
                yield from (Prose(place, text) for arg in node.args if (text := text_of(arg)))
            for keyword in node.keywords:
                if keyword.arg in HELPFUL and (text := text_of(keyword.value)):
                    yield Prose(place, text)


def without_code_blocks(text: str) -> Iterator[str]:
    """The lines of a text outside its code blocks, which are fenced or indented as in Markdown.

    An indented block is code if a blank line separates it from unindented text.
    An entry under Args is not code.
    """
    fenced = code = blank = False
    last = ""  # the last line that is not blank
    for line in text.splitlines():
        if not line.strip():
            blank = True
            yield line
            continue
        if line.strip().startswith("```"):
            fenced = not fenced
        else:
            separated = blank and last != "" and not last.startswith(" ")
            code = line.startswith("    ") and (code or separated)
            if not fenced and not code:
                yield line
        last, blank = line, False


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text without code: examples, listings and tables are left out."""
    kept: list[str] = []
    for line in without_code_blocks(text):
        bare = line.strip()
        if bare.startswith((">>>", "...", "|")):
            continue
        kept.append(bare if bare else "\n\n")
    plain = re.sub(r"`[^`]*`|'unmask [^']*'", "code", " ".join(kept))
    for paragraph in re.split(r"\n\n| (?=\w[\w *]*: )|(?<=:) (?=\w+: )", plain):
        yield from filter(None, map(str.strip, re.split(r"(?<=[.!?…])\s+", paragraph)))


def page_proses(file: Path) -> Iterator[Prose]:
    """The headings, paragraphs, list items and table cells of a page.

    Code blocks and quotations are left out. A heading begins with #,
    so that the rule for the first word holds for it.
    """
    block: list[str] = []
    start, fence = 1, ""

    def finished() -> Iterator[Prose]:
        if block:
            yield Prose(f"{file}:{start}", " ".join(block))
            block.clear()

    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        bare = line.strip()
        if fence or bare.startswith("```"):
            yield from finished()
            fence = "" if fence and bare.startswith(fence) else "```"
        elif not bare or bare.startswith((">", "<", "![")):
            yield from finished()
        elif bare.startswith("|"):
            yield from finished()
            cells = re.split(r"(?<!\\)\|", bare.strip("|"))
            yield from (Prose(f"{file}:{number}", cell) for cell in cells if re.search(r"\w", cell))
        elif bare.startswith("#"):
            yield from finished()
            yield Prose(f"{file}:{number}", f"# {bare.lstrip('# ')}")
        else:
            if re.match(r"[-*] |\d+\. ", bare):
                yield from finished()
                bare = re.sub(r"^([-*]|\d+\.) ", "", bare)
            if not block:
                start = number
            block.append(bare)
    yield from finished()


def page_faults(file: Path) -> Iterator[str]:
    """The rules that a page breaks. The rule for the first word holds for
    headings and the first sentence.
    """
    opening = True
    for prose in page_proses(file):
        heading = prose.text.startswith("# ")
        text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", prose.text.removeprefix("# "))
        text = text.replace("**", "").replace("*", "")
        counts = heading or opening
        opening = opening and heading
        yield from faults(Prose(prose.place, text), opening=counts)


def faults(prose: Prose, opening: bool = True) -> Iterator[str]:
    """The rules that a text breaks; `opening` checks its first word too."""
    found = list(sentences(prose.text))
    first = found[0].split()[0].strip(",.:;") if found else ""
    if opening and first in OPENINGS:
        yield f"{prose.place} begins with {first}: {found[0][:70]}"
    for sentence in found:
        for word in BANNED:
            if re.search(rf"\b{word}\b", sentence, re.IGNORECASE):
                yield f"{prose.place} says {word!r}: {sentence[:90]}"
        if (count := len(sentence.split())) > LONGEST:
            yield f"{prose.place} has a sentence of {count} words: {sentence[:70]}"


def all_faults(paths: list[Path]) -> list[str]:
    """The faults of files and of the files in folders."""
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*.*")) if path.is_dir() else [path])
        if file.suffix == ".py" or (file.suffix == ".md" and ROOT not in file.absolute().parents)
    ]
    return [fault for file in files for fault in file_faults(file)]


def file_faults(file: Path) -> Iterator[str]:
    """The faults of a page or of a Python file."""
    if file.suffix == ".md":
        yield from page_faults(file)
    else:
        yield from (fault for prose in proses(file) for fault in faults(prose))


@pytest.mark.parametrize("folder", CODE)
def test_code_follows_the_rules_of_prose(folder):
    files = sorted((PROJECT / folder).rglob("*.py"))
    found = all_faults(files)
    assert not found, "\n".join([f"{len(found)} faults", *found[:40]])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_a_page_follows_the_rules_of_prose(page):
    found = all_faults([page])
    assert not found, "\n".join([f"{len(found)} faults", *found[:40]])


LONG = f"{'word ' * 31}end."


@pytest.mark.parametrize(
    "text",
    [
        "# How it works",
        "# Title\n\nWhat it is.",
        "# Title\n\nA user was told.",
        f"# Title\n\n- a\n- {LONG}",
        f"# Title\n\n| a | b |\n|---|---|\n| c | {LONG} |",
        f"# Title\n\nA [link](x.md) first. {LONG}",
    ],
)
def test_a_fault_of_a_page_is_found(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert len(all_faults([page])) == 1


@pytest.mark.parametrize(
    "text",
    [
        "# How-to guides",
        f"# Title\n\n```text\n{LONG}\n```",
        f"# Title\n\n> {LONG}",
        f"# Title\n\nThe command `{LONG}` works.",
    ],
)
def test_code_and_quotations_of_a_page_are_not_checked(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert not all_faults([page])


@pytest.mark.parametrize(
    "line",
    [
        *(f'"""{opening} a thing is."""' for opening in OPENINGS),
        *(f'raise UnmaskError("the file is {word}")' for word in BANNED),
        *(f'add("--x", help="{opening} it is")' for opening in OPENINGS),
        'say(f"{name} was told")',
        f'"""{"word " * 31}end."""',
        f'"""Short.\\n\\n{"word " * 31}end."""',
        f'"""Short.\\n\\nArgs:\\n    x: a number.\\n\\n    y: {LONG}"""',
        f'"""Short.\\n\\n```\\ncode\\n```\\n\\n{LONG}"""',
        f'"""Short.\\n\\n    code\\n\\n{LONG}"""',
    ],
)
def test_a_fault_of_code_is_found(line, tmp_path):
    file = tmp_path / "planted.py"
    file.write_text(line)
    assert len(all_faults([file])) == 1


CODE_LINE = "f() " * 40


@pytest.mark.parametrize(
    "docstring",
    [
        f"Short.\n\nExample:\n    >>> {CODE_LINE}\n",
        f"Short.\n\n    {CODE_LINE}\n\n    {CODE_LINE}\n\nMore.\n",
        f"Short.\n\n```\n{CODE_LINE}\n\n{CODE_LINE}\n```\n",
    ],
)
def test_code_in_a_docstring_is_not_checked(docstring, tmp_path):
    file = tmp_path / "fine.py"
    file.write_text(f'"""{docstring}"""')
    assert not all_faults([file])


def public() -> Iterator[tuple[str, object]]:
    """The functions of the public modules, and the methods that their classes define themselves."""
    for face in FACES:
        module = importlib.import_module(face)
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, type):
                yield f"{face}.{name}", value
                continue
            for each, member in vars(value).items():
                inherited = any(hasattr(base, each) for base in value.__bases__)
                if not each.startswith("_") and callable(member) and not inherited:
                    yield f"{face}.{name}.{each}", member


def undocumented(function: object) -> list[str]:
    """The headings that a function's docstring lacks."""
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    text = getattr(function, "__doc__", "") or ""
    returns = getattr(function, "__annotations__", {}).get("return")
    wanted = ["Args:"] * bool(set(names) - {"self", "cls"})
    wanted += ["Returns:", "Yields:"][:1] * (returns not in (None, "None"))
    return [
        head
        for head in wanted
        if head not in text and not (head == "Returns:" and "Yields:" in text)
    ]


def test_public_functions_document_their_arguments():
    lacking = [f"{name}: {', '.join(heads)}" for name, f in public() if (heads := undocumented(f))]
    assert not lacking, "\n".join(sorted(set(lacking)))


def misnamed(file: Path) -> Iterator[str]:
    """Names under Args that no parameter has."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        rest = (ast.get_docstring(node) or "").partition("Args:\n")[2]
        listed = re.findall(r"^    (\w+): ", re.split(r"\n\S", rest)[0], re.MULTILINE)
        own = node.args
        known = {arg.arg for arg in (*own.posonlyargs, *own.args, *own.kwonlyargs)}
        known |= {arg.arg for arg in (own.vararg, own.kwarg) if arg is not None}
        yield from (
            f"{file}:{node.lineno} {node.name} has no {name}"
            for name in listed
            if name not in known
        )


def test_arguments_have_the_names_of_parameters():
    assert not [fault for file in sorted(ROOT.rglob("*.py")) for fault in misnamed(file)]


def test_a_misnamed_argument_is_found(tmp_path):
    file = tmp_path / "planted.py"
    file.write_text('def f(x):\n    """Short.\n\n    Args:\n        y: a number.\n    """')
    assert len(list(misnamed(file))) == 1


if __name__ == "__main__":
    print(*all_faults([Path(path) for path in sys.argv[1:]]), sep="\n")
