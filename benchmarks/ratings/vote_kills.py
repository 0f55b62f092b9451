"""Kills the server of the rating page many times, between votes and inside them, and counts the votes.

    python benchmarks/ratings vote_kills --kills 50

A client votes over HTTP. The server runs in its own process. SIGKILL ends it, in turn after a response and at a random
moment of a request. A new server resumes the file. Each vote with a response must be in the file. No comparison may
have two votes of one rater.
"""

import http.client
import json
import os
import random
import signal
import socket
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.room import script_parser
from unmask.extensions.ratings.comparisons import attention_checks, compare_texts
from unmask.extensions.ratings.rating_file import RatingFile
from unmask.extensions.ratings.rating_routes import rating_router
from unmask.serve.app import create_app
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits
from unmask.serve.server import bind, serve


def start(path: Path, bound: socket.socket) -> int:
    """Starts a process that serves the page of a file. Returns its id."""
    child = os.fork()
    if child == 0:
        try:
            engine, settings = Engine({}), ServerLimits()
            app = create_app(engine, settings, [rating_router(RatingFile.read(path))])
            serve(app, engine, settings, bound)
        finally:
            os._exit(1)
    return child


def post(port: int, path: str, body: dict[str, Any], wait: float = 10.0) -> dict[str, Any]:
    """The response to a request. Retries the connection until the server listens."""
    deadline = time.monotonic() + wait
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=wait)
        try:
            connection.connect()
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = json.loads(response.read())
        assert response.status == 200, content
        return content
    finally:
        connection.close()


def kill_inside(port: int, child: int, vote: dict[str, Any], dice: random.Random) -> bool:
    """Sends a vote and kills the server up to 4 ms later; True if the response came."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        body = json.dumps(vote).encode()
        head = f"POST /rate/vote HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        time.sleep(dice.uniform(0, 0.004))
        os.kill(child, signal.SIGKILL)
        try:
            return client.recv(12).startswith(b"HTTP/1.1 200")
        except ConnectionError:
            return False


def main(argv: list[str] | None = None) -> int:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--kills", type=int, default=50)
    add("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args(argv)
    dice = random.Random(args.seed)
    prompts = [f"prompt {number}" for number in range(6 * args.kills)]
    texts = {name: [f"{prompt} of {name}" for prompt in prompts] for name in ("a", "b")}
    acknowledged: set[str] = set()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "votes.jsonl"
        RatingFile.create(path, {}, [*compare_texts(texts, prompts), *attention_checks(10)])
        for number in range(args.kills):
            bound = bind("127.0.0.1", 0)
            port = bound.getsockname()[1]
            child = start(path, bound)
            bound.close()
            shown = post(port, "/rate/next", {"rater": "anna"})
            for _ in range(dice.randrange(1, 5)):
                vote = {"rater": "anna", "comparison": shown["next"]["id"], "choice": 1}
                shown = post(port, "/rate/vote", vote)
                acknowledged.add(vote["comparison"])
            if number % 2:
                vote = {"rater": "anna", "comparison": shown["next"]["id"], "choice": 2}
                if kill_inside(port, child, vote, dice):
                    acknowledged.add(vote["comparison"])
            else:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        lines = [json.loads(line) for line in path.read_bytes().splitlines() if _complete(line)]
        saved = [line["vote"]["comparison"] for line in lines if "vote" in line]
    lost, twice = acknowledged - set(saved), len(saved) - len(set(saved))
    print(
        f"{args.kills} kills, {len(acknowledged)} votes with a response: {len(lost)} lost, {twice} twice, "
        f"{len(saved) - len(acknowledged)} saved before a kill took the response (seed {args.seed})"
    )
    return 1 if lost or twice else 0


def _complete(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
