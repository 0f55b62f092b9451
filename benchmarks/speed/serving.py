"""Throughput of many simultaneous streams on `unmask serve`, against the same requests one at a time.

    python benchmarks/speed serving --seconds 60

Prints JSON lines: the machine; requests one at a time to the server; the same requests in Python without a server
(the better of one thread and all); many streams at once. The last has the ratio, the server's memory before and after,
and a check that every text equals that of the same request alone. Without --model the server has a network of random
weights. Its texts are noise, but its cost is that of a real model of this size.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import torch

from benchmarks.room import script_parser
from unmask import load
from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.data.data_config import DataConfig
from unmask.data.documents.fields import Fields
from unmask.data.sources.open_source import open_corpus
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.model import Model

PROMPTS = [
    "",
    "The",
    "If the object is",
    "This function returns",
    "A list of all the names that are defined in the module, and",
    "Once upon a time there was",
]
LENGTHS = (16, 32, 48)  # tokens to generate; 16 is the default of the API
NO_LIMITS = httpx.Limits(max_connections=None)
GAPS = (4, 8, 16)  # tokens between a prompt and a suffix


def requests(count: int, tokens: int = 0) -> list[dict[str, Any]]:
    """Requests of several lengths, or of `tokens` tokens. Every third fills a gap. Each has its own seed."""
    made = []
    for number in range(count):
        filling = number % 3 == 2
        lengths = GAPS if filling else LENGTHS
        body: dict[str, Any] = {
            "prompt": PROMPTS[number % len(PROMPTS)],
            "max_tokens": tokens or lengths[number // 3 % len(lengths)],
            "seed": number,
            "temperature": 0.9,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if filling:
            body["suffix"] = " and that was all."
        made.append(body)
    return made


def random_model(width: int, depth: int, length: int, vocabulary: int, method: str) -> Model:
    """A model of random weights with the size of a real one."""
    backbone = "causal" if method == "autoregressive" else "dit"
    shape = {"width": width, "depth": depth, "heads": width // 64, "dropout": 0}
    choices = [
        ("data.length", str(length)),
        ("data.tokenizer.size", str(vocabulary)),
        ("method", method),
        ("backbone", backbone),
        *((f"backbone.{name}", str(value)) for name, value in shape.items()),
    ]
    config = resolve({}, choices)
    texts = open_corpus(config.data.train, Fields(config.data.separator, DataConfig.text_field))
    tokenizer = build_tokenizer(TokenizerConfig(size=vocabulary), texts)
    built = build_method(config, tokenizer.vocabulary)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return Model(built, tokenizer, config)


@contextlib.contextmanager
def server(model: Path, options: list[str]) -> Iterator[tuple[str, int]]:
    """Runs `unmask serve` at a free port. Yields its address and process id."""
    command = [sys.executable, "-m", "unmask", "serve", f"model={model}", "--port", "0", *options]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        yield next(word for word in line.split() if word.startswith("http://")), running.pid
    finally:
        running.terminate()
        running.wait(30)


def resident(process: int) -> float:
    """MiB of memory that a process holds."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_seconds(process: int) -> float:
    """Processor seconds of a process on all cores. Other processes hardly change them."""
    times = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Tally:
    """Counts, times and texts of the responses."""

    requests: int = 0
    failed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cpu: float = 0.0  # seconds of the server
    waits: list[float] = field(default_factory=list)
    texts: dict[int, set[str]] = field(default_factory=dict)  # of each request

    def rates(self) -> dict[str, float]:
        waits = sorted(self.waits)
        return {
            "requests": self.requests,
            "failed": self.failed,
            "seconds": round(self.seconds, 1),
            "requests_per_second": round(self.requests / self.seconds, 2),
            "tokens_per_second": round(self.tokens / self.seconds, 1),
            "cpu_ms_per_token": round(1000 * self.cpu / self.tokens, 1),
            "median_seconds": round(waits[len(waits) // 2], 2),
            "worst_seconds": round(waits[-1], 2),
        }


async def one(client: httpx.AsyncClient, number: int, body: dict[str, Any], tally: Tally) -> None:
    """Sends a request and reads its stream to the end."""
    start, text, usage = time.perf_counter(), "", None
    try:
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                text += "".join(choice["text"] for choice in chunk["choices"])
                usage = chunk.get("usage") or usage
    except httpx.HTTPError:
        usage = None
    if usage is None:
        tally.failed += 1
        return
    tally.requests += 1
    tally.tokens += usage["completion_tokens"]
    tally.waits.append(time.perf_counter() - start)
    tally.texts.setdefault(number, set()).add(text)


async def load_with(
    address: str, bodies: list[dict[str, Any]], streams: int, seconds: float
) -> Tally:
    """Runs `streams` streams at once. Each takes the next request until the time is up, and finishes its last one."""
    tally, numbers = Tally(), iter(range(10**9))
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=NO_LIMITS) as client:
        start = time.perf_counter()

        async def stream() -> None:
            while time.perf_counter() - start < seconds:
                number = next(numbers) % len(bodies)
                await one(client, number, bodies[number], tally)

        await asyncio.gather(*(stream() for _ in range(streams)))
        tally.seconds = time.perf_counter() - start
    return tally


async def alone(address: str, bodies: list[dict[str, Any]]) -> Tally:
    """Sends every request once, one after the other."""
    tally = Tally()
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=NO_LIMITS) as client:
        start = time.perf_counter()
        for number, body in enumerate(bodies):
            await one(client, number, body, tally)
        tally.seconds = time.perf_counter() - start
    return tally


