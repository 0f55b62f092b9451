"""Access, limits of size and time, capacity, and clients that disconnect."""

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from live import Live, eventually, live

from unmask.errors import UnmaskError
from unmask.serve.app import create_app
from unmask.serve.connection import PROBE
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits, host_name, is_loopback
from unmask.serve.responses import Events, Json, event

TOKEN = "a token that nobody can guess"
LONG = {"prompt": "The", "length": 2000, "seed": 1}  # of /v1/stream: many seconds of work
FILL = {"text": "Tom was [MASK:4].", "seed": 1}


@contextmanager
def serving(models, active: int = 4, waiting: int = 4, **settings):
    engine = Engine(models, active=active, waiting=waiting, workers=1)
    with engine, live(engine, **settings) as running:
        yield running


def status(server: Live, path: str = "/v1/fill", body: object = FILL, **headers: str) -> int:
    return httpx.post(server.url + path, json=body, headers=headers, timeout=20).status_code


def connected(server: Live, seconds: float = 5.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), seconds)


def posted(connection: socket.socket, path: str, body: dict) -> None:
    """Sends a request without waiting for the response."""
    data = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n{data}".encode())


def sent(server: Live, data: bytes, seconds: float = 5.0) -> bytes:
    """The response to raw bytes, until the server closes the connection."""
    with connected(server, seconds) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


# Tokens and names


def test_requests_without_the_token_are_refused(models):
    with serving(models, token=TOKEN) as server:
        assert status(server) == 401
        for wrong in ("Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}s", "Bearer", TOKEN):
            assert status(server, Authorization=wrong) == 401
        for path in ("/v1/models", "/metrics", "/docs", "/openapi.json", "/nothing"):
            answer = httpx.get(server.url + path)
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "authentication_error"
            assert answer.headers["www-authenticate"] == "Bearer"
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert status(server, Authorization=f"Bearer {TOKEN}") == 200
        assert b" 401 " in sent(
            server,
            b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: "
            b"Bearer \xff\xfe\r\nConnection: close\r\n\r\n",
        )


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "line\nbreak" * 4, "naïve" * 8])
def test_a_weak_token_is_refused(token):
    with pytest.raises(UnmaskError, match="token"):
        ServerLimits(token=token)


@pytest.mark.parametrize("wrong", [{"grace": float("nan")}, {"grace": -1.0}, {"length": 0}])
def test_invalid_limits_are_refused(wrong):
    with pytest.raises(UnmaskError, match="must be"):
        ServerLimits(**wrong)


def test_without_a_token_only_local_hosts_are_served(models):
    with serving(models) as server:
        assert status(server, Host="evil.example") == 403
        for name in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
            assert status(server, Host=name) == 200
    with serving(models, local=False) as server:
        assert status(server, Host="models.example") == 200
    with serving(models, token=TOKEN) as server:
        assert status(server, Host="models.example", Authorization=f"Bearer {TOKEN}") == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_forms_of_other_sites_are_refused(models, kind):
    """A browser sends such bodies to any host without a preflight request."""
    with Engine(models, workers=1) as engine:
        client = TestClient(create_app(engine), base_url="http://localhost")
        headers = {} if kind is None else {"Content-Type": kind}
        answer = client.post("/v1/fill", content=json.dumps(FILL), headers=headers)
    assert answer.status_code == 400


def test_addresses_of_this_machine():
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.8.9.1", "::1"]))
    others = ["0.0.0.0", "::", "192.168.0.1", "localhost.evil.example", "", "[::1]", "[127.0.0.1]"]
    assert not any(map(is_loopback, others))


@pytest.mark.parametrize(
    ("header", "host"),
    [
        *(("a:80", "a"), ("localhost", "localhost"), ("127.0.0.1:65535", "127.0.0.1")),
        *(("[::1]:80", "::1"), ("[0:0::1]", "::1")),
    ],
)
def test_the_host_of_a_header(header, host):
    assert host_name(header) == host


REFUSED = [
    *("localhost:80@evil.com", "[127.0.0.1].evil.com", "[::1]evil.com", "127.0.0.1]evil.com"),
    *("[127.0.0.1]", "[localhost]", "localhost:", "localhost:x", "localhost:99999", "[::1", "::1"),
    *(
        "localhost/",
        "localhost:80:80",
        "user@localhost",
        "localhost ",
        "",
        "[::1%25lo]",
        "[]",
        ":80",
    ),
    *("localhost\u0661", "127.0.0.1:\u0661", "localhost\n", "[::1]:80\n"),
]


@pytest.mark.parametrize("header", REFUSED)
def test_a_malformed_host_header_names_no_host(header):
    assert host_name(header) is None


