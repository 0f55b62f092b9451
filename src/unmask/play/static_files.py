"""Static files of the page, with a content security policy that allows no other hosts."""

import mimetypes
from importlib.resources import files

from fastapi.responses import Response

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


def read_files(package: str) -> dict[str, bytes]:
    """All files of a package's folder `static` by name;
    a request selects one by name and opens no path.

    Args:
        package: the package; the pages of extensions have files of their own.

    Example:
        >>> "index.html" in read_files("unmask.play")
        True
    """
    root = files(package) / "static"
    folders = {folder: root / folder for folder in _FOLDERS}
    return {
        folder + entry.name: entry.read_bytes()
        for folder, found in folders.items()
        if found.is_dir()
        for entry in found.iterdir()
        if entry.is_file()
    }


FILES = read_files(__package__)


def response(name: str, content: bytes | None = None) -> Response:
    """The HTTP response with a file of the page,
    or with the content of another file of that name.
    """
    suffix = name[name.rfind(".") :]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(FILES[name] if content is None else content, media_type=kind, headers=_HEADERS)
