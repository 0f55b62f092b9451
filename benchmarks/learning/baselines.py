"""Tables 1 and 5 of the MDLM paper in small: every baseline with the same rows, tokenizer, trunk and tokens.

    python benchmarks/learning baselines --prepare DATA --text tinystories.train.txt.xz   # rows and tokenizer
    python benchmarks/learning baselines --data DATA --out OUT --plan                     # seconds of each row
    python benchmarks/learning baselines --data DATA --out OUT --seconds 500              # everything that is missing
    python benchmarks/learning baselines --out OUT --judge JUDGE                          # scores of the saved texts
    python benchmarks/learning baselines --out OUT --table --plot frontier.png --samples 10

Every result is a JSON line in OUT/results.jsonl, and every text one in OUT/texts.jsonl. The same command continues
after an interruption: finished results are not repeated, and a first seed whose weights are saved is not trained
again. The order is: learning rates and the first seed of all
rows, texts and the time of a training step with the device to themselves, then further seeds.

Each row tries the same factors on the learning rates, with a seed and held-out rows that the table does not use.
"""

import argparse
import json
import math
import multiprocessing
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

from benchmarks.learning.curve import Corpus, prepare
from benchmarks.learning.per_step import Measured
from benchmarks.machine import DEVICE, synchronize, wall_seconds
from benchmarks.pictures import picture
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.config.components import build_method
from unmask.config.run_config import RunConfig, resolve
from unmask.data.loader import Loader
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.errors import UnmaskError
from unmask.evaluation.judges.judge import Sample
from unmask.evaluation.judges.load_judge import causal_judge
from unmask.evaluation.metrics.text_quality import measure, visible
from unmask.likelihood.bound import perplexity_of
from unmask.likelihood.estimate import likelihood
from unmask.likelihood.measured_rows import token_counts
from unmask.methods.method import METHODS, Method
from unmask.model import Model
from unmask.runs.run_folder import count_parameters
from unmask.training.trainer import TrainingRun

FACTORS = (0.15, 0.3, 0.7, 1.5, 3.0)  # on both learning rates; every row tries all of them
LR, MUON_LR = 4e-3, 0.02
TUNING_SEED, FIRST_SEED = 101, 1
SHAPES = {"6x384": (6, 384, 6), "tiny": (1, 16, 2)}  # depth, width, heads
ROUNDS, TIMED, WARM = (
    3,
    25,
    10,
)  # of the time of a training step; each shape is a graph after two steps
TEXTS, JUDGED = "texts.jsonl", "judged.jsonl"
REAL = "real text"
BLOCK = 25  # tokens of a block of SSD-LM
TIME = {"backbone.time_conditioning": "true"}


class Row(NamedTuple):
    """A method with its settings. `ROWS` begins with those that matter or last most."""

    title: str
    settings: dict[str, str]
    samplers: tuple[str, ...] = ()  # of the frontier
    long: str = ""  # sampler of texts that are twice as long as a row: Table 5
    paper: str = ""  # perplexity in Table 1, LM1B
    shares: tuple[tuple[str, float], ...] = ()  # settings that are shares of the training steps


ROWS = {
    "ssd-lm": Row("SSD-LM", {"method": "ssd_lm", **TIME}, ("simplex_blocks",), "simplex_blocks"),
    "plaid": Row("Plaid", {"method": "plaid", **TIME}, ("latent_ancestral",)),
    "mdlm": Row("MDLM", {}, ("ancestral",), "semi_autoregressive", paper="≤ 27.04"),
    "mdlm-unweighted": Row(
        "MDLM, unweighted loss", {"method.loss_weight": "uniform"}, ("ancestral",), paper="≤ 27.04"
    ),
    "ar": Row(
        "autoregressive",
        {"method": "autoregressive", "backbone": "causal"},
        ("left_to_right",),
        paper="22.32",
    ),
    "udlm": Row("UDLM", {"method": "udlm", **TIME}, ("uniform_ancestral",)),
    "duo": Row(
        "Duo",
        {"method": "duo", **TIME},
        ("uniform_ancestral",),
        shares=(("method.curriculum", 0.5),),
    ),
    "d3pm-uniform": Row(
        "D3PM, uniform", {"method": "d3pm_uniform", **TIME}, ("uniform_ancestral",)
    ),
    "sundae": Row("SUNDAE", {"method": "sundae"}, ("unrolled",)),
    "diffusion-bert": Row(
        "DiffusionBERT", {"method": "diffusion_bert"}, ("token_schedule",), paper="≤ 63.78"
    ),
    "d3pm": Row(
        "D3PM, absorbing",
        {"method": "d3pm", "method.copied": "0.125", "time_sampler": "importance"},
        ("ancestral",),
        paper="≤ 76.90",
    ),
    "diffusion-lm": Row(
        "Diffusion-LM",
        # its loss does not weigh times as its bound does: at little noise, small errors of the estimates cost
        # most of the bound, unless the paper's clamping removes them
        {"method": "diffusion_lm", "method.clamped": "0.15", **TIME},
        ("latent_clamped", "latent_ancestral"),
        paper="≤ 118.62",
    ),
    "sedd": Row("SEDD", {"method": "sedd", **TIME}, ("ancestral",), paper="≤ 32.79"),
    "bert-mouth": Row("BERT-Mouth", {"method": "mlm"}, paper="≤ 142.89"),
    "analog-bits": Row("Analog Bits", {"method": "analog_bits", **TIME}, ("latent_ddim",)),
}


