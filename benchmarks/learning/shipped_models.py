"""Trains the models that ship with the package, in commands of ten minutes each on one large GPU.

    python benchmarks/learning shipped_models --out OUT --stages wiki-autoregressive stories-autoregressive wiki
    python benchmarks/learning shipped_models --out OUT --stages write stories --later 570
    python benchmarks/learning shipped_models --out OUT --stages stories   # continues
    python benchmarks/learning shipped_models --out OUT --stages write stories --start MODEL   # trains MODEL further
    python benchmarks/learning shipped_models --join OUT --to models       # puts the parts of each model together
    python benchmarks/learning shipped_models --average A B --to models/stories   # the mean of two models
    python benchmarks/learning shipped_models --tiny --runs RUNS --out OUT # all stages with tiny networks

`stories` has little text: 3.4M tokens. A masked diffusion model that repeats them a hundred times overfits. An
autoregressive model learns more from few epochs, so it is the teacher here (sequence-level distillation, arXiv 1606.07947):

1. `wiki-autoregressive` and `stories-autoregressive` are the recipes with these names. The second one becomes `stories-ar`.
2. `wiki` is the recipe with this name.
3. `write`: the teacher writes stories at temperature 1 without truncation, in batches of ROWS rows.
   A story that has no end within 512 tokens is left out. The teacher is `stories-ar`, of this run or of the package.
4. `stories` starts from `wiki`, of this run or of the package, and trains on a mixture of the real and the written stories, and
   of Wikipedia with `--wiki SHARE`. Wikipedia delays overfitting and costs steps: run 4 of docs/reference/models.md was worse with it.

Two percent of the real stories are held out. No stage trains on them, and the bounds of all stories models are of them.

The folder `corpora` holds wikipedia.train.txt.xz, wikipedia.valid.txt.xz and tinystories.train.txt.xz. The tokenizer is that of
the shipped models. Every stage leaves a file NAME.done in RUNS/chain and is skipped by later commands. A stage that reached the end of
its time saves a checkpoint, exports its best weights, and continues in the next command. The number of steps of a stage follows
from benchmarks.room import again
from the time that is left, from the seconds of later commands and from the speed of the stages before it. Stages run one after another:
two of them at the same time each took about four times as long on one GPU.

OUT has log.txt, results.jsonl and each model as the parts NAME.tar.0, NAME.tar.1, … of at most 15 MiB.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import tarfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOKENIZER = HERE.parent / "src" / "unmask" / "shipped" / "wiki" / "tokenizer"
END = "<|endoftext|>"
HOLDOUT = 0.02  # of the stories, as in the recipe
PART = 15 << 20  # bytes of a part of an exported model
CLOSING = 20  # seconds at the end of a command in which stages save and export
START = 40  # seconds from the start of a process to its first step
SPEED = 28.0  # steps per second of a stage on an H200, if no stage ran before
STAGES = ("wiki-autoregressive", "stories-autoregressive", "wiki", "write", "stories")
EXPORTED = {"stories-autoregressive": "stories-ar", "wiki": "wiki", "stories": "stories"}
ROWS, LENGTH = 4096, 512  # stories of a batch, and tokens of a row
CHECK = 32  # tokens between two checks for EOS

SETTINGS: dict[str, dict[str, Any]] = {
    "wiki-autoregressive": {"training.steps": 3000, "training.validate_every": 1500},
    "stories-autoregressive": {
        "training.steps": 800,
        "training.validate_every": 50,
        "training.patience": 5,
        "backbone.dropout": 0.2,
    },
    "wiki": {"training.steps": 5500, "training.validate_every": 2000},
    "stories": {
        "training.steps": 30_000,
        "training.validate_every": 3000,
        "training.weight_decay": 0.03,  # a matrix forgets a gradient after 3,300 steps
        "training.ema": 0.9995,
        "backbone.dropout": 0.05,
    },
}
TINY: dict[str, Any] = {
    "backbone.width": 32,
    "backbone.depth": 2,
    "backbone.heads": 2,
    "training.batch": 8,
    "training.compile": False,
    "training.precision": "fp32",
    "training.warmup": 5,
    "training.validate_every": 20,
    "training.save_every": 20,
    "training.log_every": 5,
    "data.length": 64,
    "data.workers": 1,
}


class Chain:
    """The folders of all stages, and what they share."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.runs = args, Path(args.runs)
        self.folder = self.runs / "chain"
        self.out = Path(args.out) if args.out else self.folder / "out"
        self.corpora = self.folder / "corpora" if args.tiny else Path(args.corpora)
        for folder in (self.folder, self.out):
            folder.mkdir(parents=True, exist_ok=True)
        self.real, self.held = (self.folder / f"stories.{part}.txt" for part in ("train", "valid"))
        self.written = self.folder / "written.txt"
        self.write_seconds = 1.0 if args.tiny else args.write

    def record(self, **facts: Any) -> None:
        """Prints a result and appends it to results.jsonl in both folders."""
        line = json.dumps(facts)
        print(line, flush=True)
        for folder in (self.folder, self.out):
            with (folder / "results.jsonl").open("a") as file:
                file.write(line + "\n")

    def done(self, stage: str) -> Path:
        """The file that a finished stage leaves."""
        return self.folder / f"{stage}.done"

    def prepare(self) -> None:
        """Writes the held-out stories and the others as two text files, by the split of the recipe."""
        from unmask.data.corpora import fields_of
        from unmask.data.data_config import DataConfig
        from unmask.data.sources.open_source import open_corpus

        if self.args.tiny:
            _tiny_corpora(self.corpora)
        if self.held.exists():
            return
        source = str(self.corpora / "tinystories.train.txt.xz")
        corpus = open_corpus(source, fields_of(DataConfig(train=source, separator=END)))
        for path, held in ((self.real, False), (self.held, True)):
            text = f"\n{END}\n".join(corpus.part(HOLDOUT, held)) + "\n"
            temporary = path.with_suffix(".part")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)

    # training

    def overrides(self, stage: str) -> dict[str, Any]:
        """The settings of a stage that differ from its recipe."""
        data: dict[str, Any] = {"data.cache": str(self.folder / "rows"), "data.workers": 8}
        if stage.startswith("wiki"):
            for part in ("train", "valid"):
                data[f"data.{part}"] = str(self.corpora / f"wikipedia.{part}.txt.xz")
        elif stage != "stories":
            data["data.train"] = str(self.corpora / "tinystories.train.txt.xz")
            data["data.holdout"] = HOLDOUT
        else:
            wiki, share = self.args.wiki, self.args.real if self.written.exists() else 1.0
            portions = [(self.real, share * (1 - wiki)), (self.written, (1 - share) * (1 - wiki))]
            portions += [(self.corpora / "wikipedia.train.txt.xz", wiki)]
            portions = [(path, round(w, 4)) for path, w in portions if w]
            data["data.train"] = [{"text": str(path), "weight": w} for path, w in portions]
            data["data.valid"] = str(self.held)
        if not stage.startswith("wiki"):
            start = self.args.start if stage == "stories" else ""
            data["init_from"] = start or self.trained(stage.replace("stories", "wiki"))
        settings = {**data, "training.save_every": 1500, **SETTINGS[stage]}
        given = dict(one.split("=", 1) for one in self.args.set)
        settings |= TINY if self.args.tiny else {}
        return settings | {name: json.loads(value) for name, value in given.items()}

    def steps(self, stage: str) -> int:
        """The steps of a stage: those of its settings, or as many as fit. Chosen once."""
        file = self.folder / f"{stage}.steps"
        if file.exists():
            return int(file.read_text())
        wanted = 60 if self.args.tiny else int(SETTINGS[stage]["training.steps"])
        speed = 0.95 * (max(self.speed(name) for name in STAGES) or SPEED)
        left = self.args.until - time.time() - START + self.args.later
        fitting = wanted if self.args.tiny else int(speed * left)
        chosen = max(1 if self.args.tiny else 500, min(wanted, fitting))
        if self.args.steps:
            chosen = self.args.steps
        print(f"{chosen} steps: {left:.0f} s are left at {speed:.1f} steps/s", flush=True)
        file.write_text(str(chosen))
        return chosen

    def speed(self, stage: str) -> float:
        """Steps per second of a stage: the 90th percentile over its log lines; 0 if unknown."""
        clock = self.runs / stage / "clock.jsonl"
        if not clock.exists():
            return 0.0
        lines = [json.loads(line) for line in clock.read_text().splitlines() if line]
        rates = sorted(
            (b["step"] - a["step"]) / max(b["seconds"] - a["seconds"], 1e-9)
            for a, b in pairwise(lines)
        )
        return rates[int(0.9 * len(rates))] if rates else 0.0

    def train(self, stage: str) -> None:
        """Trains the model of a stage, or continues it, and exports it."""
        import unmask
        from unmask.data.tokenizers.kinds import load_tokenizer
        from unmask.training.signals import Interrupted

        began, run, finished = time.time(), self.runs / stage, True
        settings = self.overrides(stage)
        tokenizer = load_tokenizer(TOKENIZER)
        settings["training.steps"] = steps = self.steps(stage)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ends training, but not the export after it
        try:
            model = unmask.train(
                stage,
                run,
                overrides=settings,
                say=_say,
                tokenizer=None if settings.get("init_from") else tokenizer,
            )
        except Interrupted as stop:
            _say(f"the time is over: {stop}")
            model, finished = unmask.load(run), False
        if model.tokenizer.fingerprint != tokenizer.fingerprint:
            raise SystemExit(f"{run} has another tokenizer than the shipped models")
        best = _best(run)
        self.record(
            stage=stage,
            finished=finished,
            steps=steps,
            seconds=round(time.time() - began, 1),
            steps_per_second=round(self.speed(stage), 2),
            best_step=best.get("step"),
            nats=best.get("nats"),
            bits_per_byte=best.get("bits_per_byte"),
        )
        if stage in EXPORTED:
            self.export(model, EXPORTED[stage])
        if finished:
            self.done(stage).write_text(json.dumps(best))

    def export(self, model: Any, name: str) -> None:
        """Saves a model and copies it to the output folder in parts."""
        precision = "int8" if name in self.args.int8 else "bf16"
        folder, archive = self.folder / "models" / name, self.folder / f"{name}.tar"
        model.save(folder, precision=precision)
        with tarfile.open(archive, "w") as tar:
            tar.add(folder, arcname=name)
        content = archive.read_bytes()
        for part in self.out.glob(f"{name}.tar.*"):  # an earlier export may have more parts
            part.unlink()
        for number, start in enumerate(range(0, len(content), PART)):
            part = self.out / f"{name}.tar.{number}"
            part.write_bytes(content[start : start + PART])
            print(f"{part.name}: {part.stat().st_size:,} bytes, {precision}", flush=True)

    # stories of the teacher

    def trained(self, stage: str) -> str:
        """The folder of a finished stage, or the name of the shipped model."""
        if self.done(stage).exists():
            return str(self.runs / stage)
        if (self.runs / stage).exists() or stage not in EXPORTED:
            raise SystemExit(f"the stage {stage} is not finished: run it first")
        return EXPORTED[stage]

    def write(self) -> None:
        """The teacher writes stories until the time is over; then they are tokenised for `stories`."""
        import unmask

        teacher, began = self.trained("stories-autoregressive"), time.time()
        _say(f"teacher: {teacher}")
        model = unmask.load(teacher, precision="fp32" if self.args.tiny else "auto")
        part = self.folder / "written.part"
        size = _cut(part)  # a killed command leaves the batches that it has written
        rows, length = (32, 64) if self.args.tiny else (self.args.rows, LENGTH)
        writer = StoryWriter(model, rows, length, seed=size)
        until = min(began + self.write_seconds, self.args.until)
        stories = tokens = batches = kept = 0
        longest, waiting, first = 0.0, None, time.time()
        with part.open("a", encoding="utf-8") as file, ThreadPoolExecutor(1) as pool:
            while batches == 0 or time.time() + longest < until:
                start = time.time()
                found = writer.batch()
                # the first batch also chooses kernels and captures graphs
                longest = time.time() - start if batches < 2 else max(longest, time.time() - start)
                batches += 1
                stories += len(found)
                tokens += sum(map(len, found))
                if waiting is not None:
                    kept += waiting.result()
                waiting = pool.submit(_append, file, model.tokenizer, found)
                rate = tokens / (time.time() - first)
                _say(
                    f"batch {batches}: {len(found)} of {rows} stories ended; {tokens:,} tokens, {rate:,.0f}/s"
                )
            assert isinstance(waiting, Future)
            kept += waiting.result()
        part.replace(self.written)
        self.record(
            stage="write",
            teacher=teacher,
            stories=stories,
            kept=kept,
            tokens=tokens,
            batches=batches,
            seconds=round(time.time() - began, 1),
            tokens_per_second=round(tokens / (time.time() - first)),
        )
        with self.written.open(encoding="utf-8") as file:
            _say("the first stories:\n" + file.read(1500))
        self.tokenise()
        self.done("write").write_text(teacher)

    def tokenise(self) -> None:
        """Fills the row cache of `stories`."""
        from unmask.config.run_config import load_recipe, resolve
        from unmask.data.load import load_data
        from unmask.data.tokenizers.kinds import load_tokenizer

        began = time.time()
        data = resolve(load_recipe("stories"), self.overrides("stories")).data
        found = load_data(data, load_tokenizer(TOKENIZER))
        self.record(
            stage="tokenise",
            rows=len(found.train),
            tokens=found.train.tokens,
            held_out_rows=len(found.valid),
            seconds=round(time.time() - began, 1),
        )

    # processes

    def run(self) -> None:
        """Runs the stages one after another, each in its own process."""
        self.prepare()
        chosen = set(self.args.stages)
        todo = [stage for stage in STAGES if stage in chosen and not self.done(stage).exists()]
        for stage in todo:
            if time.time() + START > self.args.until:
                break
            child = Child(self, stage, ["--stage", stage])
            self.wait(child)
            if child.process.returncode:
                break
        left = [stage for stage in todo if not self.done(stage).exists()]
        print(f"not finished: {', '.join(left) or 'none'}", flush=True)

    def wait(self, child: "Child") -> None:
        """Waits for a process. At the end of the time it gets SIGTERM, and SIGKILL 15 s later."""
        for seconds, number in (
            (self.args.until - time.time(), signal.SIGTERM),
            (15, signal.SIGKILL),
            (5, None),
        ):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, seconds))
                break
            if number:
                child.process.send_signal(number)
        child.close()


