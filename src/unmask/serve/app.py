"""The FastAPI application: routes, middleware and error responses in OpenAI's format."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from unmask.errors import UnmaskError
from unmask.generation.sampling_params import SYNONYMS
from unmask.serve.docs_page import documentation, home
from unmask.serve.execution.engine import Busy, Closing, Engine
from unmask.serve.execution.result_queue import TimedOut
from unmask.serve.limits import ServerLimits
from unmask.serve.middleware import Guard
from unmask.serve.openai.chat import chats
from unmask.serve.openai.openai_completions import completions
from unmask.serve.openai.openai_embeddings import embeddings
from unmask.serve.prometheus import Metrics
from unmask.serve.responses import Problem, internal_error, problem_of
from unmask.serve.routes import our_routes, status_routes
from unmask.version import __version__

_DESCRIPTION = (
    "Masked diffusion language models: generation in any order, infilling and likelihoods."
)


def create_app(
    engine: Engine, settings: ServerLimits | None = None, routers: Sequence[APIRouter] = ()
) -> FastAPI:
    """The application that serves the engine's models.

    Args:
        engine: runs the requests.
        settings: the limits of a request; None = the defaults.
        routers: further routes.
    """
    settings = settings or ServerLimits()
    metrics = Metrics(engine)
    app = FastAPI(
        title="unmask",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # FastAPI's pages fetch scripts from other hosts; ours does not
        redoc_url=None,
        redirect_slashes=False,
        responses={code: {"description": text, **_ERROR} for code, text in _STATUSES.items()},
    )
    for router in (
        completions(engine, settings),
        chats(engine, settings),
        embeddings(engine, settings),
        our_routes(engine, settings),
        status_routes(engine, metrics),
        documentation(app),
        *routers,
        home(),  # last: the playground has a page of its own there
    ):
        app.include_router(router)
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unknown_error)
    for kind in _KNOWN:
        app.add_exception_handler(kind, _known_error)
    return app


_ERROR: dict[str, Any] = {
    "content": {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
}
_STATUSES: dict[int | str, str] = {
    400: "Invalid request; the message states the reason",
    401: "Missing or wrong token",
    403: "The server has no token, and the Host header does not name this machine",
    404: "Unknown model",
    408: "The request did not arrive in time",
    413: "The body is too large",
    429: "Too many requests: try again after Retry-After seconds",
    503: "The server is shutting down",
    504: "The response took too long",
}
_KNOWN: tuple[type[Exception], ...] = (Problem, UnmaskError, Busy, Closing, TimedOut)


def _known_error(request: Request, error: Exception) -> Response:
    return problem_of(error).response()


def _invalid(request: Request, error: Exception) -> Response:
    """A 400 response with a validation error of the first field, without the value,
    which may be large.
    """
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    # a text or a list has an error for each type: the one of the value's own type says more
    field = [one for one in errors if one["loc"][:2] == errors[0]["loc"][:2]]
    found = next((one for one in field if not one["type"].endswith("_type")), errors[0])
    kind = request.headers.get("content-type", "")
    path = found["loc"][1:]
    where = [str(part) for part in path if part == path[0] or not _names_a_type(part)]
    if found["type"] == "json_invalid":
        where, message = [], f"the body is not JSON, at character {where[0]}: send a JSON object"
    elif found["type"] == "extra_forbidden" and len(where) == 1:
        message = f"unknown field {where[0][:100]!r}{_hint(request, where[0])}"
    elif where:
        message = f"{'.'.join(where)[:100]}: {found['msg']}"
    elif not kind.partition(";")[0].strip().lower().endswith("json"):
        message = f"Content-Type is {kind[:100] or 'missing'}: send application/json"
    else:
        message = "the body is no JSON object: send one with the fields of the request"
    message = message[:500].encode("ascii", "backslashreplace").decode()
    return Problem(400, message, param=where[0][:100] if where else None).response()


def _hint(request: Request, name: str) -> str:
    """The end of a message about an unknown field: the field that was meant, if one is similar."""
    body = getattr(request.scope.get("route"), "body_field", None)
    fields = getattr(body.field_info.annotation, "model_fields", {}) if body else {}
    meant = SYNONYMS.get(name) if SYNONYMS.get(name) in fields else None
    near = [meant] if meant else get_close_matches(name[:100], fields, 1)
    return f"; did you mean {near[0]!r}?" if near else ": leave it out"


def _names_a_type(part: int | str) -> bool:
    """True for a type of a union in the path of an error, such as `str` or `list[str]`."""
    return isinstance(part, str) and (part == "str" or not part.replace("_", "").isalnum())


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Problem(error.status_code, str(error.detail)).response()


def _unknown_error(request: Request, error: Exception) -> Response:
    return internal_error().response()  # uvicorn logs the error
