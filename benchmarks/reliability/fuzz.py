"""Fuzzes the package's loaders with hostile files from hypothesis: changed valid files, and random ones.

    python benchmarks/reliability fuzz --inputs 12500

Each file is given to one of the loaders: configs, checkpoints, runs, tokenizers, data, ratings. A loader may load it or refuse
it with a one-line error of the package. Anything else is a failure, and so is a file that takes more than a minute. The
input of a failure is saved. The script prints one JSON line for each loader. The inputs are the same each time.
"""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType

import pyarrow
import pyarrow.parquet
from hypothesis import HealthCheck, Phase, given, settings

import unmask
from benchmarks.reliability.hostile_files import Files, Seeds, hostile
from benchmarks.room import script_parser
from unmask.config.components import build_method
from unmask.config.run_config import dump_yaml, load_recipe, resolve
from unmask.data.data_config import DataConfig
from unmask.data.load import rows_from
from unmask.data.tokenizers.characters import ByteTokenizer
from unmask.data.tokenizers.kinds import build_tokenizer, load_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError
from unmask.extensions.ratings.comparisons import attention_checks, compare_texts
from unmask.extensions.ratings.rating_file import Choice, RatingFile
from unmask.extensions.ratings.rating_report import rating_report
from unmask.model import Model
from unmask.runs.inspect import inspect, status_of
from unmask.training.checkpoints import checkpoint
from unmask.training.logs.run_log import read_log
from unmask.training.train_state import TrainingState

SECONDS = 60  # most time for a file
MEMORY = 16 * 2**30  # bytes of address space for the process
CHOICES: tuple[Choice, ...] = (0, 1, 2)
TEXT = "The cat sat on the mat, naïve café 日本語 [MASK] 42.\n"

# Loaders, and valid files for each


def _read(folder: Path) -> Files:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _configs(_: Path) -> tuple[list[Files], Callable[[Path], object]]:
    names = ["demo", "demo-sedd", "demo-d3pm", "demo-autoregressive"]
    whole = [{"a.yaml": dump_yaml(resolve(load_recipe(name))).encode()} for name in names]
    mixed = (
        b"base: demo\ndata:\n  train:\n  - {text: a.txt, weight: 2}\n  - b.txt\nschedule: cosine\n"
    )
    anchors = b"x: &x [1, 2]\ndata: {train: *x}\n"
    return [*whole, {"a.yaml": mixed}, {"a.yaml": anchors}], lambda folder: resolve(
        load_recipe(str(folder / "a.yaml"))
    )


def _checkpoints(folder: Path) -> tuple[list[Files], Callable[[Path], object]]:
    shape = [("backbone.width", "8"), ("backbone.depth", "1"), ("backbone.heads", "2")]
    seeds = []
    for recipe, kind in (("demo", "bytes"), ("demo-d3pm", "characters"), ("demo-sedd", "bpe")):
        config = resolve(load_recipe(recipe), [*shape, ("data.tokenizer.kind", kind)])
        tokenizer = build_tokenizer(TokenizerConfig(kind, 270), [TEXT])
        method = build_method(config, tokenizer.vocabulary)
        Model(method, tokenizer, config).save(folder / recipe)
        seeds.append(_read(folder / recipe))
    return seeds, lambda folder: unmask.load(folder, device="cpu")


def _runs(folder: Path) -> tuple[list[Files], Callable[[Path], object]]:
    """Run folders: listed, checked, loaded, and read as resumed training reads them."""
    small = {
        "backbone.width": "8", "backbone.depth": "1", "backbone.heads": "2",
        "data.length": "8", "data.tokenizer.kind": "bytes", "data.cache": str(folder / "cache"),
        "training.steps": "4", "training.batch": "2", "training.validation_rows": "2",
        "training.save_every": "2", "training.validate_every": "2", "training.device": "cpu",
    }  # fmt: skip
    config = resolve(load_recipe("demo"), list(small.items()))
    unmask.train(config, folder / "run", say=lambda _: None)
    files = _read(folder / "run").items()
    seed = {name: content for name, content in files if not name.startswith(("model/", "loss"))}
    # there is no other checkpoint to fall back to, so a damaged one must be refused
    older = ("checkpoints/best/", "checkpoints/step-00000002/")
    bare = {name: content for name, content in seed.items() if not name.startswith(older)}
    fingerprint = json.loads(seed["checkpoints/step-00000004/state.json"])["fingerprint"]

    def load(run: Path) -> object:
        found = inspect(run), json.dumps(asdict(status_of(run)), default=str), read_log(run)
        newest = checkpoint.newest(run, print)
        if newest:
            content = json.loads(checkpoint.state_at(run, newest, print))
            TrainingState.from_dict(content["state"])
            checkpoint.agree(run, newest, fingerprint)
        return found, unmask.load(run, device="cpu")

    return [bare, seed], load


