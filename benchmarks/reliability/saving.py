"""Cost of checkpoints: a recipe trained with and without them, at the recipe's own interval.

    python benchmarks/reliability saving --recipe demo

Both runs take the same steps from the same weights and validate at the same steps. One of them writes nothing. Other
work on the machine distorts both clocks. The cost of checkpoints is therefore also measured directly: the seconds that
the training loop waited, and the processor seconds of the thread that writes.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from benchmarks.room import script_parser
from unmask.config.components import build_method
from unmask.config.run_config import RunConfig, load_recipe, resolve, to_dict
from unmask.data.load import Data, load_data
from unmask.data.loader import Loader
from unmask.data.rows.first_rows import FirstRows
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import likelihood
from unmask.training.checkpoints.background_writer import BackgroundWriter, Parts
from unmask.training.trainer import Trainer, TrainingRun


class Timed(BackgroundWriter):
    """A saver that measures how long the training loop waits for it."""

    still = 0.0  # seconds that the loop waited
    writing = 0.0  # processor seconds of the writing thread
    saves = 0

    def save(self, step: int, parts: Parts, state: dict[str, Any], logs: Mapping[str, int]) -> None:
        self.saves += 1
        self._timed(lambda: super(Timed, self).save(step, parts, state, logs))

    def save_best(self, weights: Mapping[str, Tensor], state: dict[str, Any]) -> None:
        self._timed(lambda: super(Timed, self).save_best(weights, state))

    def wait(self, *kinds: str) -> None:
        self._timed(lambda: super(Timed, self).wait(*kinds))

    def _start(
        self, kind: str, what: str, parts: Parts, write: Callable[[Parts], Path | None]
    ) -> None:
        def timed(copies: Parts) -> Path | None:
            began = time.thread_time()
            try:
                return write(copies)
            finally:
                self.writing += time.thread_time() - began

        super()._start(kind, what, parts, timed)

    def _timed(self, work: Callable[[], None]) -> None:
        began, before = time.perf_counter(), self.still
        work()
        self.still = before + time.perf_counter() - began  # nested calls are counted once


class Unsaved(Timed):
    """A saver that writes nothing."""

    def save(self, step: int, parts: Parts, state: dict[str, Any], logs: Mapping[str, int]) -> None:
        self.requested = step

    def save_best(self, weights: Mapping[str, Tensor], state: dict[str, Any]) -> None:
        pass


def measure(config: RunConfig, data: Data, kind: type[Timed]) -> dict[str, Any]:
    """Trains once with a saver. Returns its times."""
    torch.manual_seed(config.seed)
    method = build_method(config, data.tokenizer.vocabulary)
    valid = FirstRows(data.valid, config.training.validation_rows)

    def validate() -> Bound:
        return likelihood(method, valid, seed=config.seed, batch=config.training.batch)

    with TemporaryDirectory() as folder:
        loader = Loader(data.train, config.training.batch, config.seed)
        run = TrainingRun(Path(folder), config.seed, to_dict(config), lambda line: None)
        trainer = Trainer(method, loader, config.training, run, validate=validate)
        saver = trainer.saver = trainer.checkpointer.saver = kind(
            Path(folder), trainer.saver.retention
        )
        clock, processor = time.perf_counter(), time.process_time()
        trainer.fit()
        return {
            "saver": kind.__name__,
            "seconds": time.perf_counter() - clock,
            "processor_seconds": time.process_time() - processor,
            "loop_stood_still": saver.still,
            "writing_thread": saver.writing,
            "checkpoints": saver.saves,
            "megabytes_each": size(Path(folder)) / 1e6,
        }


def size(run: Path) -> int:
    """The bytes of the newest checkpoint."""
    found = sorted((run / "checkpoints").glob("step-*"))
    return sum(path.stat().st_size for path in found[-1].rglob("*.*")) if found else 0


def main(argv: list[str] | None = None) -> int:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--recipe", default="demo")
    add("--steps", type=int, default=0, help="training steps instead of the recipe's")
    args = parser.parse_args(argv)
    overrides = [("training.steps", str(args.steps))] if args.steps else []
    config = resolve(load_recipe(args.recipe), overrides)
    data = load_data(config.data)
    rows = [measure(config, data, kind) for kind in (Unsaved, Timed)]
    for row in rows:
        print(
            json.dumps({key: round(x, 2) if isinstance(x, float) else x for key, x in row.items()})
        )
    without, with_them = rows
    for name in ("seconds", "processor_seconds"):
        print(f"{name}: {100 * (with_them[name] / without[name] - 1):+.2f}%")
    took = with_them["loop_stood_still"] + with_them["writing_thread"]
    print(f"standing still and writing: {100 * took / with_them['processor_seconds']:.2f}%")
    return 0
