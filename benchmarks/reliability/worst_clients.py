"""Clients that send the worst requests beside ordinary clients: latency, memory, recovery, and the end.

    python benchmarks/reliability worst_clients --seconds 60 --clients 64 --out worst_clients.jsonl

Starts `unmask serve`. First each candidate pattern is sent alone; the slowest accepted one is the worst. Then a row of
ordinary clients alone, and a row beside attackers. Half of the attackers send the worst accepted pattern with another
literal each time, so that no cache has it. The others send patterns and schemas that a server must refuse. Afterwards
the attackers leave, and the time until an ordinary request is answered is the recovery. At last the attack begins
again and the server gets SIGTERM. Each row is a line of JSON. `PYTHONPATH` chooses the version of the package.
"""

import argparse
import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from benchmarks.room import script_parser
from benchmarks.rows import Report

NONE = httpx.Limits(max_connections=None)
RETRY = 1.0  # seconds before a refused client asks again
PATIENCE = 60.0  # seconds for a response

# {} is another text in each request
ACCEPTED = [
    "[A-Z][a-z]{{1,12}}( [a-z]{{1,12}}){{1,12}} {}\\.",
    "(?:[a-z]{{1,30}}[ ,]){{1,30}}{}",
    "(?:a|b|ab|ba)*{}(?:c|d|cd){{1,40}}",
    ".{{1,200}}{}.{{1,200}}",
    "(?:[^x]{{10}}x){{1,8}}{}",
]


def expanding(levels: int) -> dict[str, Any]:
    """A schema of `levels` definitions, each of which doubles the text of the next."""
    ref = "#/$defs/a{}".format
    defs: dict[str, Any] = {
        f"a{i}": {"anyOf": [{"$ref": ref(i + 1)}, {"$ref": ref(i + 1)}]} for i in range(levels)
    }
    return {"$defs": {**defs, f"a{levels}": {"const": 1}}, "$ref": ref(0)}


def members(count: int) -> dict[str, Any]:
    """A schema of an object with many properties."""
    names = [f"name{i}" for i in range(count)]
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}}


