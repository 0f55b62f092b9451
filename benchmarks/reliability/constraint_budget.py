"""Compiles random patterns and schemas: none may exceed its budget, and no accepted text may be wrong.

    python benchmarks/reliability constraint_budget --cases 5000 --out constraint_cases.jsonl
    python benchmarks/reliability constraint_budget --attacks --out constraint_attacks.jsonl

Each case is compiled for the vocabulary of `stories`. The script prints one JSON line with its processor seconds and the
growth of the memory. Texts from random walks through the automaton, and changed ones, must match by `re` and `jsonschema`.
With `--attacks` each of the worst requests known is compiled in a process of its own, with at most 20 seconds and 8 GiB.
"""

import json
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np

import unmask
from benchmarks.reliability.constraint_cases import KINDS, pattern, schema
from benchmarks.room import script_parser
from unmask.constraints.byte_automaton import ByteMachine
from unmask.constraints.compiled import compile_constraint
from unmask.constraints.constraint import Constraint
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.errors import UnmaskError

SECONDS, MEGABYTES = 2.0, 256  # the stated budget of one constraint
SLACK = 1.2
WALKS, LONGEST = 6, 60  # texts of a case, and their bytes until a walk turns to an end
LIMIT_SECONDS, LIMIT_BYTES = 20, 8 << 30  # of an attack


@cache
def vocabulary() -> tuple[Any, Any]:
    """The bytes of the tokens of `stories`, and its vocabulary."""
    found = load_tokenizer(Path(unmask.__file__).parent / "shipped" / "stories" / "tokenizer")
    return found.pieces(), found.vocabulary


def compiled(parts: dict[str, Any]) -> Any:
    """The constraint with its automaton over the tokens of `stories`."""
    found = compile_constraint(Constraint(**parts), *vocabulary())
    return found, found.machine


# Cases


def walks(machine: ByteMachine, count: int, draw: random.Random) -> list[bytes]:
    """Accepted texts, by random steps to states from which an accepting one can be reached."""
    distance = np.full(len(machine.table), 10**6)
    distance[machine.accepting] = 0
    while True:
        nearer = np.minimum(distance, 1 + distance[machine.table].min(1))
        if (nearer == distance).all():
            break
        distance = nearer
    texts = []
    for _ in range(count if distance[0] < 10**6 else 0):
        state, text = 0, bytearray()
        while not machine.accepting[state] or (len(text) < LONGEST and draw.random() < 0.7):
            following = distance[machine.table[state]]
            far = len(text) > LONGEST
            good = np.flatnonzero(following < (distance[state] if far else 10**6))
            if not len(good):
                break
            byte = int(good[draw.randrange(len(good))])
            state = int(machine.table[state, byte])
            text.append(byte)
        texts.append(bytes(text))
    return texts


def changed(text: str, draw: random.Random) -> str:
    """A text with one character left out, doubled or replaced."""
    at = draw.randrange(len(text) + 1)
    return text[:at] + draw.choice(("", text[at : at + 1] * 2, "x", "1", '"')) + text[at + 1 :]


class _TooLong(Exception):
    pass


def _stop(_signal: int, _frame: object) -> None:
    raise _TooLong


def wrong_texts(kind: str, content: Any, machine: ByteMachine, draw: random.Random) -> list[str]:
    """Texts on which the automaton and the judge differ; a matcher that backtracks has 2 seconds."""
    judge: Callable[[str], bool]
    if kind == "regex":
        expression = re.compile(content)
        judge = lambda text: bool(expression.fullmatch(text))  # noqa: E731
    else:
        try:
            validator = jsonschema_rs.validator_for(content)
        except jsonschema_rs.ValidationError as error:
            return [f"no schema: {error.message}"]
        judge = lambda text: validator.is_valid(json.loads(text))  # noqa: E731
    found = []
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        for one in walks(machine, WALKS, draw):
            text = one.decode()
            other = changed(text, draw) if kind == "regex" else text
            if not judge(text) or machine.accepts(other.encode()) != judge(other):
                found.append(text)
    except _TooLong:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def memory(name: str) -> float:
    """A field of the process's status, in megabytes."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(rf"{name}:\s+(\d+)", status)[0]) / 1024


def case(number: int) -> dict[str, Any]:
    """Compiles the case of a number, which is the seed of its parts."""
    draw = random.Random(number)
    kind, form = draw.choice(KINDS), draw.choice(("regex", "json_schema"))
    content = pattern(draw, kind) if form == "regex" else schema(draw, kind)
    row = {"case": number, "kind": kind, "form": form, "outcome": "accepted", "wrong": []}
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the peak
    before, start = memory("VmRSS"), time.process_time()
    machine = None
    try:
        found, _ = compiled({form: content})
        machine = found.machines[0][1]
    except UnmaskError as error:
        row["outcome"] = "over budget" if "more than" in str(error) else "refused"
        row["reason"] = str(error)[:90]
    except Exception as error:
        row["outcome"] = f"failed: {type(error).__name__}: {error}"[:200]
    row["seconds"] = round(time.process_time() - start, 3)
    row["megabytes"] = round(memory("VmHWM") - before, 1)
    if machine is not None:
        row["states"] = len(machine.table)
        row["wrong"] = wrong_texts(form, content, machine, draw)
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of all rows."""
    ordinary = [row for row in rows if row["kind"] == "ordinary"]
    return {
        "cases": len(rows),
        "outcomes": dict(Counter(row["outcome"].partition(":")[0] for row in rows)),
        "ordinary": dict(Counter(f"{row['form']} {row['outcome']}" for row in ordinary)),
        "most_seconds": max(row["seconds"] for row in rows),
        "most_megabytes": max(row["megabytes"] for row in rows),
        "over_budget": sum(
            row["seconds"] > SLACK * SECONDS or row["megabytes"] > SLACK * MEGABYTES for row in rows
        ),
        "wrong": sum(bool(row["wrong"]) for row in rows),
    }