PIECES = st.sampled_from(
    [*"[]:@./%\\#?-_ ", "127.0.0.1", "localhost", "::1", "evil.com", "80", "\t", "é"]
)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=12))
def test_only_whole_headers_name_this_machine(header):
    """A header that the server takes for this machine is one that a browser sends to it."""
    host = host_name(header)
    if host is not None and is_loopback(host):
        found = urlsplit(f"http://{header}")
        assert found.hostname is not None and found.username is None
        assert is_loopback(found.hostname)
        assert f"[{found.hostname}]" in header.lower() or found.hostname in header.lower()
        assert found.netloc == header and found.path == ""


def test_foreign_hosts_in_malformed_headers_are_refused(models):
    with serving(models) as server:
        for header in REFUSED[:4]:
            assert status(server, Host=header) == 403


OPENED: list[str] = []
WATCHING = threading.Event()


def _audit(event: str, args: tuple) -> None:
    if event == "open" and WATCHING.is_set():
        OPENED.append(str(args[0]))


def test_a_name_never_becomes_a_path(models, tmp_path):
    sys.addaudithook(_audit)  # permanent: hooks cannot be removed
    (tmp_path / "secret").mkdir()
    names = ["../words", "../../etc/passwd", str(tmp_path / "secret"), "words/../words", "", "\0"]
    with serving(models) as server:
        status(server)
        WATCHING.set()
        try:
            for name in names:
                assert status(server, body={**FILL, "model": name}) == 404
                assert status(server, "/v1/completions", {"model": name}) == 404
            for path in ("..%2Fwords", "../words", "%2e%2e/%2e%2e/etc/passwd", "%00"):
                answer = sent(
                    server,
                    f"GET /v1/models/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(),
                )
                assert answer.startswith(b"HTTP/1.1 404")
        finally:
            WATCHING.clear()
    # the framework reads its own source for the log
    assert [path for path in OPENED if not path.endswith(".py")] == []


# Sizes and times


def test_a_body_that_is_too_large_is_refused_in_every_encoding(models):
    with serving(models, body=10_000) as server:
        large = {"text": "a" * 20_000}
        assert status(server, body=large) == 413
        data = json.dumps(large).encode()

        def chunks(size: int):
            yield from (data[i : i + size] for i in range(0, len(data), size))

        for size in (500, 15_000):
            answer = httpx.post(f"{server.url}/v1/fill", content=chunks(size), timeout=10)
            assert answer.status_code == 413
            assert answer.json()["error"]["type"] == "invalid_request_error"
        head = b"POST /v1/fill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
        assert sent(server, head).startswith(b"HTTP/1.1 413")  # refused before the body is read
        assert status(server) == 200


def test_an_incomplete_request_times_out(models):
    half = b"POST /v1/fill HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with serving(models, read=0.3) as server:
        for data in (b"", b"POST /v1/fill HT", b"POST /v1/fill HTTP/1.1\r\nHost: loc"):
            assert sent(server, data) == b""
        assert sent(server, half).startswith(b"HTTP/1.1 408")
        chunked = half.replace(b"Content-Length: 100", b"Transfer-Encoding: chunked")
        assert sent(server, chunked.replace(b"{", b"5\r\nabc")).startswith(b"HTTP/1.1 408")
        # also the second request on a connection
        first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert sent(server, first + b"GET /hea", 20).count(b"HTTP/1.1") == 1
        assert status(server) == 200


def test_a_slow_request_times_out(models):
    with serving(models, read=0.5) as server, connected(server) as connection:
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begun < 5:
                connection.sendall(b"X")
                time.sleep(0.05)


# Clients that shut down their writing side


def half_closed(server: Live, data: bytes) -> bytes:
    """The response to a client that sends data and then shuts down its writing side."""
    with connected(server, 20) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def raw(path: str, body: dict, version: str = "1.1") -> bytes:
    data = json.dumps(body)
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n{data}".encode()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_shuts_down_its_writing_side_gets_its_response(models, version):
    health = f"GET /healthz HTTP/{version}\r\nHost: localhost\r\n\r\n".encode()
    with serving(models) as server:
        answer = half_closed(server, raw("/v1/fill", FILL, version))
        assert b" 200 OK" in answer and b'"object":"fill"' in answer
        assert half_closed(server, health).count(b'"status":"ok"') == 1
        if version == "1.1":  # two requests at once
            assert half_closed(server, health + raw("/v1/fill", FILL)).count(b"200 OK") == 2
            assert half_closed(server, health + b"POST /v1/fi").count(b"200 OK") == 1
        assert half_closed(server, raw("/v1/fill", FILL, version)[:-3]) == b""  # not complete
        assert server.until_idle()


@pytest.fixture
def slow() -> Iterator[tuple[APIRouter, threading.Event]]:
    """Routes that respond after an event: a plain response, and a stream between its events."""
    routes, hold = APIRouter(), threading.Event()

    async def held() -> None:
        while not hold.is_set():
            await asyncio.sleep(0.01)

    @routes.post("/slow", response_model=None)
    async def plain() -> Json:
        await held()
        return Json({"slow": 1})

    @routes.post("/events", response_model=None)
    async def stream() -> Events:
        async def pieces():
            yield event({"first": 1})
            await held()
            yield event({"last": 1})

        return Events(pieces())

    yield routes, hold
    hold.set()