class Child:
    """A process of this script, whose lines go to the log with its name and the time."""

    lock = threading.Lock()

    def __init__(self, chain: Chain, name: str, options: list[str]) -> None:
        self.chain, self.name, self.began = chain, name, time.time()
        command = [*again(__file__), *options, *chain.args.common]
        cache = chain.folder.resolve() / "compiled"
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "PYTHONUTF8": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "4",
        }
        self.log("starts")
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log(line.rstrip("\n"))

    def log(self, line: str) -> None:
        """Prints a line and appends it to the log in both folders."""
        seconds = time.time() - self.chain.args.began
        line = f"[{seconds:6.1f} s] {self.name}: {line}"
        with Child.lock:
            print(line, flush=True)
            for folder in (self.chain.folder, self.chain.out):
                with (folder / "log.txt").open("a", encoding="utf-8") as file:
                    file.write(line + "\n")

    def close(self) -> None:
        self.reader.join(5)
        self.log(f"ends with {self.process.poll()} after {time.time() - self.began:.1f} s")


class StoryWriter:
    """Samples whole texts of an autoregressive model, a large batch at a time.

    All rows of a batch are at the same column. Rows whose text has ended leave the batch, so that
    a step costs as much as the rows that are left. A GPU runs a step as a CUDA graph.
    """

    def __init__(
        self, model: Any, rows: int, length: int, seed: int = 0, greedy: bool = False
    ) -> None:
        import torch

        from unmask.backbones.layers.state import KVState
        from unmask.runtime.cuda_graphs import CudaGraph

        self.method, self.vocabulary = model.method, model.tokenizer.vocabulary
        self.rows, self.length, self.greedy = rows, length, greedy
        self.device = self.method.device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.state = KVState(length)
        self.keys = torch.arange(length, device=self.device)
        self.graph = CudaGraph(self._next)

    def batch(self) -> list[Any]:
        """The ids of the texts of one batch that have ended, without BOS and EOS."""
        import torch

        with torch.inference_mode(), self.method.arithmetic():
            return self._batch()

    def _batch(self) -> list[Any]:
        import torch

        v, found = self.vocabulary, []
        z = torch.full((self.rows, self.length), v.bos_id, device=self.device)
        start = torch.tensor([[v.mask_id, v.bos_id]], device=self.device).repeat(self.rows, 1)
        self.state.crop(0)
        h = self.method.backbone.features(start, state=self.state)
        z[:, 1] = self._chosen(self.method.log_next(h[:, -1]), self._uniforms(self.rows))
        for column in range(2, self.length):
            span = min(-(-(column + 1) // 64) * 64, self.length)
            inputs = [
                z[:, column - 1 : column],
                self.keys[column : column + 1],
                self.keys[:span],
                self._uniforms(len(z)),
            ]
            sizes = [len(z), 1, span, len(z)]
            z[:, column] = self.graph(inputs, sizes, len(z))
            if column % CHECK == 0 or column == self.length - 1:
                z = self._without_ended(z, column, found)
                if not len(z):
                    break
        return found

    def _next(self, tokens: Any, position: Any, keys: Any, uniforms: Any) -> Any:
        """The next token of each row: one step of the network, and a draw."""
        from unmask.backbones.layers.state import GraphKVState, KVState

        held = KVState(self.length)
        held._layers = [(k[: len(tokens)], v[: len(tokens)]) for k, v in self.state._layers]
        state = GraphKVState(held, position, len(keys))
        h = self.method.backbone.features(tokens, positions=position, state=state)
        return self._chosen(self.method.log_next(h[:, 0]), uniforms)

    def _chosen(self, log_next: Any, uniforms: Any) -> Any:
        from unmask.diffusion.categorical import draw

        return log_next.argmax(-1) if self.greedy else draw(log_next.float(), uniforms).long()

    def _uniforms(self, rows: int) -> Any:
        import torch

        return torch.rand(rows, generator=self.generator, device=self.device, dtype=torch.float64)

    def _without_ended(self, z: Any, column: int, found: list[Any]) -> Any:
        """The rows that go on, with some ended ones as padding to one of few sizes; keeps ended texts."""
        import torch

        from unmask.runtime.cuda_graphs import rounded

        ends = z[:, 1 : column + 1] == self.vocabulary.eos_id
        # a row of padding has a MASK in place of BOS
        real = z[:, 0] == self.vocabulary.bos_id
        ended = ends.any(1) & real
        texts = z[ended, 1 : column + 1].cpu().numpy()
        for text, end in zip(texts, ends[ended].int().argmax(1).tolist(), strict=True):
            found.append(text[:end])
        z[ended, 0] = self.vocabulary.mask_id
        going, gone = ((~ended & real).nonzero()[:, 0], (ended | ~real).nonzero()[:, 0])
        if not len(going):
            return z[:0]
        size = min(rounded(len(going)), len(z))
        if size == len(z):
            return z
        kept = torch.cat([going, gone[: size - len(going)]])
        for buffers in self.state._layers:
            for buffer in buffers:
                buffer[:size, :, : column + 1] = buffer[kept, :, : column + 1]
        return z[kept]


def _append(file: Any, tokenizer: Any, found: list[Any]) -> int:
    """Decodes texts on all cores and appends them to a file; returns their number.

    Texts with special ids or incomplete characters are left out.
    """
    v = tokenizer.vocabulary
    special = {v.mask_id, v.bos_id, v.pad_id, v.eos_id}
    plain = [ids for text in found if not special.intersection(ids := text.tolist())]
    texts = tokenizer.backend().decode_batch(plain)
    good = [text for text in texts if text.strip() and END not in text and "\ufffd" not in text]
    file.write("".join(f"{text}\n{END}\n" for text in good))
    file.flush()
    return len(good)


def _cut(path: Path) -> int:
    """Cuts a file after its last whole story; returns its size."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    size = content.rfind(f"{END}\n".encode())
    size = size + len(END) + 1 if size >= 0 else 0
    os.truncate(path, size)
    return size


def _best(run: Path) -> dict[str, Any]:
    """The best validation of a run; empty if there is none."""
    file = run / "checkpoints" / "best" / "state.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _say(line: str) -> None:
    print(line, flush=True)


def _tiny_corpora(folder: Path) -> None:
    """Writes small corpora of random sentences."""
    import lzma
    import random

    if folder.exists():
        return
    folder.mkdir(parents=True)
    source = random.Random(0)
    for name, count in (
        ("wikipedia.train", 400),
        ("wikipedia.valid", 40),
        ("tinystories.train", 400),
    ):
        texts = (
            f"The {source.choice(('cat', 'dog', 'owl'))} "
            + f"saw a {source.choice(('red', 'big', 'new'))} ball.\n" * source.randint(1, 3)
            for _ in range(count)
        )
        (folder / f"{name}.txt.xz").write_bytes(lzma.compress(f"{END}\n".join(texts).encode()))


def join(source: Path, target: Path) -> None:
    """Puts the parts of every model together."""
    for first in sorted(source.glob("*.tar.0")):
        name, parts = first.name.removesuffix(".tar.0"), []
        while (part := source / f"{name}.tar.{len(parts)}").exists():
            parts.append(part.read_bytes())
        target.mkdir(parents=True, exist_ok=True)
        archive = target / f"{name}.tar"
        archive.write_bytes(b"".join(parts))
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")
        archive.unlink()
        print(f"{target / name}: {len(parts)} parts")


def average(first: str, second: str, target: Path) -> None:
    """Saves the mean of the weights of two models with the settings of the second one, in int8."""
    import torch

    import unmask

    model, other = unmask.load(second), dict(unmask.load(first).method.named_parameters())
    with torch.no_grad():
        for name, weight in model.method.named_parameters():
            weight.lerp_(other[name], 0.5)
    model.save(target, precision="int8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="stages to run")
    parser.add_argument("--seconds", type=float, default=575, help="seconds of this command")
    parser.add_argument("--write", type=float, default=200, help="seconds of the stage write")
    parser.add_argument("--rows", type=int, default=ROWS, help="stories of a batch of write")
    parser.add_argument("--real", type=float, default=0.5, help="share of real ones of the stories")
    parser.add_argument("--wiki", type=float, default=0, help="share of Wikipedia in rows")
    parser.add_argument("--start", default="", help="model that stories starts from, not wiki")
    parser.add_argument("--set", nargs="*", default=[], help="NAME=VALUE: settings of all stages")
    parser.add_argument("--steps", type=int, help="steps of every training stage")
    parser.add_argument("--runs", default="runs", help="folder of the runs")
    parser.add_argument("--corpora", default="corpora", help="folder of the text")
    parser.add_argument("--out", default="", help="folder of the log, the results and the models")
    parser.add_argument(
        "--int8", nargs="*", default=["wiki", "stories-ar"], help="models to export in int8"
    )
    parser.add_argument(
        "--later", type=float, default=0, help="seconds of later commands that the stages may use"
    )
    parser.add_argument("--tiny", action="store_true", help="tiny networks, to try the script")
    parser.add_argument("--join", help="folder of the parts of exported models")
    parser.add_argument("--average", nargs=2, metavar="MODEL", help="two runs of one network")
    parser.add_argument("--to", default="models", help="folder of the joined or averaged models")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    for name in ("--began", "--until"):
        parser.add_argument(name, type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.join:
        join(Path(args.join), Path(args.to))
        return
    if args.average:
        average(*args.average, Path(args.to))
        return
    args.began = args.began or time.time()
    args.until = args.until or args.began + args.seconds - CLOSING
    chain = Chain(args)
    if args.stage == "write":
        chain.write()
    elif args.stage:
        chain.train(args.stage)
    else:
        names = (
            "write",
            "rows",
            "real",
            "wiki",
            "start",
            "steps",
            "later",
            "runs",
            "corpora",
            "out",
            "began",
            "until",
        )
        args.common = ["--tiny"] if args.tiny else []
        args.common += [f"--{n}={value}" for n in names if (value := getattr(args, n)) is not None]
        args.common += ["--int8", *args.int8, "--set", *args.set]
        chain.run()