class Study:
    """Data, training and measurements of the rows, in one process."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.set_num_threads(args.threads)
        self.args, self.corpus = args, Corpus.read(args.data)
        self.tokenizer = load_tokenizer(args.data / "tokenizer")
        self.report = Report(args.out / "results.jsonl")
        self.trainers: dict[str, Measured] = {}  # compiled, by row
        self.models: dict[str, Model] = {}
        self.eager: set[str] = set()  # rows that could not be compiled here
        args.weights.mkdir(parents=True, exist_ok=True)

    def done(self, table: Any, name: str) -> list[dict[str, Any]]:
        """The results of a row in a table."""
        return [
            row for row in results(self.args.out) if (row["table"], row["row"]) == (table, name)
        ]

    def write(self, table: Any, name: str, **values: Any) -> None:
        """Appends a result."""
        self.report.write({"table": table, "row": name, **values})

    # training

    def network(self, name: str) -> dict[str, Any]:
        """The fields of the method and the network of a row."""
        depth, width, heads = SHAPES[self.args.shape]
        fields = {
            "backbone.depth": depth,
            "backbone.width": width,
            "backbone.heads": heads,
            "backbone.zero_out": "true",
            **ROWS[name].settings,
        }
        return fields if fields.get("backbone") == "causal" else {**fields, "backbone.gate": 1}

    def config(self, name: str, factor: float, steps: int) -> RunConfig:
        """The configuration of a row."""
        fields = {
            **self.network(name),
            "data.length": self.corpus.train.length,
            "training.steps": steps,
            "training.batch": self.args.batch,
            "training.warmup": min(100, steps // 10 + 1),
            "training.decay": "linear",
            "training.optimizer": "muon",
            "training.lr": factor * LR,
            "training.muon_lr": factor * MUON_LR,
            "training.ema": 0,
            "training.precision": self.args.precision,
            "training.compile": DEVICE.type == "cuda" and name not in self.eager,
            "training.cuda_graph": name not in self.eager,
            "training.device": DEVICE.type,
            "training.log_every": 50,
            **{field: round(share * steps) for field, share in self.shares(name)},
        }
        return resolve({}, {field: str(value) for field, value in fields.items()})

    def shares(self, name: str) -> tuple[tuple[str, float], ...]:
        """The settings of a row that are shares of the training steps."""
        return ROWS[name].shares

    def method(self, config: RunConfig) -> Method:
        """The untrained method."""
        vocabulary = self.corpus.vocabulary
        method = build_method(config, vocabulary)
        if method.capabilities.token_schedule:
            method.set_frequencies(token_counts(self.corpus.train, vocabulary.size))
        return method

    def train(self, name: str, seed: int, factor: float, steps: int) -> Measured:
        """The trainer of a finished run; a row that cannot be compiled is trained without that."""
        try:
            return self._train(name, seed, factor, steps)
        except (RuntimeError, UnmaskError) as error:
            diverged = str(error).startswith("training stopped")
            if diverged or name in self.eager or DEVICE.type == "cpu":
                raise
            self.eager.add(name)
            self.write("eager", name, reason=str(error).partition("\n")[0])
            return self._train(name, seed, factor, steps)

    def _train(self, name: str, seed: int, factor: float, steps: int) -> Measured:
        config = self.config(name, factor, steps)
        torch.manual_seed(seed)
        with TemporaryDirectory() as folder:
            loader = Loader(self.corpus.train, self.args.batch, seed)
            run = TrainingRun(Path(folder), seed, say=lambda message: None)
            place = (config.training, run)
            trainer = Measured([], self.args.ends, self.method(config), loader, *place)
            state = trainer.fit()
        if state.step < steps:
            raise TimeoutError("the time is up")
        return trainer

    def twin(self, name: str, weights: dict[str, torch.Tensor]) -> Method:
        """A method with these weights that is not compiled."""
        method = self.method(self.config(name, 1.0, 1)).to(DEVICE).eval()
        method.load_state_dict(weights)
        return method

    def learn(self, name: str, seed: int) -> None:
        """Chooses the learning rate if that is missing, then trains and measures one seed."""
        args = self.args
        for factor in args.factors if len(args.factors) > 1 else ():
            if factor not in [row["factor"] for row in self.done("tuning", name)]:
                self.write("tuning", name, factor=factor, nats=self.tuning_loss(name, factor))
        if seed in [row["seed"] for row in self.done(1, name)]:
            return
        about = self.saved(name) if seed == FIRST_SEED else None  # trained, but not measured
        if about is None:
            about, weights = self.trained(name, seed)
        else:
            weights = self.weights(name)
        for measured in list(self.bounds(self.twin(name, weights))):  # all lines or none
            self.write(1, name, **about, **measured)

    def trained(self, name: str, seed: int) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """A description of a new run and its weights; the first seed's are saved.

        The first seed trains with each of the best factors and chooses one.
        """
        args, runs = self.args, {}
        if seed == FIRST_SEED and not self.done("finalist", name):
            for factor in self.finalists(name):
                with suppress(UnmaskError):  # the run diverged
                    runs[factor] = self.train(name, seed, factor, args.steps)
            losses = {factor: self.held_out_loss(name, run) for factor, run in runs.items()}
            for factor, nats in losses.items():
                self.write("finalist", name, factor=factor, nats=nats)
        factor = self.best_factor(name)
        trainer = runs.get(factor) or self.train(name, seed, factor, args.steps)
        counted = count_parameters(self.config(name, factor, args.steps), self.corpus.vocabulary)
        weights = trainer.method.state_dict()
        seconds = trainer.state.seconds - trainer.start_seconds
        about = {
            "seed": seed,
            "factor": factor,
            "steps": args.steps,
            "tokens": trainer.state.tokens,
            "parameters": counted.total,
            "non_embedding": counted.non_embedding,
            "seconds": seconds,
            "start_seconds": trainer.start_seconds,
            "skipped": trainer.state.skipped,
        }
        if seed == FIRST_SEED:
            self.trainers[name] = trainer
            self.save(name, weights, about)
        return about, weights

    def steps_of(self, name: str) -> int:
        """All training steps of a row."""
        args = self.args
        tuned = len(args.factors) if len(args.factors) > 1 else 0
        again = min(tuned, args.finalists) - 1 if tuned else 0
        return int(tuned * args.tuning_steps + (again + args.seeds) * args.steps)

    def tuning_loss(self, name: str, factor: float) -> float:
        """The held-out loss after a short run; infinite if the run diverged."""
        try:
            trainer = self.train(name, TUNING_SEED, factor, self.args.tuning_steps)
        except UnmaskError:
            return math.inf
        return self.held_out_loss(name, trainer)

    def held_out_loss(self, name: str, trainer: Measured) -> float:
        """The loss on held-out rows that the table does not use."""
        args = self.args
        rows = Part(self.corpus.valid, args.rows, args.tuning_rows)
        twin = self.twin(name, trainer.method.state_dict())
        return likelihood(twin, rows, draws=args.draws, batch=args.rows_per_pass).nats

    def finalists(self, name: str) -> list[float]:
        """The factors with the lowest losses of short runs, the best first."""
        return ranked(self.done("tuning", name))[: self.args.finalists]

    def best_factor(self, name: str) -> float:
        """The factor with the lowest loss of a full run of the first seed, or else of a short run."""
        if len(self.args.factors) == 1:
            return float(self.args.factors[0])
        return (ranked(self.done("finalist", name)) or self.finalists(name))[0]

    def bounds(self, method: Method) -> Iterator[dict[str, Any]]:
        """The figures of a method on the held-out rows of the table."""
        args = self.args
        how: list[dict[str, Any]] = [{"draws": args.draws}]
        count = args.rows
        if METHODS.name_of(method) == "mlm":  # one network input for each token
            how, count = [{"estimator": "pseudo"}, {"orders": 1, "draws": 1}], args.orders_rows
        for options in how:
            rows = Part(self.corpus.valid, 0, count)
            found = likelihood(method, rows, batch=args.rows_per_pass, **options)
            yield {
                "certificate": found.certificate,
                "nats": found.nats,
                "error": found.error,
                "text_error": found.text_error,
                "rows": count,
                "terms": {term: round(value, 4) for term, value in found.terms.items()},
            }

    def file(self, name: str) -> Path:
        """The weights of the first seed."""
        return Path(self.args.weights / f"{name}.safetensors")

    def about(self, name: str) -> Path:
        """The description of the first seed, written after its weights."""
        return self.file(name).with_suffix(".json")

    def saved(self, name: str) -> dict[str, Any] | None:
        """The description of the saved first seed; None if there is none of these settings."""
        if not self.about(name).exists():
            return None
        about: dict[str, Any] = json.loads(self.about(name).read_text("utf-8"))
        wanted = {"factor": self.best_factor(name), "steps": self.args.steps}
        return about if wanted.items() <= about.items() else None

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        """The saved weights of the first seed."""
        return load_file(self.file(name))

    def save(self, name: str, weights: dict[str, torch.Tensor], about: dict[str, Any]) -> None:
        """Writes the weights of the first seed and their description."""
        whole, part = torch.contiguous_format, self.file(name).with_suffix(".part")
        # a clone, because the file format has no tensors that share memory, as a tied head does
        save_file({k: x.cpu().clone(memory_format=whole) for k, x in weights.items()}, part)
        part.replace(self.file(name))  # an interruption leaves no file that is half written
        self.about(name).write_text(json.dumps(about), "utf-8")

    # texts and time, with the device to themselves

    def points(self, name: str) -> Iterator[tuple[str, int | None, int]]:
        """Sampler, steps and length of each set of texts."""
        row, length = ROWS[name], self.corpus.train.length
        for sampler in row.samplers:
            for steps in self.args.sampling_steps if name != "ar" else [None]:
                if sampler == "simplex_blocks":  # its steps are of a block: about as many calls
                    steps = max(1, steps * BLOCK // length)
                yield sampler, steps, length
        if row.long:
            for steps in self.args.long_steps:
                yield row.long, steps, 2 * length

    def write_texts(self, name: str) -> None:
        """Generates the texts of a row that are missing, and their seconds."""
        for sampler, steps, length in self.points(name):
            long = length > self.corpus.train.length
            setting = {"sampler": sampler, "steps": steps, "length": length}
            known = [{key: row[key] for key in setting} for row in self.done("texts", name)]
            if setting in known:
                continue
            if time.time() > self.args.ends:
                raise TimeoutError("the time is up")
            n = self.args.long_texts if long else self.args.texts
            options = {**setting, "n": n, "batch": n, "seed": 0, "stop": False}
            model = self.model(name)
            # warms the device up; CUDA graphs of masked diffusion depend on the number of masks
            graphs = model.method.capabilities.masked_lm
            model.generate(**{**options, "steps": steps if graphs else steps and 2})
            begun = time.perf_counter()
            found = model.generate(**options)
            seconds = (time.perf_counter() - begun) / n
            of = f"{name}, {sampler}, {steps}, {length}"
            write_samples(self.args.out, of, [result.ids for result in found], self.tokenizer)
            calls = statistics.fmean(result.calls for result in found)
            about = {"n": n, "long": long, "seconds": seconds, "calls": calls, "of": of}
            self.write("texts", name, **setting, **about)

    def model(self, name: str) -> Model:
        """The model of the first seed; trained again if its weights are on another machine."""
        if name not in self.models:
            if not self.file(name).exists():
                self.trained(name, FIRST_SEED)
            method = self.twin(name, self.weights(name))
            method.serve()
            self.models[name] = Model(method, self.tokenizer, self.config(name, 1.0, 1))
        return self.models[name]

    def pace(self, name: str, number: int) -> None:
        """The time of a training step, as one of several rounds over all rows."""
        if number in [row["round"] for row in self.done("speed", name)]:
            return
        if name not in self.trainers:
            self.trainers[name] = self.train(name, TUNING_SEED, 1.0, WARM)
        trainer = self.trainers[name]
        trainer.method.train()

        def steps(count: int) -> None:
            for _ in range(count):
                trainer._step()
            trainer.losses.clear()

        steps(WARM)
        seconds = wall_seconds(lambda: steps(self.args.timed))
        about = {
            "ms": 1e3 * seconds / self.args.timed,
            "compiled": DEVICE.type == "cuda" and name not in self.eager,
        }
        self.write("speed", name, round=number, **about)


def ranked(tried: list[dict[str, Any]]) -> list[float]:
    """Factors by their held-out losses, the best first; a loss that is not finite loses."""
    by_loss = sorted(tried, key=lambda row: (not math.isfinite(row["nats"]), row["nats"]))
    return [float(row["factor"]) for row in by_loss]


class Part:
    """Some rows of a corpus."""

    def __init__(self, rows: Any, first: int, count: int) -> None:
        self.first, self.count, self.rows = first, min(count, len(rows) - first), rows
        self.bytes = self.characters = 0  # unused: no figure per byte is computed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: range) -> Any:
        return self.rows[range(self.first + index.start, self.first + index.stop)]


# Processes: a row stays in one, which has compiled it


class Here(Executor):
    """Calls functions at once, in this process."""

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **options))
        return future


_studies: dict[Path, Study] = {}  # of this process, by folder of the results


def work(args: argparse.Namespace, task: str, name: str, *more: Any) -> None:
    """Calls a method of the study of this process; an error becomes a line."""
    if time.time() > args.ends:
        return
    if args.out not in _studies:
        _studies[args.out] = args.study(args)
    study = _studies[args.out]
    study.args = args
    try:
        getattr(study, task)(name, *more)
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        study.write("error", name, task=task, error=f"{type(error).__name__}: {first}")
        if args.strict:
            raise
    synchronize()


class Workers:
    """Processes on one device. A row goes to the process that is free first, and stays there."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.owner = args, dict[str, Executor]()
        spawn = multiprocessing.get_context("spawn")
        self.executors: list[Executor] = [
            ProcessPoolExecutor(1, mp_context=spawn) for _ in range(args.processes)
        ] or [Here()]

    def first(self, task: str, *more: Any) -> None:
        """A task of every row, which assigns rows to processes; returns when all are done."""
        waiting, busy = list(self.args.rows_of_table), dict[Future[None], Executor]()
        idle = list(self.executors)
        while waiting or busy:
            while waiting and idle:
                name, executor = waiting.pop(0), idle.pop(0)
                self.owner[name] = executor
                busy[submitted(executor, self.args, task, name, *more)] = executor
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                executor = busy.pop(future)
                if settled(future):
                    idle.append(executor)
            if not busy and not idle:
                return  # all processes have ended

    def one_by_one(self, task: str, *more: Any) -> None:
        """A task of every row, with the device to itself."""
        for name, executor in self.owner.items():
            settled(submitted(executor, self.args, task, name, *more))

    def together(self, task: str, seeds: range) -> None:
        """A task of every row and seed, in the order of the seeds."""
        jobs = [(name, seed) for seed in seeds for name in self.owner]
        futures = [submitted(self.owner[job[0]], self.args, task, *job) for job in jobs]
        for future in futures:
            settled(future)


