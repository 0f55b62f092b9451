"""A report as one HTML file without scripts or external files."""

import base64
from collections.abc import Sequence
from html import escape

from unmask.cli.output.elements import Table
from unmask.extensions.report.parts import Picture, Section
from unmask.version import __version__

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #5a5a5a; --line: #d5d5d5; --page: #fff;
  --band: #f5f5f5; --link: #0060a0 }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e4e4e4; --soft: #a8a8a8;
  --line: #444; --page: #181818; --band: #222; --link: #7cc4f5 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 78rem; padding: 1rem; color: var(--ink); background: var(--page);
  font: 1rem/1.5 system-ui, sans-serif }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin: 2.2rem 0 .4rem }
a { color: var(--link) } nav a { margin-right: 1rem }
p { max-width: 46rem; color: var(--soft); margin: .3rem 0 1rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 0 0 1.2rem; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding: .3rem 0 }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top; white-space: nowrap }
th:first-child { text-align: left }
thead th { border-bottom: 2px solid var(--line) } tbody th { font-weight: 400 }
figure { margin: 0 0 1.5rem; max-width: 36rem } img { display: block; width: 100%; height: auto }
figcaption { color: var(--soft); font-size: .9rem }
blockquote { margin: 0 0 1rem; padding: .6rem .9rem; background: var(--band);
  border-left: 3px solid var(--line); overflow-wrap: anywhere }
blockquote pre { margin: 0; white-space: pre-wrap; font: inherit } cite { color: var(--soft) }
@media print { body { max-width: none; font-size: 10pt } nav { display: none } .wide { overflow: visible }
  th, td { white-space: normal } figure, blockquote, tr { break-inside: avoid }
  h2 { break-after: avoid } }
"""


def page(title: str, sections: Sequence[Section]) -> str:
    """The HTML file of a report; all text of a run is escaped."""
    links = "".join(f'<a href="#{_id(each)}">{escape(each.title)}</a>' for each in sections)
    body = "\n".join(map(_section, sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="unmask {__version__}">
<title>{_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{_text(title)}</h1>
<nav aria-label="Sections">{links}</nav>
{body}
</main>
</body>
</html>
"""


def _section(section: Section) -> str:
    parts = [f'<section id="{_id(section)}">', f"<h2>{_text(section.title)}</h2>"]
    parts.append(f"<p>{_text(section.note)}</p>")
    parts += map(_table, section.tables)
    parts += map(_figure, section.pictures)
    parts += (_quote(whose, text) for whose, text in section.texts)
    return "\n".join([*parts, "</section>"])


def _table(table: Table) -> str:
    """A table in a container that scrolls on narrow screens."""
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.columns)
    rows = "\n".join(map(_row, table.rows))
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{_text(table.caption)}">'
        f"<table><caption>{_text(table.caption)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _row(cells: Sequence[str]) -> str:
    name, *rest = map(_text, cells)
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'


def _figure(picture: Picture) -> str:
    """A picture as an embedded image; as inline SVG its ids could clash with the page's."""
    source = base64.b64encode(picture.draw().encode()).decode()
    return (
        f'<figure><img src="data:image/svg+xml;base64,{source}" alt="{_text(picture.alt)}">'
        f"<figcaption>{_text(picture.caption)}</figcaption></figure>"
    )


def _quote(whose: str, text: str) -> str:
    return f"<blockquote><cite>{_text(whose)}</cite><pre>{_text(text)}</pre></blockquote>"


def _text(content: str) -> str:
    """Text as HTML, with escaped markup and a replacement character for each control character."""
    shown = "".join(
        character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for character in content
    )
    return escape(shown)


def _id(section: Section) -> str:
    return escape(section.title.lower().replace(" ", "-"))
