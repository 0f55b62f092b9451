"""Trains the models of text that ship with the package, on one large GPU.

    python benchmarks/learning shipped_models --out OUT                     # all stages; the same command continues
    python benchmarks/learning shipped_models --out OUT --stages write stories --start MODEL   # trains MODEL further
    python benchmarks/learning shipped_models --average A B --to models/stories   # the mean of two models
    python benchmarks/learning shipped_models --tiny --runs RUNS --out OUT  # all stages with tiny networks

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
the shipped models. A finished stage leaves a file NAME.done in RUNS/chain, and later commands skip it. OUT has results.jsonl and
the exported models. Stages run one after another: two of them at the same time each took about four times as long on one GPU.
"""

import argparse
import json
import lzma
import os
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import unmask
from benchmarks.room import script_parser
from benchmarks.rows import Report
from unmask.backbones.layers.state import GraphKVState, KVState
from unmask.config.run_config import load_recipe, resolve
from unmask.data.corpora import fields_of
from unmask.data.data_config import DataConfig
from unmask.data.load import load_data
from unmask.data.sources.open_source import open_corpus
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.diffusion.categorical import draw
from unmask.runtime.cuda_graphs import CudaGraph, rounded

TOKENIZER = Path(__file__).parents[2] / "src" / "unmask" / "shipped" / "wiki" / "tokenizer"
END = "<|endoftext|>"
HOLDOUT = 0.02  # of the stories, as in the recipe
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
    "training.steps": 60,
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
        self.folder.mkdir(parents=True, exist_ok=True)
        self.report = Report(self.out / "results.jsonl")
        self.real, self.held = (self.folder / f"stories.{part}.txt" for part in ("train", "valid"))
        self.written = self.folder / "written.txt"

    def done(self, stage: str) -> Path:
        """The file that a finished stage leaves."""
        return self.folder / f"{stage}.done"

    def run(self) -> None:
        """Runs the chosen stages that are not finished, one after another."""
        self.prepare()
        for stage in STAGES:
            if stage in self.args.stages and not self.done(stage).exists():
                print(f"{stage}: starts", flush=True)
                self.write() if stage == "write" else self.train(stage)

    def prepare(self) -> None:
        """Writes the held-out stories and the others as two text files, by the split of the recipe."""
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

    def train(self, stage: str) -> None:
        """Trains the model of a stage, or continues it, and exports it."""
        began, run, settings = time.time(), self.runs / stage, self.overrides(stage)
        tokenizer = load_tokenizer(TOKENIZER)
        if self.args.steps:
            settings["training.steps"] = self.args.steps
        own = None if settings.get("init_from") else tokenizer
        model = unmask.train(stage, run, overrides=settings, say=_say, tokenizer=own)
        if model.tokenizer.fingerprint != tokenizer.fingerprint:
            raise SystemExit(f"{run} has another tokenizer than the shipped models")
        file = run / "checkpoints" / "best" / "state.json"
        best = json.loads(file.read_text()) if file.exists() else {}
        figures = {name: best.get(name) for name in ("step", "nats", "bits_per_byte")}
        steps, seconds = settings["training.steps"], round(time.time() - began, 1)
        self.report.write({"row": stage, "steps": steps, "seconds": seconds, **figures})
        if name := EXPORTED.get(stage):
            model.save(self.out / name, precision="int8" if name in self.args.int8 else "bf16")
        self.done(stage).write_text(json.dumps(best))

    def trained(self, stage: str) -> str:
        """The folder of a finished stage, or the name of the shipped model."""
        if self.done(stage).exists():
            return str(self.runs / stage)
        if (self.runs / stage).exists() or stage not in EXPORTED:
            raise SystemExit(f"the stage {stage} is not finished: run it first")
        return EXPORTED[stage]

    def write(self) -> None:
        """The teacher writes stories until the time is over; then they are tokenised for `stories`."""
        teacher, began = self.trained("stories-autoregressive"), time.time()
        _say(f"teacher: {teacher}")
        model = unmask.load(teacher, precision="fp32" if self.args.tiny else "auto")
        part = self.folder / "written.part"
        size = _cut(part)  # a killed command leaves the batches that it has written
        rows, length = (32, 64) if self.args.tiny else (self.args.rows, LENGTH)
        writer = StoryWriter(model, rows, length, seed=size)
        until = began + (1.0 if self.args.tiny else self.args.write)
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
        self.report.write(
            {
                "row": "write",
                "teacher": teacher,
                "stories": stories,
                "kept": kept,
                "tokens": tokens,
                "batches": batches,
                "seconds": round(time.time() - began, 1),
                "tokens_per_second": round(tokens / (time.time() - first)),
            }
        )
        with self.written.open(encoding="utf-8") as file:
            _say("the first stories:\n" + file.read(1500))
        self.tokenise()
        self.done("write").write_text(teacher)

    def tokenise(self) -> None:
        """Fills the row cache of `stories`."""
        began = time.time()
        data = resolve(load_recipe("stories"), self.overrides("stories")).data
        found = load_data(data, load_tokenizer(TOKENIZER))
        self.report.write(
            {
                "row": "tokenise",
                "rows": len(found.train),
                "tokens": found.train.tokens,
                "held_out_rows": len(found.valid),
                "seconds": round(time.time() - began, 1),
            }
        )


