"""The page /docs: our OpenAPI document as plain HTML without external files."""

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, RedirectResponse

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font: 1.1rem ui-monospace, monospace; margin-top: 2.5rem; border-top: 1px solid #8884; padding-top: 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8882; }
code { font-family: ui-monospace, monospace; }
"""


def documentation(app: FastAPI) -> APIRouter:
    """A router with the page /docs."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/docs", response_class=HTMLResponse)
    async def docs() -> str:
        return page(app.openapi())

    return routes


def home() -> APIRouter:
    """A router that redirects / to the page /docs."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    async def root() -> RedirectResponse:
        return RedirectResponse("docs")

    return routes


def page(document: dict[str, Any]) -> str:
    """An HTML page with every route and the fields of its request."""
    title = f"{document['info']['title']} {document['info']['version']}"
    return "".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>",
            f"<p>{escape(document['info']['description'])} ",
            'For programs: <a href="openapi.json">openapi.json</a>.</p>',
            *_routes(document),
        ]
    )


def _routes(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            yield f"<h2>{method.upper()} {escape(path)}</h2>"
            yield f"<p>{escape(route.get('description', ''))}</p>"
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            if "$ref" in (schema := body.get("schema", {})):
                yield "<table><tr><th>field</th><th>type</th><th>default</th><th></th></tr>"
                yield from _fields(document, schema["$ref"])
                yield "</table>"


def _fields(document: dict[str, Any], reference: str, within: str = "") -> Iterator[str]:
    """A table row for each field of a request body;
    the fields of a nested object follow its row.
    """
    schema = _schema(document, reference)
    for name, field in schema["properties"].items():
        default = "required" if name in schema.get("required", []) else repr(field.get("default"))
        cells = [f"<code>{escape(within + name)}</code>", _type(field), default]
        cells.append(field.get("description", ""))
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in (cells[0], *map(escape, cells[1:])))}</tr>"
        for part in field.get("anyOf", ()):
            if "$ref" in part:
                yield from _fields(document, part["$ref"], f"{within}{name}.")


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(part) for part in field["anyOf"]))
    return str(field.get("type", field.get("$ref", "").rpartition("/")[2]))


def _schema(document: dict[str, Any], reference: str) -> dict[str, Any]:
    return document["components"]["schemas"][reference.rpartition("/")[2]]
