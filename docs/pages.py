"""Pages that the build of the site makes: home, commands and the Python reference.

Links have the targets that they have in the repository. A page outside docs/ becomes a page of the site.
Any other file that a page links to is copied to source/.
"""

import argparse
import ast
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import unmask
from unmask.cli import build_parser

ROOT = Path(__file__).parents[1]
OUTSIDE = {  # pages of the repository that are not in docs/, and their places in the site
    "README.md": "index.md",
    **{
        name: name
        for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")
    },
    **{
        name: name
        for page in sorted((ROOT / "benchmarks").rglob("*.md"))
        for name in [page.relative_to(ROOT).as_posix()]
    },
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
SYMBOL = re.compile(r"`(unmask(?:\.\w+)+)`")
os.environ["COLUMNS"] = "84"  # width of argparse output


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds a page for each command to the navigation, below the page of all commands, and the extensions'."""
    assert config.nav
    listed = _section(config.nav, "Extensions")
    listed += [f"extensions/{path.name}" for path in extension_pages()]
    section = _section(config.nav, "Commands")
    section += [{name: f"reference/commands/{name}.md"} for name in _parsers()]
    return config


def _section(nav: list, title: str) -> list:
    """The entries of the section with this title, at any depth of the navigation."""
    sections = [item for entry in nav if isinstance(entry, dict) for item in entry.items()]
    for name, entries in sections:
        if isinstance(entries, list):
            found = entries if name == title else _section(entries, title)
            if found:
                return found
    return []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that docs/ does not hold, and the files that pages link to outside docs/."""
    pages = {place: _read(name) for name, place in OUTSIDE.items()}
    pages |= {
        f"reference/commands/{name}.md": command_page(name, p) for name, p in _parsers().items()
    }
    pages |= {"reference/api.md": api_page(), "reference/mathematics.md": mathematics_page()}
    pages |= {"extensions/index.md": extensions_page()}
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    for target in sorted(set(_sources(files))):
        path = str(ROOT / target)
        files.append(File.generated(config, f"source/{target}", abs_src_path=path))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Maps links to places in the site, and symbols of the equations to their reference."""
    place = page.file.src_uri
    markdown = LINK.sub(lambda m: m[1] + _moved(m[2], place) + m[3], markdown)
    if place == "explanation/equations.md":
        lines = markdown.splitlines()
        markdown = "\n".join(
            line if line.startswith("#") else SYMBOL.sub(_referred, line) for line in lines
        )
    return markdown


# Pages


def command_page(name: str, parser: argparse.ArgumentParser) -> str:
    """Usage, options and examples of a command, from its parser and from commands.md."""
    about = (parser.description or "").strip()
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    command = name.partition("-")[0]  # of a sub-command
    parts = [
        f"# {parser.prog}",
        f"{about[:1].upper()}{about[1:].rstrip('.')}.",
        f"```text\n{usage}\n```",
    ]
    section = re.search(
        rf"^## {command}\n(.*?)(?=^## |\Z)", _read("docs/reference/commands.md"), re.M | re.S
    )
    if section and (example := re.search(r"^```bash\n.*?^```", section[1], re.M | re.S)):
        parts += [example[0]]
    parts += [f"[Description and examples]({_described(command, bool(section))})."]
    for group in parser._action_groups:
        actions = [*group._group_actions, *(a for b in group._group_actions for a in _inner(b))]
        rows = [row for action in actions if (row := _option(action))]
        if rows:
            title = (group.title or "").removeprefix("positional ").capitalize()
            kind = "Argument" if title == "Arguments" else "Option"
            head = [f"| {kind} | Meaning |", "|---|---|"]
            parts += [f"## {title}", "\n".join([*head, *rows])]
    if parser.epilog:
        parts += [f"```text\n{parser.epilog.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _described(command: str, in_core: bool) -> str:
    """The place that describes a command: its section, the page of an extension, or the lists."""
    for page in extension_pages():
        if re.search(rf"^## Options of {command}$", page.read_text(encoding="utf-8"), re.M):
            return f"../../extensions/{page.name}#options-of-{command}"
    return f"../commands.md#{command if in_core else 'list'}"


def extension_pages() -> list[Path]:
    """The pages of extensions, in alphabetical order."""
    return sorted((ROOT / "docs" / "extensions").glob("*.md"))


def extensions_page() -> str:
    """The list of extensions, each with the title of its page and the summary of its package."""
    lines = ["# Extensions", "An extension is a paper or a domain in a folder of its own.", ""]
    for path in extension_pages():
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        summary = ast.get_docstring(
            ast.parse(_read(f"src/unmask/extensions/{path.stem}/__init__.py"))
        )
        lines += [f"- [{title}]({path.name}): {(summary or '').splitlines()[0]}"]
    return "\n".join(lines) + "\n"


def _inner(action: argparse.Action) -> list[argparse.Action]:
    """The sub-commands that an action chooses from, with their summaries."""
    return action._choices_actions if isinstance(action, argparse._SubParsersAction) else []


def _option(action: argparse.Action) -> str:
    """A row of the table: spelling and meaning."""
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    shown = " ".join(value) if isinstance(value, tuple) else value
    spelled = [f"{name} {shown}".strip() for name in action.option_strings] or [shown]
    meaning = (action.help or "") % {**vars(action), "prog": "unmask"}
    return f"| `{'`, `'.join(spelled)}` | {meaning.replace('|', chr(92) + '|')} |"


def api_page() -> str:
    """Public names, and the base classes of extensions."""
    names = [name for name in unmask.__all__ if not name.startswith("_")]
    order = sorted(names, key=lambda name: (name[0].isupper() and name != "Model", name))
    public = [_reference(f"{_home(name)}.{name}", f"unmask.{name}") for name in order]
    bases = [_reference(path) for path in re.findall(r"^- `([\w.]+)`", BASES, re.M)]
    text = [
        "# Python API",
        "`import unmask` has these names. Torch is imported at the first use of a name that needs it.",
        *public,
        "## For extensions",
        "Base classes and registries of components: see [Add a component](../how-to/extend.md).",
        *bases,
    ]
    return "\n\n".join(text) + "\n"


BASES = """
- `unmask.registry.Registry`
- `unmask.diffusion.Schedule`
- `unmask.backbones.Backbone`
- `unmask.methods.Method`
- `unmask.samplers.Sampler`
- `unmask.evaluation.suites.Suite`
- `unmask.training.Logger`
"""


def mathematics_page() -> str:
    """Modules that the page of equations names, with their functions."""
    symbols = SYMBOL.findall(_read("docs/explanation/equations.md"))
    modules = sorted({module for symbol in symbols if (module := _module(symbol))})
    head = [
        "# Functions of the equations",
        "These functions are the targets of [Equations](../explanation/equations.md).",
    ]
    homes = {_home(name): name for name in unmask.__all__ if not name.startswith("_")}
    parts = [_reference(module, without=homes.get(module, "")) for module in modules]
    return "\n\n".join([*head, *parts]) + "\n"


# Places


def _parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, and of each sub-command as COMMAND-NAME."""
    found: dict[str, argparse.ArgumentParser] = {}
    for name, parser in build_parser()[1].choices.items():
        found[name] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found |= {f"{name}-{inner}": own for inner, own in action.choices.items()}
    return found


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _reference(path: str, heading: str = "", without: str = "") -> str:
    """The docstrings below a dotted name, under that name or `heading`, `without` one that is elsewhere."""
    options = f"\n      heading: {heading}" * bool(heading)
    options += f"\n      filters: ['!^_', '!^{without}$']" * bool(without)
    return f"::: {path}" + f"\n    options:{options}" * bool(options)


def _referred(symbol: re.Match[str]) -> str:
    """A name of the equations as a link to its reference; its module stands above the table."""
    module = _module(symbol[1])
    short = symbol[1].removeprefix("unmask.").removeprefix(f"{module.removeprefix('unmask.')}.")
    return f"[`{short}`][{symbol[1]}]" if module else symbol[0]


def _home(name: str) -> str:
    """The module of a public name, without an import of torch."""
    return unmask._HOMES.get(name) or getattr(unmask, name).__module__


def _module(symbol: str) -> str:
    """The module that a dotted name lies in, if it is one of ours."""
    parts = symbol.split(".")
    for end in range(len(parts), 1, -1):
        if (ROOT / "src" / "/".join(parts[:end])).with_suffix(".py").exists():
            return ".".join(parts[:end])
    return ""


def _origin(place: str) -> str:
    """Where a page of the site lies in the repository."""
    outside = {page: name for name, page in OUTSIDE.items()}
    return outside.get(place, f"docs/{place}")


def _target(link: str, place: str) -> str:
    """The file of the repository that a link on a page means, or nothing."""
    path = link.partition("#")[0]
    if not path or "://" in link or link.startswith("mailto:"):
        return ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(_origin(place)), path))


def _moved(link: str, place: str) -> str:
    """A link, to where its target lies in the site."""
    target = _target(link, place)
    if not target:
        return link
    if target in OUTSIDE:
        new = OUTSIDE[target]
    elif target == "docs/extensions" or (
        target.startswith("docs/extensions/") and not (ROOT / target).is_file()
    ):
        return posixpath.relpath("extensions/index.md", posixpath.dirname(place) or ".")
    elif target.startswith("docs/"):
        new = target.removeprefix("docs/")
    else:
        new = f"source/{target}"
    anchor = link.partition("#")[2]
    moved = posixpath.relpath(new, posixpath.dirname(place) or ".")
    return f"{moved}#{anchor}" if anchor else moved


def _sources(files: Files) -> Iterator[str]:
    """Files of the repository that pages link to and that are no pages."""
    for file in files.documentation_pages():
        for _, link, _ in LINK.findall(file.content_string):
            target = _target(link, file.src_uri)
            inside = target in OUTSIDE or target.startswith("docs/")
            if target and not inside and (ROOT / target).is_file():
                yield target
