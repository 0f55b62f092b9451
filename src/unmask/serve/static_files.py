"""Static files of pages, with a content security policy that allows no other hosts."""

import mimetypes
from collections.abc import Mapping
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
        package: the package; the files of `unmask.serve` are those that all pages share.

    Example:
        >>> "base.css" in read_files("unmask.serve")
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


def page_files(package: str) -> dict[str, bytes]:
    """The files of a page, with those that all pages share, by name."""
    return read_files("unmask.serve") | read_files(package)


def response(name: str, files: Mapping[str, bytes]) -> Response:
    """The HTTP response with a file of a page; 404 if the page has no file of that name."""
    if name not in files:
        return Response(status_code=404)
    suffix = name[name.rfind(".") :]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(files[name], media_type=kind, headers=_HEADERS)