async def over_capacity(address: str, streams: int) -> dict[str, Any]:
    """Fills the server with long streams. Times the refusal of further requests and the end of abandoned streams."""
    body = {"prompt": "The", "max_tokens": 1000, "stream": True}
    refused: list[float] = []
    healthy: list[float] = []
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=NO_LIMITS) as client:

        async def timed(
            method: str, path: str, status: int, into: list[float], **more: Any
        ) -> None:
            start = time.perf_counter()
            answer = await client.request(method, path, **more)
            into.append(1000 * (time.perf_counter() - start))
            assert answer.status_code == status, answer.text

        async def hold() -> None:
            async with client.stream("POST", "/v1/completions", json=body) as answer:
                async for _ in answer.aiter_lines():
                    pass

        held = [asyncio.create_task(hold()) for _ in range(streams)]
        while (await client.get("/healthz")).json()["jobs"] < streams:
            await asyncio.sleep(0.1)
        for _ in range(50):
            await timed("POST", "/v1/completions", 429, refused, json={"prompt": "a"})
            await timed("GET", "/healthz", 200, healthy)
        for task in held:
            task.cancel()
        left = time.perf_counter()
        while (await client.get("/healthz")).json()["jobs"]:
            await asyncio.sleep(0.01)
        left = time.perf_counter() - left
    return {
        "refused_ms_median": round(statistics.median(refused), 1),
        "refused_ms_worst": round(max(refused), 1),
        "healthz_ms_median": round(statistics.median(healthy), 1),
        "healthz_ms_worst": round(max(healthy), 1),
        "seconds_until_left_streams_cost_nothing": round(left, 2),
    }


def in_python(model: Model, bodies: list[dict[str, Any]], threads: int) -> float:
    """Tokens per second of the Python API, one request after the other, without a server."""
    torch.set_num_threads(threads)
    tokens, start = 0, time.perf_counter()
    for body in bodies:
        options = {"seed": body["seed"], "temperature": body["temperature"]}
        gap = f"[MASK:{body['max_tokens']}]"
        if "suffix" in body:
            model.fill(f"{body['prompt']}{gap}{body['suffix']}", **options)
            tokens += body["max_tokens"]
        else:
            given = 1 + len(model.tokenizer.encode(body["prompt"]))
            (result,) = model.generate(body["prompt"], length=given + body["max_tokens"], **options)
            tokens += len(result.ids) - given
    return tokens / (time.perf_counter() - start)


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--model", help="a model to serve instead of one of random weights")
    add("--streams", type=int, default=32)
    add("--seconds", type=float, default=60)
    add("--requests", type=int, default=60, help="different requests")
    add("--width", type=int, default=384)
    add("--depth", type=int, default=8)
    add("--length", type=int, default=256)
    add("--vocabulary", type=int, default=4096)
    add("--method", default="mdlm", help="mdlm, or autoregressive")
    add("--tokens", type=int, default=0, help="tokens of every request; 0 varies them")
    args = parser.parse_args()
    bodies = requests(args.requests, args.tokens)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(args.model) if args.model else Path(folder) / "model"
        if not args.model:
            shape = (args.width, args.depth, args.length, args.vocabulary)
            random_model(*shape, args.method).save(path)
        model = load(path, "cpu")
        if not model.method.capabilities.infill:
            for body in bodies:
                body.pop("suffix", None)
        parameters = sum(p.numel() for p in model.method.parameters())
        cores = len(os.sched_getaffinity(0))
        write(row="machine", cores=cores, torch=torch.__version__, load=os.getloadavg()[0])
        write(row="model", method=model.config.method.name, parameters=parameters)
        direct = {threads: in_python(model, bodies, threads) for threads in {1, cores}}
        rates = {f"tokens_per_second_{n}_threads": round(rate, 1) for n, rate in direct.items()}
        write(row="python", **rates)
        limits = ["--active", str(args.streams), "--waiting", "0", "--device", "cpu"]
        with server(path, limits) as (address, process):
            asyncio.run(load_with(address, bodies, args.streams, 3))  # warms up
            before = resident(process)
            spent = cpu_seconds(process)
            single = asyncio.run(alone(address, bodies))
            single.cpu = cpu_seconds(process) - spent
            write(row="one at a time", **single.rates())
            many = asyncio.run(load_with(address, bodies, args.streams, args.seconds))
            many.cpu = cpu_seconds(process) - spent - single.cpu
            after = resident(process)
            write(row="over capacity", **asyncio.run(over_capacity(address, args.streams)))
        best = max(single.tokens / single.seconds, *direct.values())
        same = all(many.texts[number] == single.texts[number] for number in many.texts)
        write(
            row=f"{args.streams} at once",
            **many.rates(),
            times_one_at_a_time=round(
                many.tokens / many.seconds / (single.tokens / single.seconds), 2
            ),
            times_best_alone=round(many.tokens / many.seconds / best, 2),
            same_texts=same,
            resident_mib_before=round(before),
            resident_mib_after=round(after),
        )


def write(**row: Any) -> None:
    print(json.dumps(row), flush=True)
