"""A tiny method and loader that follow the contract, and a script that trains them in a process of its own."""

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unmask.methods.base import Losses
from unmask.randomness import RowStream
from unmask.training import Trainer, TrainingConfig

VOCABULARY, LENGTH = 11, 6


class TinyBackbone(nn.Module):
    """Embedding and a mixing layer with dropout."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 8)
        self.mix = nn.Linear(8, 8)
        self.dropout = nn.Dropout(dropout)

    def features(self, z: Tensor) -> Tensor:
        return self.mix(self.dropout(self.embed(z)))


@dataclass(frozen=True)
class TinyNoise:
    hidden: Tensor

    def to(self, device: torch.device) -> "TinyNoise":
        return TinyNoise(self.hidden.to(device))


class TinyMethod(nn.Module):
    """Guess hidden tokens; the head is tied to the embedding."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.backbone = TinyBackbone(dropout)
        self.head = nn.Linear(8, VOCABULARY)
        self.head.weight = self.backbone.embed.weight
        self.unused = nn.Parameter(torch.zeros(3))  # never gets a gradient
        self.register_buffer("scale", torch.ones(()))

    def noise(self, stream: RowStream, valid: Tensor) -> TinyNoise:
        return TinyNoise(stream.uniform("hide", valid.shape[1]) < 0.5)

    def nll(self, x: Tensor, valid: Tensor, noise: TinyNoise) -> Losses:
        hidden = noise.hidden & valid
        scores = self.head(self.backbone.features(torch.where(hidden, VOCABULARY - 1, x)))
        nats = nn.functional.cross_entropy(scores.transpose(1, 2), x, reduction="none")
        nats = torch.where(hidden, 2 * nats * self.scale, 0.0)
        return Losses(nats.sum(), {"diffusion": nats.detach()})


class TinyLoader:
    """Rows that depend on (step, row) only; every third row is half padding."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay

    def batch(self, step: int, part: range) -> tuple[Tensor, Tensor]:
        time.sleep(self.delay)
        row = torch.tensor([[step * 31 + row] for row in part])
        x = (row + torch.arange(LENGTH) * (1 + row % 3)) % 5
        valid = (torch.arange(LENGTH) < LENGTH // 2) | (row % 3 > 0)
        return x, valid


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
    own = {"loader", "validate", "sample", "say", "fingerprint", "seed"}
    given = {name: options.pop(name) for name in own & options.keys()}
    defaults = {"batch": 8, "lr": 0.01, "warmup": 3, "ema": 0.9, "device": "cpu"}
    config = TrainingConfig(**{**defaults, **options})

    def validate() -> TinyResult:
        x, valid = TinyLoader().batch(10_000, range(8))
        noise = method.noise(RowStream(1, 0, range(8), 8), valid)
        return TinyResult(float(method.nll(x, valid, noise).total / valid.sum()))

    return Trainer(
        method,
        given.pop("loader", TinyLoader(delay)),
        config,
        run,
        **{
            "seed": 3,
            "fingerprint": {"seed": 3, "training": asdict(config)},
            "validate": validate,
            "sample": lambda: ["a", "b"],
            "say": lambda line: None,
            **given,
        },
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    trainer(
        Path(sys.argv[1]), delay=0.005, steps=60, micro_batch=3, save_every=7, validate_every=5,
        log_every=4, sample_every=10, say=lambda line: print(line, flush=True),
    ).fit()  # fmt: skip
