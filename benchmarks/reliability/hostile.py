"""Malformed and hostile requests to `unmask serve`: no 5xx, no hang, and the same answers afterwards.

    python benchmarks/reliability hostile --requests 2000

Most requests are written by hand: huge lengths, NaN, deep JSON, wrong types, lone surrogates, 1e400, bodies of 10 MB,
broken HTTP. The others come from schemathesis, which reads the server's OpenAPI document. The script prints one JSON
line: the count of each status, the slowest response, and if a fixed request has the same text before and after. The
exit code is 1 after any failure.
"""

import itertools
import json
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from benchmarks.room import script_parser
from benchmarks.speed.serving import random_model, resident, server

PATIENCE = 30.0  # seconds; a slower response counts as a hang
POSTS = ("/v1/completions", "/v1/fill", "/v1/score", "/v1/stream")
FIXED = {"prompt": "The", "max_tokens": 24, "seed": 11, "temperature": 0.7}

HALF_CLOSED = "half-closed"  # the client shuts down its writing side and must get its text

Content = bytes | list[bytes]  # in one piece, or in chunks


class Attack(NamedTuple):
    """A request as it is sent. Without a path it is raw bytes."""

    name: str
    method: str
    path: str
    content: Content
    headers: dict[str, str] = {}  # noqa: RUF012


def hand_made(limit: int = 10 << 20) -> Iterator[Attack]:
    """Requests written by hand; `limit` is the size of the large bodies."""
    json_type = {"Content-Type": "application/json"}
    for path in POSTS:
        for name, content in [*bodies(path), *large(path, limit)]:
            yield Attack(name, "POST", path, content, json_type)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"):
            yield Attack("content type", "POST", path, b'{"text": "a"}', {"Content-Type": kind})
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"):
            yield Attack("method", method, path, b"")
        yield Attack(
            "charset", "POST", path, b"{}", {"Content-Type": "application/json; charset=x"}
        )
        yield Attack("encoding", "POST", path, b"{}", {**json_type, "Content-Encoding": "gzip"})
        yield Attack("expect", "POST", path, b"{}", {**json_type, "Expect": "the unexpected"})
    for path in (
        "/v1/models/../../etc/passwd",
        "/v1/models/%2e%2e%2fwords",
        "/v1/models/%00",
        "//",
        "/v1/models/" + "a" * 5000,
        "/%ff%fe",
        "/v1/../healthz",
        "/metrics/../../x",
        "/?" + "q=1&" * 500,
    ):
        yield Attack("path", "GET", path, b"")
    for name, data in broken():
        yield Attack(name, "", "", data)