def refused() -> list[dict[str, Any]]:
    """The options of requests whose work is unbounded in their size."""
    schemas: list[Any] = [expanding(60), expanding(20), members(2000)]
    nested: dict[str, Any] = {"const": 1}
    for _ in range(300):
        nested = {"type": "array", "items": nested}
    forms = [
        {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        for schema in [*schemas, nested]
    ]
    patterns = ["A" * 4000, "A" * 200_000, "(?:a?){4000}"]
    return [{"response_format": form} for form in forms] + [{"regex": one} for one in patterns]


class Tally:
    """Latencies of answered requests in seconds, and the number of responses by status."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.statuses: Counter[str] = Counter()

    def row(self) -> dict[str, Any]:
        ordered = sorted(self.seconds)
        at = {"p50": 0.5, "p99": 0.99, "worst": 1.0}
        figures = {
            name: round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 3)
            for name, share in at.items()
            if ordered
        }
        return {"answered": len(ordered), **figures, "statuses": dict(self.statuses)}


async def post(client: httpx.AsyncClient, body: dict[str, Any], tally: Tally) -> str:
    try:
        answer = await client.post("/v1/completions", json=body, timeout=PATIENCE)
        status = str(answer.status_code)
    except httpx.TimeoutException:
        status = "no response"
    except httpx.TransportError:
        status = "closed"
    tally.statuses[status] += 1
    return status


async def ordinary(client: httpx.AsyncClient, number: int, end: float, tally: Tally) -> None:
    """Short completions one after the other; a refused one is sent again and its time goes on."""
    for seed in itertools.count(1000 * number):
        begun = time.monotonic()
        body = {"prompt": "Once upon a time", "max_tokens": 12, "seed": seed}
        while time.monotonic() < end and await post(client, body, tally) != "200":
            await asyncio.sleep(RETRY)
        if time.monotonic() >= end:
            return
        tally.seconds.append(time.monotonic() - begun)


async def attacker(client: httpx.AsyncClient, number: int, pattern: str, tally: Tally) -> None:
    """Endless requests: even numbers send the accepted pattern, odd ones what must be refused."""
    hopeless = refused()
    for turn in itertools.count():
        options = hopeless[(number // 2 + turn) % len(hopeless)]
        if number % 2 == 0:
            options = {"regex": pattern.format(f"{number}-{turn}")}
        body = {"prompt": "", "max_tokens": 64, "n": 2, **options}
        if await post(client, body, tally) in ("429", "closed"):
            await asyncio.sleep(0.05)


async def worst_of(client: httpx.AsyncClient) -> dict[str, Any]:
    """The slowest accepted pattern, and the status and seconds of each."""
    found = {}
    for pattern in ACCEPTED:
        begun, tally = time.monotonic(), Tally()
        body = {"prompt": "", "max_tokens": 64, "regex": pattern.format("alone")}
        status = await post(client, body, tally)
        found[pattern] = (status, round(time.monotonic() - begun, 2))
    accepted = {key: seconds for key, (status, seconds) in found.items() if status == "200"}
    return {"worst": max(accepted or {ACCEPTED[0]: 0.0}, key=accepted.get), "alone": found}


def peak_mib(process: int) -> float:
    """The largest resident memory of a process so far."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return round(int(next(one for one in lines if one.startswith("VmHWM")).split()[1]) / 1024)


async def measure(url: str, running: "subprocess.Popen[str]", args: argparse.Namespace) -> None:
    report = Report(args.out, 9)

    def show(kind: str, **row: Any) -> None:
        report.write({"row": kind, "clients": args.clients, "seconds": args.seconds, **row})

    async with httpx.AsyncClient(base_url=url, limits=NONE) as client:
        chosen = await worst_of(client)
        show("patterns", **chosen)

        async def usual(tally: Tally) -> None:
            end = time.monotonic() + args.seconds
            await asyncio.gather(*(ordinary(client, i, end, tally) for i in range(args.ordinary)))

        def attack(tally: Tally) -> "list[asyncio.Task[None]]":
            return [
                asyncio.create_task(attacker(client, i, chosen["worst"], tally))
                for i in range(args.clients)
            ]

        async def leave(attackers: "list[asyncio.Task[None]]") -> None:
            for one in attackers:
                one.cancel()
            await asyncio.gather(*attackers, return_exceptions=True)

        alone = Tally()
        await usual(alone)
        show("ordinary alone", **alone.row(), peak_mib=peak_mib(running.pid))
        beside, hostile = Tally(), Tally()
        attackers = attack(hostile)
        await usual(beside)
        show("ordinary beside attackers", **beside.row(), peak_mib=peak_mib(running.pid))
        await leave(attackers)
        begun, last = time.monotonic(), Tally()
        body = {"prompt": "Once", "max_tokens": 12, "seed": 1}
        while await post(client, body, last) != "200":
            if time.monotonic() - begun > PATIENCE:
                break
            await asyncio.sleep(0.1)
        show("attackers", statuses=dict(hostile.statuses))
        taken = round(time.monotonic() - begun, 2)
        show("recovery", recovery_seconds=taken, statuses=dict(last.statuses))
        attackers = attack(Tally())
        await asyncio.sleep(min(5.0, args.seconds))
        begun = time.monotonic()
        running.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(waited, running)
        show("SIGTERM", end_seconds=round(time.monotonic() - begun, 2), exit_code=code)
        await leave(attackers)


def waited(running: "subprocess.Popen[str]") -> int | str:
    """The exit code, or "killed" if the process had to be killed."""
    try:
        return running.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
        return "killed"


def main() -> None:
    parser = script_parser(__doc__, "out")
    add = parser.add_argument
    add("--seconds", type=float, default=60.0, help="of each of the two loads")
    add("--clients", type=int, default=64, help="attackers")
    add("--ordinary", type=int, default=8, help="ordinary clients")
    add("--model", default="stories")
    add("--timeout", default="20", help="time limit of a request")
    args = parser.parse_args()
    limits = ["--active", "8", "--waiting", "8", "--timeout", args.timeout]
    command = [sys.executable, "-m", "unmask", "serve", args.model, "--port", "0", *limits]
    command += ["--device", "cpu", "--log-level", "error"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http://"))
        asyncio.run(measure(url, running, args))
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()


if __name__ == "__main__":
    main()
