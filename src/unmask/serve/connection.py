"""A connection of the server: time limits, and clients that shut down their writing side."""

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds between two checks of a client that shut down its writing side. Such a client may wait for
# its response, or it may be gone: only the reset that follows a write distinguishes the two.
PROBE = 0.25
# Checks before a client of HTTP/1.0 counts as gone; HTTP/1.0 has no interim response to send.
OLD_PROBES = 4
EVENTS = "unmask.events"  # key of a scope whose response is a stream of events
_COMMENT = b":\n\n"  # a server-sent event that clients ignore


def protocol(read: float, write: float) -> type[H11Protocol]:
    """HTTP/1.1 with time limits for receiving the headers and for sending the response.

    Args:
        read: seconds for the headers of a request to arrive.
        write: seconds for a client to read a part of the response.
    """

    class TimedProtocol(H11Protocol):
        _read_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None
        _probe_timer: asyncio.TimerHandle | None = None
        _probes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_read_timer()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            if self._read_timer is None and (before is None or before.response_complete):
                self._start_read_timer()  # first bytes of the next request
            super().data_received(data)
            if self.cycle is not before:
                self._cancel_read_timer()

        def eof_received(self) -> bool:  # type: ignore[override]
            """True if a response is due: the transport then stays open for it."""
            if not self._due or self.cycle.more_body:
                return False
            if self._probe_timer is None:
                self._probe_timer = self.loop.call_later(PROBE, self._probe)
            return True

        def on_response_complete(self) -> None:
            super().on_response_complete()  # begins the next request that has arrived, if any
            if self._probe_timer is not None and not self._due:
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_read_timer()
            self._cancel_write_timer()
            if self._probe_timer is not None:
                self._probe_timer.cancel()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            # close() would wait for the client without a limit
            self._write_timer = self.loop.call_later(write, self.transport.abort)

        def resume_writing(self) -> None:
            self._cancel_write_timer()
            super().resume_writing()

        @property
        def _due(self) -> bool:
            """True if a request has arrived whose response is not complete."""
            return self.cycle is not None and not self.cycle.response_complete

        def _probe(self) -> None:
            """Closes the connection if the client is gone;
            else writes what shows it the next time.
            """
            self._probes += 1
            connection: socket.socket = self.transport.get_extra_info("socket")
            old = self.cycle.scope["http_version"] == "1.0" and not self.cycle.response_started
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or (
                old and self._probes > OLD_PROBES
            ):
                self.transport.abort()
                return
            if not self._due:
                self.transport.close()
                return
            if not old and self.conn.our_state is h11.SEND_RESPONSE:
                interim = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
                self.transport.write(self.conn.send(interim) or b"")
            elif self.cycle.scope.get(EVENTS) and self.conn.our_state is h11.SEND_BODY:
                self.transport.write(self.conn.send(h11.Data(data=_COMMENT)) or b"")
            self._probe_timer = self.loop.call_later(PROBE, self._probe)

        def _start_read_timer(self) -> None:
            self._read_timer = self.loop.call_later(read, self.transport.close)

        def _cancel_read_timer(self) -> None:
            if self._read_timer is not None:
                self._read_timer.cancel()
                self._read_timer = None

        def _cancel_write_timer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

    return TimedProtocol
