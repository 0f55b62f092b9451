"""Responses in OpenAI's format: JSON, errors and server-sent events."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from unmask.errors import UnmaskError
from unmask.generation.sampling_params import SamplingParams
from unmask.options import options_of
from unmask.serve.execution.engine import Busy, Closing
from unmask.serve.execution.result_queue import TimedOut

RETRY = 1  # seconds of the Retry-After header
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Json(Response):
    """A JSON response in ASCII, without NaN."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content).encode()


class Events(StreamingResponse):
    """A response of server-sent events; closes their generator at its end."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        super().__init__(events)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await super().__call__(scope, receive, send)


def to_json(content: Any) -> str:
    """One line of JSON."""
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


class Problem(Exception):
    """An error with its HTTP status and the message for the client."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        closing: bool = False,
        param: str | None = None,  # the field of the request
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.closing = status, message, code, closing
        self.param = param

    @property
    def content(self) -> dict[str, Any]:
        """The body of the response."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        if self.status >= 500:
            kind = "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> Json:
        headers = {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status in (429, 503):
            headers["Retry-After"] = str(RETRY)
        if self.closing:
            headers["Connection"] = "close"
        return Json(self.content, self.status, headers)


def problem_of(error: Exception) -> Problem:
    """The HTTP error for an exception; an internal error is logged and hidden from the client."""
    match error:
        case Problem():
            return error
        case UnmaskError():
            return Problem(400, str(error), param=named_field(str(error)))
        case Busy():
            return Problem(429, str(error), "overloaded")
        case Closing():
            return Problem(503, str(error), "shutting_down")
        case TimedOut():
            return Problem(504, str(error), "timeout")
    logging.getLogger("uvicorn.error").error("a request failed", exc_info=error)
    return internal_error()


def named_field(message: str) -> str | None:
    """The option with which a message of the library begins,
    as in "steps must be" or "unknown sampler".
    """
    if "JSON schema" in message:
        return "response_format"
    word = message.removeprefix("unknown ").partition(" ")[0].rstrip(":")
    known = {"logprobs", *(one.name for one in options_of(SamplingParams, "http"))}
    return word if word in known else None


def internal_error() -> Problem:
    """The HTTP error for all internal errors; it has no details."""
    return Problem(500, "internal error: see the server's log")


def event(content: Any, name: str = "") -> str:
    """A server-sent event."""
    return (
        f"event: {name}\ndata: {to_json(content)}\n\n" if name else f"data: {to_json(content)}\n\n"
    )