def open_requests(server: Live) -> int:
    return len(server.server.server_state.tasks)


@pytest.mark.parametrize("path", ["/slow", "/events"])
@pytest.mark.parametrize("leaves", [False, True])
def test_a_half_closed_client_is_told_from_one_that_left(models, slow, path, leaves):
    routes, hold = slow
    with Engine(models, workers=1) as engine, live(engine, [routes]) as server:
        connection = connected(server, 20)
        connection.sendall(raw(path, {}))
        assert eventually(lambda: open_requests(server) == 1)
        if path == "/events":
            while b"first" not in connection.recv(65536):
                pass
        connection.shutdown(socket.SHUT_WR)
        time.sleep(4 * PROBE)
        assert open_requests(server) == 1
        if leaves:
            connection.close()
            assert eventually(lambda: open_requests(server) == 0, 1 + PROBE)
            return
        hold.set()
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        connection.close()
        interim, comment = b"HTTP/1.1 100 Continue\r\n\r\n", b":\n\n"
        assert b"".join(parts).count(interim if path == "/slow" else comment) >= 2
        assert (b'"slow":1' if path == "/slow" else b'"last":1') in b"".join(parts)
        assert eventually(lambda: open_requests(server) == 0)


def test_an_old_client_that_shuts_down_its_writing_side_waits_a_second(models, slow):
    """HTTP/1.0 has no interim response, so nothing shows if the client is there."""
    routes, _ = slow
    with Engine(models, workers=1) as engine, live(engine, [routes]) as server:
        assert half_closed(server, raw("/slow", {}, "1.0")) == b""
        assert eventually(lambda: open_requests(server) == 0)


# Capacity and disconnected clients


@contextmanager
def streaming(server: Live):
    """A long stream that has begun."""
    with httpx.stream("POST", f"{server.url}/v1/stream", json=LONG, timeout=20) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: frame"
        yield lines


def test_over_capacity_requests_are_refused_at_once(models):
    with serving(models, active=1, waiting=0) as server, streaming(server):
        answer = httpx.post(f"{server.url}/v1/fill", json=FILL)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "rate_limit_error"
        health, ready = (httpx.get(f"{server.url}/{name}") for name in ("healthz", "readyz"))
        assert health.status_code == 200 and health.json()["status"] == "full"
        assert ready.status_code == 503 and ready.json() == health.json()
        assert "unmask_ready 0.0" in httpx.get(f"{server.url}/metrics").text


def test_the_job_of_a_disconnected_client_ends(models):
    with serving(models) as server:
        with streaming(server):
            assert server.engine.jobs == 1
        assert server.until_idle()
        passes = server.engine.counts.passes
        assert passes < 600  # of 1,605
        with connected(server) as connection:
            posted(connection, "/v1/completions", {"prompt": "The", "max_tokens": 1900, "seed": 2})
            while server.engine.counts.passes < passes + 3:
                time.sleep(0.01)
        assert server.until_idle()
        assert server.engine.counts.passes < passes + 600
        passes = server.engine.counts.passes
        time.sleep(0.5)
        assert server.engine.counts.passes <= passes + 1  # a place is free before its pass ends


def test_a_client_that_does_not_read_is_disconnected(models):
    routes, left = APIRouter(), threading.Event()

    @routes.post("/much", response_model=None)
    async def much() -> Events:
        async def pieces():
            try:
                while True:
                    yield "a" * (1 << 20)
                    await asyncio.sleep(0)
            finally:
                left.set()

        return Events(pieces())

    with (
        Engine(models, workers=1) as engine,
        live(engine, [routes], write=0.2) as server,
        connected(server) as connection,
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        posted(connection, "/much", {})
        assert left.wait(20)
        while server.server.server_state.connections:  # endless if the server waits for the reader
            time.sleep(0.01)


def begun(server: Live, route: str, body: dict) -> Iterator[str]:
    """The lines of a stream after the first."""

    def lines() -> Iterator[str]:
        with httpx.stream("POST", server.url + route, json=body, timeout=20) as answer:
            yield from answer.iter_lines()

    coming = lines()
    next(coming)
    return coming


@pytest.mark.parametrize("route", ["/v1/stream", "/v1/completions"])
def test_a_server_that_stops_ends_streams_with_an_error_message(models, route):
    body = LONG if route == "/v1/stream" else {"prompt": "a", "max_tokens": 1900, "stream": True}
    with serving(models, grace=0.3) as server:
        lines = begun(server, route, body)
        server.stop()
        last = [line for line in lines if line.startswith("data: ")][-1]
    assert "shutting down" in json.loads(last.removeprefix("data: "))["error"]["message"]


def test_a_server_that_stops_lets_short_requests_finish(models):
    with serving(models, grace=20) as server:
        lines = begun(server, "/v1/stream", {"fill": "Tom [MASK:40]", "seed": 1})
        server.stop()
        assert "event: done" in list(lines)
