"""Time and memory of training, sampling and evaluation with the package's own code, on random tokens."""

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import operations
from benchmarks.machine import DEVICE, peak_gib, reset_peak, wall_seconds
from benchmarks.operations import Setting
from unmask.backbones.causal import Causal
from unmask.backbones.dit import DiT
from unmask.diffusion.schedule import LogLinear
from unmask.diffusion.time_sampler import Stratified
from unmask.likelihood.estimate import likelihood
from unmask.methods.autoregressive import Autoregressive
from unmask.methods.mdlm import MDLM
from unmask.methods.method import Method
from unmask.runtime.device import native_precisions
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS
from unmask.training.logs.run_log import read_log
from unmask.training.trainer import Trainer, TrainingRun
from unmask.training.training_config import TrainingConfig
from unmask.vocabulary import Vocabulary

Wait = Callable[[], Any]
COMPILED = DEVICE.type == "cuda"  # on a CPU compilation takes minutes and shows nothing about a GPU


def mdlm(setting: Setting) -> MDLM:
    """An MDLM with fresh weights."""
    schedule, times = LogLinear(), Stratified()
    width, depth, heads = setting.shape
    with DEVICE:
        torch.manual_seed(0)
        backbone = DiT(DiT.Config("", width, depth, heads, dropout=0.1), _vocabulary(setting))
    return MDLM(MDLM.Config(), backbone, _vocabulary(setting), schedule, times).to(DEVICE)


def autoregressive(setting: Setting) -> Autoregressive:
    """The baseline with fresh weights."""
    width, depth, heads = setting.shape
    with DEVICE:
        torch.manual_seed(0)
        backbone = Causal(Causal.Config("", width, depth, heads), _vocabulary(setting))
    method = Autoregressive(
        Autoregressive.Config(), backbone, _vocabulary(setting), LogLinear(), Stratified()
    )
    return method.to(DEVICE)


def _vocabulary(setting: Setting) -> Vocabulary:
    return Vocabulary(setting.vocabulary, setting.vocabulary - 1)


class RandomBatches:
    """A loader of random rows. It records the peak memory of the first steps."""

    def __init__(self, setting: Setting, settled: int, compiled: int, wait: Wait) -> None:
        self.setting, self.settled, self.compiled, self.wait = setting, settled, compiled, wait
        self.first_peak: float | None = None  # of the steps before `settled`

    def batch(self, step: int, part: range) -> tuple[Tensor, Tensor]:
        if step == self.compiled:
            self.wait()
        if step == self.settled:
            self.first_peak = peak_gib()
            reset_peak()
        return random_tokens(self.setting, len(part), step)

    def given(self, step: int, part: range) -> None:
        return None

    def count(self, step: int, part: range) -> int:
        return len(part) * self.setting.length


class RandomRows:
    """Random rows in memory, for evaluation."""

    def __init__(self, setting: Setting, rows: int) -> None:
        self.x, self.valid = random_tokens(setting, rows, 0)
        self.bytes = self.characters = self.x.numel()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: range) -> tuple[Tensor, Tensor]:
        here = slice(rows.start, rows.stop)
        return self.x[here], self.valid[here]