def submitted(executor: Executor, *job: Any) -> Future[None]:
    """A task that a process has received; the error if the process has ended."""
    try:
        return executor.submit(work, *job)
    except BrokenExecutor as error:
        future: Future[None] = Future()
        future.set_exception(error)
        return future


def settled(future: Future[None]) -> bool:
    """Waits for a task; False if its process has ended, as for lack of memory."""
    try:
        future.result()
    except BrokenExecutor as error:
        print(json.dumps({"table": "error", "error": str(error)}), flush=True)
        return False
    return True


def run(args: argparse.Namespace) -> None:
    """Everything that is missing, until the time is up."""
    write_real(args)
    workers = Workers(args)
    workers.first("learn", FIRST_SEED)
    workers.one_by_one("write_texts")
    for number in range(ROUNDS):  # rounds over all rows, so that a change of the clock meets all
        workers.one_by_one("pace", number)
    workers.together("learn", range(FIRST_SEED + 1, FIRST_SEED + args.seeds))
    for executor in workers.executors:
        executor.shutdown()


def plan(args: argparse.Namespace) -> None:
    """Prints the seconds of training of each row, from a few steps of each in this process."""
    total = 0.0
    with TemporaryDirectory() as folder:
        args = argparse.Namespace(**{**vars(args), "out": Path(folder), "weights": Path(folder)})
        study = args.study(args)
        for name in args.rows_of_table:
            steps, begun = study.steps_of(name), time.perf_counter()
            study.pace(name, 0)
            (found,) = study.done("speed", name)
            start = time.perf_counter() - begun - args.timed * found["ms"] / 1e3
            seconds = start + steps * found["ms"] / 1e3
            total += seconds
            print(
                f"{name}: {start:.0f} s to compile and {steps:,} steps of {found['ms']:.1f} ms: "
                f"{seconds:.0f} s"
            )
    print(f"in all: {total:.0f} s of training in one process")


