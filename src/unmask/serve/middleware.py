"""Middleware before every route: token, body size, time limits and disconnected clients."""

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from unmask.serve.connection import EVENTS
from unmask.serve.limits import ServerLimits, host_name, is_loopback
from unmask.serve.prometheus import Metrics
from unmask.serve.responses import Problem

_log = logging.getLogger(__name__)
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN = ("/healthz", "/readyz")  # need no token, for monitoring
# A body over the limit is still read, up to this multiple of the limit: a client reads the error
# only after it has sent its body.
DISCARDED = 64
LONGEST_PATH = 200  # characters of a path in the log
DISCONNECT: Message = {"type": "http.disconnect"}


class Guard:
    """Checks token, host and body of a request; cancels it when its client disconnects."""

    def __init__(self, app: App, settings: ServerLimits, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        # Status 499 stays if the client disconnects before the response.
        start, status, timed_out = time.perf_counter(), 499, False

        async def send_in_time(message: Message) -> None:
            nonlocal status, timed_out
            if message["type"] == "http.response.start":
                status = message["status"]
                kind = dict(message.get("headers", ())).get(b"content-type", b"")
                scope[EVENTS] = kind.startswith(b"text/event-stream")
            try:
                # asyncio.wait_for can lose a cancellation
                async with asyncio.timeout(self.settings.write):
                    await send(message)
            except TimeoutError:
                timed_out = True
                raise

        try:
            await self._respond(scope, receive, send_in_time)
        except Exception:
            if not timed_out:  # uvicorn closes the connection of a client that does not read
                status = 500
                raise
        finally:
            seconds = time.perf_counter() - start
            self.metrics.request(_route_path(scope), status, seconds)
            path = ascii(scope["path"][:LONGEST_PATH])[1:-1]  # a path cannot add lines to the log
            _log.info("%s %s %d %.3f s", scope["method"], path, status, seconds)

    async def _respond(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            body = await self._body(scope, receive)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        if body is not None:
            await self._run_app(scope, body, receive, send)

    def _check(self, scope: Message) -> None:
        """Raises an error for a wrong token or host; the token is compared in constant time."""
        if scope["path"] in OPEN:
            return
        headers = dict(scope["headers"])
        if self.settings.token is not None:
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            right = hmac.compare_digest(given.strip(), self.settings.token.encode())
            if kind.lower() != b"bearer" or not right:
                raise Problem(401, "the bearer token is missing or wrong", "invalid_api_key")
        elif self.settings.local:
            # DNS rebinding: a foreign page can point its host name at this machine.
            name = host_name(headers.get(b"host", b"localhost").decode("latin-1"))
            if name is None or not is_loopback(name):
                raise Problem(
                    403, "the Host header must be localhost: this server runs without a token"
                )

    async def _body(self, scope: Message, receive: Receive) -> bytes | None:
        """The body, or None if the client disconnects; raises an error for a large or late body."""
        most, parts, size = self.settings.body, [], 0
        too_large = Problem(413, f"the body is larger than {most} bytes", closing=True)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > DISCARDED * most:
            raise too_large
        try:
            async with asyncio.timeout(self.settings.read):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    size += len(message.get("body", b""))
                    if size <= most:
                        parts.append(message.get("body", b""))
                    if size > DISCARDED * most or not message.get("more_body", False):
                        break
        except TimeoutError:
            seconds = self.settings.read
            late = f"the request did not arrive within {seconds:g} seconds"
            raise Problem(408, late, closing=True) from None
        if size > most:
            raise too_large
        return b"".join(parts)

    async def _run_app(self, scope: Message, body: bytes, receive: Receive, send: Send) -> None:
        """Runs the application on the request; cancels it when the client disconnects."""
        disconnected: asyncio.Task[None] = asyncio.create_task(_until_disconnect(receive))
        unread = [body]

        async def receive_body() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await asyncio.shield(disconnected)
            return DISCONNECT

        response = asyncio.ensure_future(self.app(scope, receive_body, send))
        try:
            await asyncio.wait({response, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            if response.done():
                response.result()
        finally:
            disconnected.cancel()
            response.cancel()
            await asyncio.wait({response, disconnected})
            if not response.cancelled():
                response.exception()  # otherwise asyncio logs it as never retrieved


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _route_path(scope: Message) -> str:
    """The path pattern of the route, or "other":
    each unknown path would add a label to the metrics.
    """
    return getattr(scope.get("route"), "path", "other")