def _tokenizers(folder: Path) -> tuple[list[Files], Callable[[Path], object]]:
    for kind in ("bpe", "characters", "text8"):
        build_tokenizer(TokenizerConfig(kind, 300), [TEXT]).save(folder / kind)
    labelled = build_tokenizer(TokenizerConfig("bpe", 300), [TEXT]).with_labels(["a", "b"])
    labelled.save(folder / "labelled")
    seeds = [_read(folder / kind) for kind in ("bpe", "characters", "text8", "labelled")]
    whole = seeds[0]["tokenizer.json"]
    model = json.loads(whole)["model"]
    growing = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 9
    growth = json.loads(whole) | {"normalizer": {"type": "Sequence", "normalizers": growing}}
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    split = {
        "type": "Split",
        "pattern": {"Regex": r"\p{L}+|\s+(?!\S)|."},
        "behavior": "Isolated",
        "invert": False,
    }
    other = json.loads(whole) | {"pre_tokenizer": split, "normalizer": {"type": "NFKC"}}
    seeds += [
        {"tokenizer.json": whole, "tokenizer_config.json": b'{"bos_token": "a", "eos_token": "b"}'},
        {"tokenizer.json": json.dumps(other).encode()},
        {"tokenizer.json": json.dumps(growth).encode()},
        {"vocab.json": json.dumps(model["vocab"]).encode(), "merges.txt": merges.encode()},
        {
            "vocab.txt": "\n".join(
                ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s"]
            ).encode()
        },
    ]

    def load(folder: Path) -> object:
        tokenizer = load_tokenizer(folder)
        return tokenizer.decode(tokenizer.encode(TEXT)), tokenizer.pieces(), tokenizer.fingerprint

    return seeds, load


def _data(_: Path) -> tuple[list[Files], Callable[[Path], object]]:
    lines = "".join(json.dumps({"text": f"{i} {TEXT}", "label": i % 3}) + "\n" for i in range(30))
    table = "text,label\n" + "".join(f'"{i}, cat",{i % 3}\n' for i in range(30))
    columns = {"text": [f"{i} {TEXT}" for i in range(30)], "label": list(range(30))}
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), stream, row_group_size=10)
    plain = f"{TEXT}<|endoftext|>\n" * 20
    seeds = [
        {"a.txt": plain.encode()},
        {"a.txt.gz": gzip.compress(plain.encode(), mtime=0)},
        {"a.txt.xz": lzma.compress(plain.encode())},
        {"a.txt.bz2": bz2.compress(plain.encode())},
        {"a.jsonl": lines.encode()},
        {"a.jsonl.gz": gzip.compress(lines.encode(), mtime=0)},
        {"a.csv": table.encode()},
        {"a.tsv": table.replace(", ", " ").replace(",", "\t").encode()},
        {"a.parquet": stream.getvalue()},
    ]

    def load(folder: Path) -> object:
        (file,) = folder.iterdir()
        config = DataConfig(length=8, packing="split", cache=str(folder / "cache"), corrupt=0.5)
        rows = rows_from(str(file), ByteTokenizer(), config)
        return rows[range(len(rows))]

    return seeds, load


def _ratings(folder: Path) -> tuple[list[Files], Callable[[Path], object]]:
    """Files of ratings: read, with a vote of each choice, and reported."""
    comparisons = compare_texts({"a": ["Tom ran.", "x"], "b": ["Tom sat.", "y"]}, ["Tom", ""])
    seeds = []
    for count in (0, 1):
        checks = attention_checks(count)
        file = RatingFile.create(folder / f"{count}.jsonl", {"n": 2}, [*comparisons, *checks])
        for number, one in enumerate(file.comparisons):
            file.vote("Ann", one, CHOICES[number % 3], 1.5)
        seeds.append({"ratings.jsonl": file.path.read_bytes()})

    def load(folder: Path) -> object:
        file = RatingFile.read(folder / "ratings.jsonl")
        for choice in CHOICES:
            if shown := file.next("Bob"):
                file.vote("Bob", shown.id, choice)
        return rating_report([RatingFile.read(file.path)])

    return seeds, load


LOADERS = {
    "ratings": _ratings,
    "configs": _configs,
    "checkpoints": _checkpoints,
    "runs": _runs,
    "tokenizers": _tokenizers,
    "data": _data,
}


# Running


class _TooLong(BaseException):
    pass


def stop(_signal: int, _frame: FrameType | None) -> None:
    raise _TooLong


def outcome(load: Callable[[Path], object], files: Files, folder: Path) -> str:
    """`loaded`, `refused`, or the failure in words."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # loaders print the damage that they skip
            load(folder)
    except UnmaskError as error:
        return "refused" if "\n" not in str(error) else f"two lines: {error}"
    except _TooLong:
        return f"more than {SECONDS} seconds"
    except BaseException as error:  # a Rust panic is not an Exception
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return "loaded"


def fuzz(name: str, inputs: int, failures: Path) -> dict[str, object]:
    """Gives a loader `inputs` files and counts the outcomes."""
    counts: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        seeds, load = LOADERS[name](Path(work) / "seeds")

        def attempt(files: Files) -> None:
            folder = Path(work) / "input"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            found = outcome(load, files, folder)
            counts[found if found in ("loaded", "refused") else "failed"] += 1
            if found not in ("loaded", "refused") and found[:80] not in wrong:
                wrong[found[:80]] = found
                shutil.copytree(folder, failures / f"{name}-{len(wrong)}", dirs_exist_ok=True)

        run = settings(
            max_examples=inputs,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        run(given(hostile(Seeds(seeds)))(attempt))()
    seconds = round(time.perf_counter() - start, 1)
    row = {"loader": name, "inputs": counts.total(), "loaded": counts["loaded"]}
    return row | {
        "refused": counts["refused"],
        "failed": counts["failed"],
        "seconds": seconds,
        "wrong": list(wrong.values()),
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences standard error, because a Rust panic writes to it before it can be caught."""
    kept, silent = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(silent)


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--inputs", type=int, default=12_500, help="files for all loaders together")
    add("--only", nargs="*", default=list(LOADERS), choices=LOADERS)
    add("--failures", type=Path, default=Path("fuzz-failures"))
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))
    failed = 0
    for name in args.only:
        with _quiet():
            row = fuzz(name, args.inputs // len(args.only), args.failures)
        print(json.dumps(row), flush=True)
        failed += int(row["failed"])
    sys.exit(failed > 0)
