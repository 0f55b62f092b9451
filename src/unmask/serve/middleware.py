"""Middleware before every route: token, body size, time limits and disconnected clients."""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from unmask.serve.limits import ServerLimits, host_name, is_loopback
from unmask.serve.prometheus import Metrics
from unmask.serve.responses import Problem

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN = "/healthz"  # needs no token, for monitoring
# A too large body is read and dropped up to this multiple of the limit: a client reads the error
# only after it has sent its body.
DISCARDED = 64
GONE: Message = {"type": "http.disconnect"}


class Guard:
    """Admits valid requests with their whole body; cancels a request when its client disconnects."""

    def __init__(self, app: App, settings: ServerLimits, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 499  # the client disconnected before the response
        unread = False

        async def sending(message: Message) -> None:
            nonlocal status, unread
            if message["type"] == "http.response.start":
                status = message["status"]
            try:
                async with asyncio.timeout(self.settings.write):  # wait_for can lose a cancellation
                    await send(message)
            except TimeoutError:
                unread = True
                raise

        try:
            await self._answer(scope, receive, sending)
        except Exception:
            if not unread:  # otherwise the server closes the connection
                status = 500
                raise
        finally:
            self.metrics.request(_path(scope), status, time.perf_counter() - begun)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            body = await self._body(scope, receive)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        if body is not None:
            await self._attended(scope, body, receive, send)

    def _check(self, scope: Message) -> None:
        """Raises an error for a wrong token or host; tokens are compared in constant time."""
        if scope["path"] == OPEN:
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
            if not is_loopback(name):
                raise Problem(
                    403, "the Host header must be localhost: this server runs without a token"
                )

    async def _body(self, scope: Message, receive: Receive) -> bytes | None:
        """The body, or None if the client disconnects; raises an error if it is too large or late."""
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

    async def _attended(self, scope: Message, body: bytes, receive: Receive, send: Send) -> None:
        """Sends the response, or cancels it when the client disconnects."""
        left: asyncio.Task[None] = asyncio.create_task(_until_gone(receive))
        unread = [body]

        async def once() -> Message:
            if unread:
                return {"type": "http.request", "body": unread.pop(), "more_body": False}
            await asyncio.shield(left)
            return GONE

        answering = asyncio.ensure_future(self.app(scope, once, send))
        try:
            await asyncio.wait({answering, left}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            left.cancel()
            answering.cancel()
            await asyncio.wait({answering, left})
            if not answering.cancelled():
                answering.exception()  # marks it as retrieved, or asyncio would log it


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _path(scope: Message) -> str:
    """The pattern of the route: unknown paths must not become labels of a metric."""
    return getattr(scope.get("route"), "path", "other")