# Attacks


def _doubling(levels: int, **others: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for i in range(levels):
        ref = {"$ref": f"#/$defs/a{i + 1}"}
        parts[f"a{i}"] = {"properties": {"x": ref, "y": ref}} if others else {"anyOf": [ref, ref]}
    return {"$defs": {**parts, f"a{levels}": {"type": "null"}}, "$ref": "#/$defs/a0"}


def _arrays(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {"const": 1}
    for _ in range(levels):
        found = {"type": "array", "items": found}
    return found


def _many(size: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"property{i}": {"type": "string"} for i in range(size)},
    }


def _normalizers() -> None:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    with tempfile.TemporaryDirectory() as folder:
        found = load_tokenizer(Path(unmask.__file__).parent / "shipped" / "stories" / "tokenizer")
        found.save(folder)
        file = Path(folder) / "tokenizer.json"
        content = json.loads(file.read_text(encoding="utf-8"))
        content["normalizer"] = {"type": "Sequence", "normalizers": [step] * 9}
        file.write_text(json.dumps(content), encoding="utf-8")
        load_tokenizer(folder).encode("a cat")


ATTACKS: dict[str, Callable[[], Any]] = {
    "1. 20 levels of anyOf": lambda: compiled({"json_schema": _doubling(20)}),
    "1. 60 levels of anyOf": lambda: compiled({"json_schema": _doubling(60)}),
    "1. 20 levels of two members": lambda: compiled({"json_schema": _doubling(20, members=True)}),
    "2. 200 properties": lambda: compiled({"json_schema": _many(200)}),
    "2. 2000 properties": lambda: compiled({"json_schema": _many(2000)}),
    "3. 4000 letters": lambda: compiled({"regex": "A" * 4000}),
    "3. 200000 letters": lambda: compiled({"regex": "A" * 200_000}),
    "3. (?:a?){4000}": lambda: compiled({"regex": "(?:a?){4000}"}),
    "4. 300 nested arrays": lambda: compiled({"json_schema": _arrays(300)}),
    "5. nine normalizers": _normalizers,
}


def attack(name: str) -> dict[str, Any]:
    """Runs an attack in this process."""
    vocabulary()
    before, start, outcome = memory("VmHWM"), time.process_time(), "accepted"
    try:
        ATTACKS[name]()
    except UnmaskError as error:
        outcome = f"refused: {error}"[:160]
    except (Exception, RecursionError, MemoryError) as error:
        outcome = f"failed: {type(error).__name__}: {error}"[:160]
    seconds = round(time.process_time() - start, 2)
    return {
        "attack": name,
        "outcome": outcome,
        "seconds": seconds,
        "megabytes": round(memory("VmHWM") - before, 1),
    }


def attacks() -> Iterator[dict[str, Any]]:
    """Runs each attack in a process of its own, with limits."""
    for name in ATTACKS:
        command = [
            sys.executable,
            str(Path(__file__).parent),
            "constraint_budget",
            "--attack",
            name,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_limited)
        output, _ = process.communicate()
        limited = {"attack": name, "outcome": f"ended after {LIMIT_SECONDS} processor seconds or {LIMIT_BYTES >> 30} GiB"}  # fmt: skip
        yield json.loads(output) if output.strip() else limited


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))


def main() -> None:
    parser = script_parser(__doc__, "out")
    add = parser.add_argument
    add("--cases", type=int, default=200, help="patterns and schemas")
    add("--first", type=int, default=0, help="number of the first case")
    add("--attacks", action="store_true", help="run the known attacks instead")
    add("--attack", choices=ATTACKS, help="run one attack in this process")
    args = parser.parse_args()
    if args.attack:
        print(json.dumps(attack(args.attack)))
        return
    vocabulary()
    rows = []
    made = attacks() if args.attacks else map(case, range(args.first, args.first + args.cases))
    for row in made:
        rows.append(row)
        line = json.dumps(row)
        if args.out:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        if args.attacks or row["outcome"].startswith("failed") or row["wrong"]:
            print(line, flush=True)
    if not args.attacks:
        print(json.dumps(summary(rows)))


if __name__ == "__main__":
    main()