def random_tokens(setting: Setting, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of any tokens but MASK, all valid."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, setting.vocabulary - 1, (rows, setting.length), generator=generator)
    return x, torch.ones_like(x, dtype=torch.bool)


class Unsaved(Trainer):
    """A trainer without checkpoints, which would take longer than the steps."""

    def _save(self, good: bool = False) -> None:
        self._collect_losses()


def train(
    setting: Setting, steps: int, settled: int, log_every: int, wait: Wait = lambda: None
) -> dict[str, Any]:
    """Times steps of the package's trainer. The first `settled` steps compile and are not counted.

    After the first log line, when everything is compiled, it calls `wait`.
    """
    method = mdlm(setting)
    config = TrainingConfig(
        steps=steps,
        batch=setting.batch,
        precision="bf16",
        compile=COMPILED,
        device=DEVICE.type,
        validate_every=0,
        save_every=steps + 1,
        log_every=log_every,
    )
    loader = RandomBatches(setting, settled, log_every, wait)
    with TemporaryDirectory() as folder:
        reset_peak()
        Unsaved(method, loader, config, TrainingRun(Path(folder), say=_aside)).fit()
        lines = read_log(Path(folder))
    counted = [line["tokens_per_second"] for line in lines if line["step"] > settled]
    rate = statistics.median(counted)
    first = lines[0]
    peaks = [peak for peak in (peak_gib(), loader.first_peak) if peak is not None]
    return {
        "tokens_per_second": rate,
        "operations": operations.training(setting),
        "slowest": min(counted),
        "fastest": max(counted),
        "peak_gib": peak_gib(),
        "peak_gib_with_first_steps": max(peaks, default=None),
        "start_seconds": max(0.0, first["seconds"] - first["tokens"] / rate),
    }


def _aside(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def ready(method: Method) -> Method:
    """Prepares a network for inference as `unmask.load` does, with random parameters so that none is zero.

    It computes in bf16 on a GPU, and in the fastest precision on a CPU.
    """
    with torch.no_grad():
        for parameter in method.parameters():
            nn.init.normal_(parameter, std=0.02)
    fastest = "bf16" if DEVICE.type == "cuda" else native_precisions(DEVICE)[0]
    precision = {"bf16": torch.bfloat16, "fp32": torch.float32}[fastest]
    method.eval().serve(precision, compile=COMPILED)
    return method


def sample(
    method: Method, setting: Setting, sampler: str, runs: int, **options: Any
) -> dict[str, Any]:
    """Fills empty rows to the end, `runs` times with different seeds, after one run that warms up."""
    if sampler == "ancestral":
        options = {"steps": setting.steps, **options}
    mask_id = method.vocabulary.mask_id
    tokens = torch.full((setting.batch, setting.length), mask_id, device=DEVICE)
    canvas = Canvas(tokens, mask_id)
    calls: list[float] = []

    def fill(run: int) -> None:
        seeds = range(run * setting.batch, (run + 1) * setting.batch)
        plan = SamplingTask(list(seeds), method.schedule, watched=False)
        with torch.inference_mode():
            frames = SAMPLERS.build(sampler, **options).generate(method.denoiser(), canvas, plan)
            last = last_frame(frames, canvas)
        assert not (last.tokens == mask_id).any()
        calls.append(float(last.calls.double().mean()))

    warm = wall_seconds(lambda: fill(0))
    calls.clear()
    reset_peak()
    seconds = [wall_seconds(lambda run=run: fill(run)) for run in range(1, runs + 1)]
    return {
        "seconds_per_sequence": statistics.median(seconds) / setting.batch,
        **_cost(method, setting, statistics.fmean(calls)),
        "slowest": max(seconds) / setting.batch,
        "fastest": min(seconds) / setting.batch,
        "calls": statistics.fmean(calls),
        "peak_gib": peak_gib(),
        "start_seconds": warm,
    }


def _cost(method: Method, setting: Setting, calls: float) -> dict[str, float]:
    """Operations, and bytes if decoding reads them, of one sequence."""
    if method.capabilities.causal:
        count = operations.decoding(setting)
        return {"operations": count, "bytes": operations.decoding_bytes(setting)}
    return {"operations": operations.filling(setting, calls)}


def evaluate(setting: Setting, batches: int, runs: int) -> dict[str, Any]:
    """Times the bound of `batches` batches of random rows with one draw, after one run that warms up."""
    method = ready(mdlm(setting))

    def measure(rows: RandomRows) -> float:
        with torch.no_grad(), method.arithmetic():
            return wall_seconds(lambda: likelihood(method, rows, draws=1, batch=setting.batch))

    warm = measure(RandomRows(setting, 2 * setting.batch))
    reset_peak()
    rows = RandomRows(setting, batches * setting.batch)
    seconds = [measure(rows) for _ in range(runs)]
    tokens = batches * setting.batch * setting.length
    return {
        "tokens_per_second": tokens / statistics.median(seconds),
        "operations": operations.loss(setting),
        "slowest": tokens / max(seconds),
        "fastest": tokens / min(seconds),
        "peak_gib": peak_gib(),
        "start_seconds": warm,
    }