def bodies(path: str) -> Iterator[tuple[str, bytes]]:
    """Bodies of a route: invalid JSON, values beyond all limits, invalid text."""
    text = {"/v1/completions": "prompt", "/v1/fill": "text", "/v1/score": "texts"}.get(path, "fill")
    good = {text: "A [MASK] b" if path in ("/v1/fill", "/v1/stream") else "A b"}
    plain = json.dumps(good)[:-1]
    for raw in (
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b'"a"',
        b"\xff\xfe",
        b"{}{}",
        b"\x00",
        b"{'a': 1}",
    ):
        yield "no JSON", raw
    for depth in (100, 5000, 200_000):
        yield "deep", b'{"%s": ' % text.encode() + b"[" * depth + b"]" * depth + b"}"
        yield "deep", b'{"a":' * depth + b"1" + b"}" * depth
    numbers = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "9" * 400, "9" * 5000)
    numbers += (
        "-1",
        "0",
        "0.5",
        "1e308",
        '"5"',
        "true",
        "null",
        "[]",
        "{}",
        "18446744073709551616",
    )
    fields = ["n", "steps", "temperature", "top_p", "top_k", "seed", "tail", "guidance"]
    fields += {
        "/v1/completions": ["max_tokens", "best_of", "presence_penalty", "logprobs"],
        "/v1/score": ["draws"],
        "/v1/stream": ["length", "remask", "remask_uncertain", "remask_span"],
    }.get(path, [])
    for field_name, number in itertools.product(fields, numbers):
        yield f"{field_name} {number[:12]}", f'{plain}, "{field_name}": {number}}}'.encode()
    strings = (
        r'"\ud800"',
        r'"\udfff\ud800"',
        r'"\u0000"',
        '"' + "\u202e" * 50 + '"',
        '"\\ufeff[MASK:"',
        '"[MASK:99999999]"',
        '"[MASK:-1]"',
        '"[MASK:٣]"',
        '"' + "[MASK]" * 3000 + '"',
        '""',
        '"' + "a" * 100_000 + '"',
        '"' + "\U0001f600" * 3000 + '"',
    )
    many = "[MASK:65536]" * 5000  # 300 million tokens in 60 kB
    yield "many gaps", json.dumps({text: many}).encode()
    yield "many gaps", json.dumps({**good, "suffix": many}).encode()
    for value in strings:
        yield "text", f'{{"{text}": {value}}}'.encode()
        yield "text", f'{plain}, "{text}": {value}}}'.encode()  # the same name twice
        for field_name in ("model", "sampler", "regex", "grid", "label", "stop", "suffix", "user"):
            yield f"{field_name} text", f'{plain}, "{field_name}": {value}}}'.encode()
    for pattern in (
        "(a+)+$",
        "(" * 90,
        "[",
        "a{1000}{1000}",
        "(?=a)",
        "(a|b|ab)*c" * 10,
        ".*" * 60,
        "\\p{L}",
        "(?:[a-z]{1,40}){1,40}",
        "((a?){30}){30}",
        "[^a]{100}",
    ):
        yield "regex", f'{plain}, "regex": {json.dumps(pattern)}}}'.encode()
    for name in (
        "gibbs:steps=999999999",
        "semi_autoregressive:window=1",
        "a:b:c=d,e",
        "ancestral:steps=-1",
        "confidence:noise=1e400",
        "confidence:noise=nan",
        "gibbs:inner=gibbs:inner=gibbs",
        "x=y",
        "../../etc/passwd",
        "ancestral:grid=1,0",
        "__class__",
        "ancestral:" + "steps=1," * 20,
    ):
        yield "sampler", f'{plain}, "sampler": {json.dumps(name)}}}'.encode()
    for names in (["__proto__"], ["\ud800"], [f"field{i}" for i in range(3000)]):
        yield "unknown fields", json.dumps({**good, **dict.fromkeys(names, 1)}).encode()
    for several in (
        [],
        [""] * 5000,
        [[]],
        [["a", "b", "c"]],
        [1],
        [None],
        [["a", "b"]],
        ["a", ["b", "c"]],
    ):
        yield "lists", json.dumps({**good, text: several}).encode()


def large(path: str, limit: int) -> Iterator[tuple[str, Content]]:
    """Bodies of many megabytes, whole and in chunks."""
    body = b'{"text": "' + b"a" * limit + b'"}'
    yield "large", body
    yield "large", [body[start : start + (1 << 16)] for start in range(0, len(body), 1 << 16)]


def broken() -> Iterator[tuple[str, bytes]]:
    """Raw bytes: no valid HTTP, and valid requests of clients that shut down their writing side."""
    post = b"POST /v1/fill HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    yield "no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    yield "no HTTP", b"hello\r\n\r\n"
    yield "no HTTP", b"GET / HTTP/9.9\r\n\r\n"
    yield "no host", b"GET /healthz HTTP/1.1\r\n\r\n"
    yield "long header", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"
    yield "many headers", b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 20_000 + b"\r\n"
    yield "long line", b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n"
    yield "two lengths", post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"
    yield (
        "length and chunks",
        post + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    )
    yield "negative length", post + b"Content-Length: -5\r\n\r\n"
    yield "huge length", post + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n"
    yield "bad chunk", post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    yield "upgrade", post + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    asked = json.dumps(FIXED).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    length = b"Content-Length: %d\r\n" % len(asked)
    yield HALF_CLOSED, head + length + b"Connection: close\r\n\r\n" + asked
    yield HALF_CLOSED, head + length + b"\r\n" + asked
    yield "folded", b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\nConnection: close\r\n\r\n"


