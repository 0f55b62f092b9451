"""Static files of the page, with a content security policy that allows no other hosts."""

import mimetypes
from importlib.resources import files

from fastapi.responses import Response

_ROOT = files("unmask.play") / "static"
_FOLDERS = ("", "vendor/")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # an update of the package takes effect at once
}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


def _read_files() -> dict[str, bytes]:
    """All files by name; a request selects one by name and never opens a path."""
    return {
        folder + entry.name: entry.read_bytes()
        for folder in _FOLDERS
        for entry in (_ROOT / folder if folder else _ROOT).iterdir()
        if entry.is_file()
    }


FILES = _read_files()


def response(name: str) -> Response:
    """The HTTP response with a file of the page."""
    suffix = name[name.rfind(".") :]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(FILES[name], media_type=kind, headers=_HEADERS)