# Texts, judge, tables and picture


def results(out: Path) -> list[dict[str, Any]]:
    """All results so far."""
    file = out / "results.jsonl"
    return read_rows(file) if file.exists() else []


def write_samples(out: Path, of: str, rows: list[list[int]], tokenizer: Any) -> None:
    """Appends texts without special tokens, as one set."""
    with (out / TEXTS).open("a", encoding="utf-8") as file:
        for row in rows:
            ids = visible(row, tokenizer.vocabulary, ())
            file.write(json.dumps({"of": of, "ids": ids, "text": tokenizer.decode(ids)}) + "\n")


def saved_texts(out: Path) -> dict[str, list[dict[str, Any]]]:
    """The texts by set. A set that was cut and written again counts once."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    counts = {row["of"]: row["n"] for row in results(out) if row["table"] == "texts"}
    for line in read_rows(out / TEXTS) if (out / TEXTS).exists() else []:
        found[line["of"]].append(line)
    return {of: lines[-counts.get(of, len(lines)) :] for of, lines in found.items()}


def write_real(args: argparse.Namespace) -> None:
    """Writes held-out rows beside the generated texts."""
    args.out.mkdir(parents=True, exist_ok=True)
    if REAL not in saved_texts(args.out):
        corpus = Corpus.read(args.data)
        x, _ = corpus.valid[range(len(corpus.valid))]
        whole = (x[:, 1:-1] != corpus.vocabulary.eos_id).all(1)  # a text ends at EOS
        x = (x[whole] if whole.any() else x)[: args.texts]
        write_samples(args.out, REAL, x.tolist(), load_tokenizer(args.data / "tokenizer"))


def judge(out: Path, spec: str) -> None:
    """Scores every set of texts that has no score yet."""
    reader, report = causal_judge(spec, torch.device("cpu")), Report(out / JUDGED)
    known = scores_of(out)
    for of, lines in saved_texts(out).items():
        if of in known:
            continue
        found = measure([Sample(line["ids"], line["text"]) for line in lines], reader)
        report.write(
            {
                "row": of,
                "judge": Path(spec).name,
                "perplexity": math.exp(found.nats.value),
                "interval": [round(math.exp(end), 3) for end in (found.nats.low, found.nats.high)],
                "bits_per_byte": found.bits_per_byte.value,
                "entropy": found.entropy.value,
                "repetition": found.repetition.value,
            }
        )


def scores_of(out: Path) -> dict[str, dict[str, Any]]:
    """The scores by set of texts."""
    file = out / JUDGED
    return {row["row"]: row for row in read_rows(file)} if file.exists() else {}


class Judged(NamedTuple):
    """A set of texts with its cost and its scores."""

    row: dict[str, Any]
    scores: dict[str, Any]


def judged(out: Path) -> list[Judged]:
    """The sets of texts that have scores."""
    scores = scores_of(out)
    texts = [row for row in results(out) if row["table"] == "texts"]
    return [Judged(row, scores[row["of"]]) for row in texts if row["of"] in scores]


def tables(out: Path) -> Iterator[str]:
    """All tables as Markdown."""
    rows = [row for row in results(out) if row["table"] != "error"]
    by_table: dict[Any, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_table[row["table"]][row["row"]].append(row)
    yield from likelihood_table(by_table[1], by_table["tuning"])
    yield from speed_table(by_table["speed"])
    found = judged(out)
    yield from texts_table("Generation", [one for one in found if not one.row["long"]])
    long = [one for one in found if one.row["long"]]
    yield from texts_table("Table 5 in small: texts twice as long as a row", long)


def likelihood_table(
    rows: dict[str, list[dict[str, Any]]], tuning: dict[str, list[dict[str, Any]]]
) -> Iterator[str]:
    """Table 1: the nats of each row with its certificate, and what was tried for it."""
    head = ["method", "certificate", "nats per token", "95% interval", "lowest and highest seed"]
    head += ["seeds", "perplexity", "factor of the learning rate, of those tried", "paper, LM1B"]
    lines = []
    for name, found in rows.items():
        for certificate in dict.fromkeys(row["certificate"] for row in found):
            same = [row for row in found if row["certificate"] == certificate]
            nats = [row["nats"] for row in same]
            mean, sign = statistics.fmean(nats), {"upper": "≤ "}.get(certificate, "")
            # the texts are the same for all seeds, the weights differ
            variance = statistics.fmean(row["text_error"] for row in same) ** 2
            if len(nats) > 1:
                variance += statistics.variance(nats) / len(nats)
            half = 1.96 * math.sqrt(variance)
            tried = ", ".join(f"{row['factor']:g}" for row in tuning.get(name, ()))
            paper = ROWS[name].paper if certificate != "pseudo" else ""
            measured = certificate != "none"
            cells = [
                ROWS[name].title,
                certificate,
                f"{sign}{mean:.3f}" if measured else f"loss {mean:.3f}",
                f"{mean - half:.3f} to {mean + half:.3f}",
                f"{min(nats):.3f}, {max(nats):.3f}",
                str(len(nats)),
                f"{sign}{perplexity_of(mean):.4g}" if measured else "",
                f"{same[0]['factor']:g} of {tried}",
                paper,
            ]
            lines.append((not measured, mean, cells))
    yield from markdown(head, (cells for *_, cells in sorted(lines)), left=2)


def speed_table(rows: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """The time of a training step, and its ratio to that of MDLM in the same round."""
    if "mdlm" not in rows:
        return
    yield ""
    lines = []
    base = {row["round"]: row["ms"] for row in rows["mdlm"]}
    for name, found in rows.items():
        ratios = [row["ms"] / base[row["round"]] for row in found if row["round"] in base]
        ms = statistics.median(row["ms"] for row in found)
        if ratios:
            low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
            ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})"
            lines.append([ROWS[name].title, f"{ms:.2f}", ratio, len(found)])
    yield from markdown(["method", "ms a training step", "times MDLM", "rounds"], lines)


def texts_table(title: str, found: list[Judged]) -> Iterator[str]:
    """Scores and seconds of sets of texts."""
    if not found:
        return
    yield f"\n{title}, judged by {found[0].scores['judge']}\n"
    head = ["method", "sampler", "steps", "tokens", "calls", "seconds a text"]
    head += ["perplexity under the judge", "95% interval", "entropy", "repeated 4-grams", "texts"]
    lines = []
    for row, scores in found:
        low, high = scores["interval"]
        cells = [
            ROWS[row["row"]].title,
            row["sampler"],
            str(row["steps"] or ""),
            str(row["length"]),
            f"{row['calls']:.0f}",
            f"{row['seconds']:.4f}",
            f"{scores['perplexity']:.1f}",
            f"{low:.1f} to {high:.1f}",
            f"{scores['entropy']:.3f}",
            f"{scores['repetition']:.3f}",
            row["n"],
        ]
        lines.append(cells)
    yield from markdown(head, lines, left=2)


def unpicked(out: Path, count: int) -> Iterator[str]:
    """The first texts of each sampler at its largest number of steps."""
    texts = saved_texts(out)
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for row in results(out):
        if row["table"] == "texts" and not row["long"] and row["of"] in texts:
            last[row["row"], row["sampler"]] = row
    for (name, sampler), row in last.items():
        yield f"\n## {ROWS[name].title}, {sampler}, {row['calls']:.0f} calls\n"
        for line in texts[row["of"]][:count]:
            yield "- " + " ".join(line["text"].split())


def plot(out: Path, file: Path) -> None:
    """Perplexity under the judge against entropy and against seconds, one line for each sampler."""
    from matplotlib.ticker import LogLocator

    found = judged(out)
    lines: dict[str, list[Judged]] = defaultdict(list)
    for one in found:
        if not one.row["long"]:
            clamped = ", not clamped" if one.row["sampler"] == "latent_ancestral" else ""
            name = one.row["row"]
            lines[ROWS[name].title + (clamped if name == "diffusion-lm" else "")].append(one)
    with picture(file, (12, 4.8), 1, 2, sharey=True) as (figure, panels):
        for number, (title, points) in enumerate(lines.items()):
            points = sorted(points, key=lambda one: one.row["steps"] or 0)
            ppl = [one.scores["perplexity"] for one in points]
            style: dict[str, Any] = {
                "color": f"C{number % 10}",
                "marker": "os^Dv<>Ph*X"[number % 11],
            }
            panels[0].plot([one.scores["entropy"] for one in points], ppl, label=title, **style)
            panels[1].plot([1e3 * one.row["seconds"] for one in points], ppl, **style)
        if real := scores_of(out).get(REAL):
            panels[0].plot(
                real["entropy"], real["perplexity"], "k*", markersize=12, label="real text"
            )
        judges = found[0].scores["judge"]
        panels[0].set(xlabel="entropy of the tokens of a text, nats", yscale="log")
        panels[0].set_ylabel(f"perplexity under {judges}")
        panels[1].set(xlabel="milliseconds a text", xscale="log")
        panels[1].xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panels[1].xaxis.set_major_formatter("{x:g}")
        panels[1].xaxis.set_minor_formatter("")
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)


def tiny_data(folder: Path) -> Path:
    """A small corpus, to try the script out anywhere."""
    text = folder / "text.txt"
    if not text.exists():
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{n} and {n + 1} make {2 * n + 1}." for n in range(400)]
        text.write_text("\n<|endoftext|>\n".join(lines), "utf-8")
        prepare(folder, str(text), "", 300, 16)
    return folder


TINY = {
    "shape": "tiny",
    "precision": "fp32",
    "steps": 4,
    "tuning_steps": 2,
    "factors": [0.5, 1.0],
    "seeds": 2,
    "batch": 4,
    "rows": 8,
    "tuning_rows": 4,
    "orders_rows": 2,
    "draws": 1,
    "texts": 2,
    "long_texts": 2,
    "sampling_steps": [2, 4],
    "long_steps": [2],
    "timed": 2,
    "processes": 0,
    "strict": True,
}


def study_parser(doc: str | None, rows: Iterable[str]) -> argparse.ArgumentParser:
    """The options of a study; a study adds its own and sets the defaults."""
    found = script_parser(doc, "plot", "tiny")
    add = found.add_argument
    add("--data", type=Path, help="folder of --prepare")
    add("--out", type=Path, help="folder of results and texts")
    add("--weights", type=Path, help="folder of the first seed's weights; OUT/weights if not given")
    add("--only", nargs="+", choices=rows, metavar="ROW", help="some of the rows")
    add("--precision", default="bf16", help="of training")
    add("--steps", type=int, default=1000, help="training steps of the table")
    add("--tuning-steps", type=int, default=200, help="training steps for each learning rate")
    add("--finalists", type=int, help="learning rates with which the first seed trains")
    add("--factors", type=float, nargs="+", help="on the learning rates")
    add("--seeds", type=int, default=3, help="of the rows with several seeds")
    add("--batch", type=int, default=128, help="rows of a training step")
    add("--rows", type=int, default=512, help="held-out rows of the table")
    add("--tuning-rows", type=int, default=256, help="other held-out rows, for the learning rates")
    add("--rows-per-pass", type=int, default=128, help="held-out rows of one pass of the network")
    add("--draws", type=int, default=8, help="noise draws of a bound")
    add("--texts", type=int, default=64, help="texts of a sampler and number of steps")
    add("--sampling-steps", type=int, nargs="+", help="steps of the samplers")
    add("--timed", type=int, default=TIMED, help="training steps of a round of timing")
    add("--processes", type=int, help="processes on the device; 0 is this one")
    add("--threads", type=int, default=1, help="CPU threads of a process")
    add("--seconds", type=float, default=1e9, help="after which nothing new starts")
    add("--strict", action="store_true", help="stop at the first error")
    add("--plan", action="store_true", help="prints the seconds of each row")
    add("--judge", help="scores the saved texts: a judge as in unmask evaluate generation")
    add("--table", action="store_true", help="prints all tables")
    return found


def begin(
    args: argparse.Namespace,
    study: type[Study],
    rows: Iterable[str],
    tiny: Mapping[str, Any],
    run: Callable[[argparse.Namespace], None],
) -> None:
    """Plans or runs a study."""
    if args.tiny:
        vars(args).update(tiny, data=args.data or tiny_data(args.out / "data"))
    if args.data is None:
        raise UnmaskError("--data is missing: give the folder that --prepare wrote")
    args.study, args.rows_of_table = study, args.only or list(rows)
    args.weights = args.weights or args.out / "weights"
    args.ends = time.time() + args.seconds
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    plan(args) if args.plan else run(args)


def main() -> None:
    options = study_parser(__doc__, ROWS)
    options.set_defaults(out=Path("runs/baselines"), finalists=2, factors=FACTORS, processes=7)
    options.set_defaults(sampling_steps=[16, 64, 256])
    add = options.add_argument
    add("--prepare", type=Path, metavar="FOLDER", help="write rows and tokenizer there and stop")
    add("--text", help="a text to prepare")
    add("--vocabulary", type=int, default=4096, help="tokens of the BPE that is learned from it")
    add("--length", type=int, default=128, help="tokens of a row")
    add("--shape", choices=SHAPES, default="6x384")
    add("--orders-rows", type=int, default=256, help="held-out rows of BERT-Mouth's figures")
    add("--long-texts", type=int, default=16, help="texts of Table 5")
    add("--long-steps", type=int, nargs="+", default=[32, 128], help="of a window or block")
    add("--samples", type=int, metavar="N", help="prints the first N texts of each sampler")
    args = options.parse_args()
    if args.prepare:
        if not args.text:
            options.error("--prepare needs --text")
        prepare(args.prepare, args.text, "", args.vocabulary, args.length)
        return
    if args.judge:
        judge(args.out, args.judge)
    if args.table:
        print("\n".join(tables(args.out)))
    if args.samples:
        print("\n".join(unpicked(args.out, args.samples)))
    if args.plot:
        plot(args.out, args.plot)
    if args.judge or args.table or args.samples or args.plot:
        return
    begin(args, Study, ROWS, TINY, run)