def generated(document: dict[str, Any], count: int, number: int = 0) -> list[Attack]:
    """Requests from an OpenAPI document. Most of them break its rules."""
    schema = schemathesis.openapi.from_dict(document)
    made: list[Attack] = []
    operations = [operation.ok() for operation in schema.get_all_operations()]
    share = -(-2 * count // (4 * len(operations)))  # some operations have little to vary
    modes = [GenerationMode.NEGATIVE] * 3 + [GenerationMode.POSITIVE]
    for turn, (operation, mode) in enumerate(itertools.product(operations, modes)):

        @seed(number + turn)
        @settings(
            max_examples=max(share, 1),
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def collect(case: Any) -> None:
            made.append(as_attack(case))

        try:
            collect()
        except Exception as error:  # an operation without parameters has no invalid requests
            if "Unsatisfiable" not in type(error).__name__:
                raise
    random.Random(number).shuffle(made)
    return made[:count]


def as_attack(case: Any) -> Attack:
    sent = case.as_transport_kwargs(base_url="http://localhost")
    body = json.dumps(sent["json"]).encode() if "json" in sent else sent.get("data") or b""
    content = body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")
    target = httpx.URL(sent["url"], params=sent.get("params") or None).raw_path.decode("ascii")
    kind = sent["headers"].get("Content-Type", "application/json")
    return Attack("generated", case.method.upper(), target, content, {"Content-Type": kind})


@dataclass
class Outcome:
    """Results of all requests."""

    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds
    slowest_name: str = ""


def attack(address: str, attacks: list[Attack], outcome: Outcome) -> Outcome:
    """Sends the requests one after the other."""
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        for one in attacks:
            begun = time.perf_counter()
            status = _raw(address, one) if not one.method else _sent(client, one)
            took = time.perf_counter() - begun
            if took > outcome.slowest:
                outcome.slowest, outcome.slowest_name = took, f"{one.name} {one.content[-80:]!r}"
            outcome.statuses[status] += 1
            lost = one.name == HALF_CLOSED and status != "200"
            if status.startswith("5") or status == "hang" or lost:
                outcome.wrong.append(
                    f"{status}: {one.name}: {one.method} {one.path} {one.content[:200]!r}"
                )
    return outcome


def _sent(client: httpx.Client, one: Attack) -> str:
    content: Any = iter(one.content) if isinstance(one.content, list) else one.content
    try:
        request = client.build_request(one.method, one.path, content=content, headers=one.headers)
        request.url = request.url.copy_with(raw_path=one.path.encode("ascii", "ignore"))
        return str(client.send(request).status_code)
    except httpx.TimeoutException:
        return "hang"
    except (httpx.TransportError, httpx.InvalidURL):
        return "closed"


def _raw(address: str, one: Attack) -> str:
    assert isinstance(one.content, bytes)
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), PATIENCE) as connection:
        try:
            connection.sendall(one.content)
            if one.name == HALF_CLOSED:
                connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(4096)
        except TimeoutError:
            return "hang"
        except OSError:
            return "closed"
    return answer[9:12].decode("ascii", "replace") if answer else "closed"


def fixed(address: str) -> str:
    """The text of a request that never changes."""
    answer = httpx.post(f"{address}/v1/completions", json=FIXED, timeout=PATIENCE).json()
    return answer["choices"][0]["text"]


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--requests", type=int, default=2000)
    add("--seed", type=int, default=0)
    add("--model", help="a model to serve instead of a small one of random weights")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(args.model) if args.model else Path(folder) / "model"
        if not args.model:
            random_model(64, 2, 64, 300, "mdlm").save(path)
        with server(path, ["--device", "cpu"]) as (address, process):
            document = httpx.get(f"{address}/openapi.json").json()
            ours = list(hand_made())
            attacks = ours + generated(document, max(args.requests - len(ours), 0), args.seed)
            random.Random(args.seed).shuffle(attacks)
            before, memory = fixed(address), [round(resident(process))]
            begun, outcome = time.perf_counter(), Outcome()
            quarter = -(-len(attacks) // 4)
            for start in range(0, len(attacks), quarter):
                attack(address, attacks[start : start + quarter], outcome)
                memory.append(round(resident(process)))
            same = fixed(address) == before
            health = httpx.get(f"{address}/healthz").json()
            row = {
                "requests": len(attacks),
                "by_hand": len(ours),
                "statuses": dict(outcome.statuses.most_common()),
                "slowest_seconds": round(outcome.slowest, 2),
                "slowest": outcome.slowest_name,
                "seconds": round(time.perf_counter() - begun, 1),
                "same_text_afterwards": same,
                "health": health,
                "resident_mib_by_quarter": memory,
                "wrong": outcome.wrong[:20],
            }
            print(json.dumps(row))
    sys.exit(bool(outcome.wrong) or not same or health != {"status": "ok", "jobs": 0})
