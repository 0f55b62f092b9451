"""A tiny method and a tiny loader for tests of the trainer, and a script that kills their runs."""

import math
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unmask.backbones.backbone import Backbone
from unmask.backbones.layers.dropout import dropout
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.schedule import LogLinear
from unmask.diffusion.time_sampler import RowNoise, Uniform
from unmask.files.jsonl import JsonLines
from unmask.methods.method import Losses, Method
from unmask.randomness import RowStream
from unmask.shapes import Batch, Tensors
from unmask.training.trainer import Trainer, TrainingRun
from unmask.training.training_config import TrainingConfig
from unmask.vocabulary import Vocabulary

VOCABULARY, LENGTH = 11, 6


class TinyBackbone(Backbone):
    """Embedding and a mixing layer with dropout."""

    def __init__(self, dropout: float, width: int) -> None:
        super().__init__(None, Vocabulary.over(VOCABULARY - 1))
        self.embed = nn.Embedding(VOCABULARY, width)
        self.mix = nn.Linear(width, width)
        self.dropout = float(dropout)

    def features(self, z: Tensor) -> Tensor:
        return self.mix(dropout(self.embed(z), self.dropout, self.keys(z), 0))


@dataclass(frozen=True)
class TinyNoise(RowNoise):
    hidden: Tensor


class TinyMethod(Method):
    """Predicts masked tokens. The head is tied to the embedding."""

    def __init__(self, dropout: float = 0.1, width: int = 8) -> None:
        torch.manual_seed(7)
        parts = (
            TinyBackbone(dropout, width),
            Vocabulary.over(VOCABULARY - 1),
            LogLinear(),
            Uniform(),
        )
        super().__init__(None, *parts)
        self.head = nn.Linear(width, VOCABULARY)
        self.head.weight = self.backbone.embed.weight
        self.unused = nn.Parameter(torch.zeros(3))  # never gets a gradient
        self.register_buffer("scale", torch.ones(()))

    def noise(self, stream: RowStream, valid: Tensor) -> TinyNoise:
        hidden = stream.uniform("hide", valid.shape[1]) < 0.5
        return TinyNoise(torch.zeros(len(valid), dtype=torch.float64), hidden)

    def tensors_of(self, batch: Batch, noise: TinyNoise, full_bound: bool = False) -> Tensors:
        return {"x": batch.x, "hidden": noise.hidden & batch.valid}

    def loss_of(self, tensors: Tensors) -> Losses:
        x, hidden = tensors["x"], tensors["hidden"]
        scores = self.head(self.backbone.features(torch.where(hidden, VOCABULARY - 1, x)))
        nats = nn.functional.cross_entropy(scores.transpose(1, 2), x, reduction="none")
        nats = torch.where(hidden, 2 * nats * self.scale, 0.0)
        return Losses(nats.sum(), {"diffusion": nats.detach()})

    def denoiser(self) -> Denoiser:
        raise AssertionError("training samples only through its caller")


class Poisoned(TinyMethod):
    """A method whose loss is not finite for some batches."""

    def __init__(self, *batches: int, poison: float = math.nan) -> None:
        super().__init__()
        self.batches, self.poison, self.drawn = batches, poison, []

    def noise(self, stream, valid):
        self.drawn.append(stream.step)
        return super().noise(stream, valid)

    def loss_of(self, tensors: Tensors) -> Losses:
        found = super().loss_of(tensors)
        if self.drawn[-1] in self.batches:
            found.total.mul_(self.poison)
        return found


class TinyLoader:
    """Rows that depend only on (step, row). Every third row is half padding."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay

    def batch(self, step: int, part: range) -> tuple[Tensor, Tensor]:
        time.sleep(self.delay)
        row = torch.tensor([[step * 31 + row] for row in part])
        x = (row + torch.arange(LENGTH) * (1 + row % 3)) % 5
        return x, self._valid(row)

    def given(self, step: int, part: range) -> None:
        return None

    def count(self, step: int, part: range) -> int:
        return int(self._valid(torch.tensor([[step * 31 + row] for row in part])).sum())

    def _valid(self, row: Tensor) -> Tensor:
        return (torch.arange(LENGTH) < LENGTH // 2) | (row % 3 > 0)


@dataclass(frozen=True)
class TinyResult:
    nats: float
    error: float = 0.01

    def to_dict(self) -> dict[str, Any]:
        return {"perplexity": self.nats * 2}


def trainer(
    run: Path, method: TinyMethod | None = None, delay: float = 0.0, **options: Any
) -> Trainer:
    """A trainer of the tiny method; options are the trainer's or the configuration's."""
    method = TinyMethod() if method is None else method
    own = {"loader", "validate", "sample", "say", "fingerprint", "seed", "auto_batch", "stream"}
    given = {name: options.pop(name) for name in own & options.keys()}
    defaults = {"batch": 8, "lr": 0.01, "warmup": 3, "ema": 0.9, "device": "cpu"}
    config = TrainingConfig(**{**defaults, **options})

    def validate() -> TinyResult:
        x, valid = TinyLoader().batch(10_000, range(8))
        noise = method.noise(RowStream(1, 0, range(8), 8), valid)
        return TinyResult(float(method.nll(Batch(x, valid), noise).total / valid.sum()))

    named = {name: given.pop(name) for name in {"seed", "fingerprint", "say"} & given.keys()}
    identity = {
        "seed": 3,
        "fingerprint": {"seed": 3, "training": asdict(config)},
        "say": lambda line: None,
        **named,
    }
    between = {"validate": validate, "sample": lambda: ["a", "b"], **given}
    loader = between.pop("loader", TinyLoader(delay))
    return Trainer(method, loader, config, TrainingRun(run, **identity), **between)


def train_in_child(run: Path) -> int:
    """Forks a process that trains in `run`. Returns its id."""
    child = os.fork()
    if child == 0:
        options = {"steps": 60, "micro_batch": 3, "save_every": 7, "validate_every": 5}
        trainer(run, delay=0.01, **options, log_every=4, sample_every=10).fit()
        os._exit(0)
    return child


def kill_at(step: int, run: Path, child: int, inside: bool) -> None:
    """Sends SIGKILL to the child shortly after its log reaches `step`, or inside the next save."""
    log = JsonLines(run / "log.jsonl")
    while not any(record["step"] >= step for record in log.read()):
        time.sleep(0.002)
    if inside:
        while not any((run / "checkpoints").glob(".*.building")):
            assert os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    time.sleep(random.uniform(0, 0.005 if inside else 0.02))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, f"ended before step {step}"


if __name__ == "__main__":  # arguments: undisturbed run, killed run, seed, steps of the kills
    import torch._dynamo  # optimizers import it: import it once, before the forks

    import unmask.training.trainer

    unmask.training.trainer.draw_curve = lambda run: run  # drawing takes a second per process
    torch.set_num_threads(1)
    straight, killed = Path(sys.argv[1]), Path(sys.argv[2])
    random.seed(int(sys.argv[3]))
    assert os.waitpid(train_in_child(straight), 0)[1] == 0
    for number, step in enumerate(map(int, sys.argv[4:])):
        kill_at(step, killed, train_in_child(killed), inside=number % 2 == 0)
    assert os.waitpid(train_in_child(killed), 0)[1] == 0