class StoryWriter:
    """Samples whole texts of an autoregressive model, a large batch at a time.

    All rows of a batch are at the same column. Rows whose text has ended leave the batch, so that
    a step costs as much as the rows that are left. A GPU runs a step as a CUDA graph.
    """

    def __init__(
        self, model: Any, rows: int, length: int, seed: int = 0, greedy: bool = False
    ) -> None:
        self.method, self.vocabulary = model.method, model.tokenizer.vocabulary
        self.rows, self.length, self.greedy = rows, length, greedy
        self.device = self.method.device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.state = KVState(length)
        self.keys = torch.arange(length, device=self.device)
        self.graph = CudaGraph(self._next)

    def batch(self) -> list[Any]:
        """The ids of the texts of one batch that have ended, without BOS and EOS."""
        with torch.inference_mode(), self.method.arithmetic():
            return self._batch()

    def _batch(self) -> list[Any]:
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
        held = KVState(self.length)
        held._layers = [(k[: len(tokens)], v[: len(tokens)]) for k, v in self.state._layers]
        state = GraphKVState(held, position, len(keys))
        h = self.method.backbone.features(tokens, positions=position, state=state)
        return self._chosen(self.method.log_next(h[:, 0]), uniforms)

    def _chosen(self, log_next: Any, uniforms: Any) -> Any:
        return log_next.argmax(-1) if self.greedy else draw(log_next.float(), uniforms).long()

    def _uniforms(self, rows: int) -> Any:
        return torch.rand(rows, generator=self.generator, device=self.device, dtype=torch.float64)

    def _without_ended(self, z: Any, column: int, found: list[Any]) -> Any:
        """The rows that go on, with some ended ones as padding to one of few sizes; keeps ended texts."""
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


def _say(line: str) -> None:
    print(line, flush=True)


def _tiny_corpora(folder: Path) -> None:
    """Writes small corpora of random sentences."""
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


def average(first: str, second: str, target: Path) -> None:
    """Saves the mean of the weights of two models with the settings of the second one, in int8."""
    model, other = unmask.load(second), dict(unmask.load(first).method.named_parameters())
    with torch.no_grad():
        for name, weight in model.method.named_parameters():
            weight.lerp_(other[name], 0.5)
    model.save(target, precision="int8")


def main() -> None:
    parser = script_parser(__doc__, "tiny")
    add = parser.add_argument
    add("--stages", nargs="+", choices=STAGES, default=STAGES, help="stages to run")
    add("--write", type=float, default=200, help="seconds of the stage write")
    add("--rows", type=int, default=ROWS, help="stories of a batch of write")
    add("--real", type=float, default=0.5, help="share of real ones of the stories")
    add("--wiki", type=float, default=0, help="share of Wikipedia in rows")
    add("--start", default="", help="model that stories starts from, not wiki")
    add("--set", nargs="*", default=[], help="NAME=VALUE: settings of all stages")
    add("--steps", type=int, help="steps of every training stage")
    add("--runs", default="runs", help="folder of the runs")
    add("--corpora", default="corpora", help="folder of the text")
    add("--out", default="", help="folder of the results and the models")
    add("--int8", nargs="*", default=["wiki", "stories-ar"], help="models to export in int8")
    add("--average", nargs=2, metavar="MODEL", help="two runs of one network")
    add("--to", default="models/mean", help="folder of the averaged model")
    args = parser.parse_args()
    if args.average:
        average(*args.average, Path(args.to))
    else:
        Chain(args).run()
