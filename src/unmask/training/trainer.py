"""The training loop.

Data, noise and dropout of a step are functions of (seed, step, row). The checkpoint holds
everything else, the position in a stream included. A resumed run therefore ends with the same bits
as an uninterrupted one.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.backbones.compile import recompute_blocks
from unmask.data.loader import BatchSource
from unmask.data.rows.stream_rows import StreamLoader
from unmask.errors import UnmaskError
from unmask.files.storage import full_disk
from unmask.imports import install_command
from unmask.methods.method import Method
from unmask.runtime.device import (
    autocast,
    deterministic,
    emulation,
    resolve_device,
    resolve_precision,
)
from unmask.training.checkpoints.background_writer import BackgroundWriter
from unmask.training.checkpoints.checkpoint import Retention
from unmask.training.checkpoints.checkpointer import Checkpointer
from unmask.training.checkpoints.snapshot import Snapshot
from unmask.training.distributed.process_group import ProcessGroup, local_device
from unmask.training.distributed.strategy import choose_strategy
from unmask.training.ema import EMA
from unmask.training.graph_step import GraphStep
from unmask.training.health import Diverged, healthy, review
from unmask.training.logs.loggers import open_loggers
from unmask.training.logs.loss_curve import draw_curve
from unmask.training.logs.progress import ProgressDisplay, bound
from unmask.training.logs.run_log import Log
from unmask.training.micro_batch import MicroBatch, out_of_memory_error
from unmask.training.muon import OPTIMIZERS
from unmask.training.optimizer import learning_rate
from unmask.training.signals import Aborted, Interrupted, Signals, interruptible
from unmask.training.step import OptimizerStep, TrainStep
from unmask.training.train_state import TrainingState, ValidationResult
from unmask.training.training_config import DistributedConfig, TrainingConfig


@dataclass(frozen=True)
class TrainingRun:
    """The folder of a run, its identity, its processes and its messages.

    Args:
        folder: the run folder.
        seed: the seed of noise and dropout.
        fingerprint: the run configuration; a resumed run must have the same.
        say: prints a line.
        group: the process group; one process by default.
        distributed: the section `distributed` of a run configuration.
    """

    folder: Path
    seed: int = 0
    fingerprint: dict[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = print
    group: ProcessGroup = field(default_factory=ProcessGroup)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)


class Trainer:
    """Trains a method in a run folder, or resumes there.

    Args:
        method: the method to train, with its backbone.
        loader: the batches.
        config: the section `training` of a run configuration.
        run: the folder and the identity of the run.
        validate: measures the validation bound; None = no validation.
        sample: generates texts for the log; None = no samples.
        auto_batch: True to search for the largest micro-batch that fits.
        stream: the loader of a streamed corpus, whose position checkpoints hold.
    """

    def __init__(
        self,
        method: Method,
        loader: BatchSource,
        config: TrainingConfig,
        run: TrainingRun,
        *,
        validate: Callable[[], ValidationResult] | None = None,
        sample: Callable[[], list[str]] | None = None,
        auto_batch: bool = False,
        stream: StreamLoader | None = None,
    ) -> None:
        self.device = local_device(resolve_device(config.device))
        config = replace(config, precision=resolve_precision(config.precision, self.device))
        self.group, folder = run.group, run.folder
        self.strategy = choose_strategy(run.distributed, self.group, self.device, config.precision)
        if config.seconds and self.group.world > 1:
            raise UnmaskError(
                "training.seconds works in one process, since processes have clocks of their own: "
                "set training.steps"
            )
        if auto_batch and not self.strategy.retries:
            raise UnmaskError(
                "--auto-batch works in one process only: set distributed.strategy plain"
            )
        if config.round_weights != "none" and run.distributed.strategy == "fsdp":
            raise UnmaskError(
                "training.round_weights rounds whole matrices, and fsdp shards them: "
                "set distributed.strategy ddp"
            )
        recompute_blocks(method.backbone, config.checkpoint_activations)
        method.begin_training()
        self.method = method  # for validation and sampling
        self.trained = self.strategy.place(method)  # the same object, unless FSDP shards it
        self.loader, self.config, self.run = loader, config, folder
        self.validate, self.sample = validate, sample
        self.say = run.say if self.group.main else _silence
        self.optimizer = OPTIMIZERS[config.optimizer](self.trained, config)
        self.ema = EMA(self.trained, config.ema) if config.ema else None
        rows = self.group.share(config.batch)  # this process's rows of the global batch
        self.optimizer_step = OptimizerStep(
            *(self.trained, self.optimizer, self.strategy, config.clip),
            rounds=config.round_weights != "none",
        )
        self.train_step = TrainStep(self.optimizer_step, loader, rows, config.batch, run.seed)
        self.state = TrainingState()
        self.losses: list[Tensor] = []  # [2] each: loss and norm, perhaps not computed yet
        snapshot = Snapshot(self.strategy, self.trained, self.optimizer, self.ema)
        self.saver = BackgroundWriter(
            folder, Retention(max(config.keep, 1), config.keep_best, config.keep_every)
        )
        self.checkpointer = Checkpointer(
            folder, run.fingerprint, snapshot, self.saver, self.group, self.say, stream
        )
        self.micro = MicroBatch(len(rows), config.micro_batch, auto_batch, run.say)
        self.graph_step = self._graph_step() if config.cuda_graph else None
        self.signals = Signals()
        self.start: ValidationResult | None = None  # the validation of the initial weights
        self.best: ValidationResult | None = None  # the best validation since the start
        self.clock = time.perf_counter()
        self.pause = 0.0  # seconds of the last validation
        self.logged = (0, 0.0)  # tokens and seconds at the last log line
        self.out_of_time = False  # True after the step in which `training.seconds` ran out

    def fit(self, begun: Path | None = None) -> TrainingState:
        """Trains from the newest checkpoint to the last step, the end of patience or a signal.

        Args:
            begun: the newest checkpoint, if the caller has checked its hashes and configuration.

        Returns:
            The counters of the run at its end.
        """
        stopped = lambda: f"training stopped at step {self.state.step}; {self._last_good()}"  # noqa: E731
        with full_disk(stopped), out_of_memory_error(lambda: self.micro.size), ExitStack() as stack:
            stack.enter_context(self.group.watched(stopped))
            stack.callback(self.saver.close)
            self._resume(begun)
            self.out_of_time = 0 < self.config.seconds <= self.state.seconds
            if self._finished():
                self.say(f"{self.run} is already trained: {self._finished()}")
                return self.state
            if self.checkpointer.ended:
                raise UnmaskError(
                    f"{self.run} is complete and kept no checkpoint to resume from (training.keep 0): "
                    f"train it further in another folder with --init-from {self.run}"
                )
            self._prepare()
            self._log_start()
            with interruptible(
                self.say
            ) as self.signals:  # outside `_loop`: a rollback keeps the signals
                while skipped := self._loop():
                    self._roll_back(skipped)
            self.say(f"finished at step {self.state.step}: {self._finished()}")
            if self.group.main and draw_curve(self.run) is None:
                self.say(f"no loss curve: matplotlib is missing; {install_command('log')}")
        return self.state

    def weights(self) -> dict[str, Tensor]:
        """The averaged (EMA) weights, or the trained weights if `training.ema` is 0.

        All processes must call it.

        Returns:
            Unsharded tensors by name in the main process.
        """
        return self.checkpointer.snapshot.averages()

    def measure_start(self) -> ValidationResult | None:
        """Measures the validation bound of the initial weights, for a run that starts from a model.

        Returns:
            The result; None without a validation.
        """
        if self.validate is None:
            return None
        with self._evaluating():
            self.start = self.validate()
        self.say(f"before training: {bound(self.start.nats, self.start.error)} nats/token")
        return self.start

    def _log_start(self) -> None:
        """Logs the validation of the initial weights.
        A start without a checkpoint has empty logs.
        """
        if self.start is None or self.state.step:
            return
        measured = {**self.start.to_dict(), "nats": self.start.nats, "error": self.start.error}
        with closing(Log(self.run, enabled=self.group.main)) as log:
            log.numbers({"step": 0, "validation": measured})

    def _prepare(self) -> None:
        """Compiles the network for its micro-batch size, or for any size during a search."""
        if self.config.compile:
            rows = None if self.micro.search else self.micro.size
            self.strategy.compile(self.trained, rows)

    def _loop(self) -> int:
        """Trains to the end and returns 0, or returns the skipped steps that require a rollback."""
        config, state, signals = self.config, self.state, self.signals
        with ExitStack() as stack:
            names = config.log_to if self.group.main else ()
            fingerprint = self.checkpointer.fingerprint
            loggers = open_loggers(names, self.run, state.step, fingerprint, self.say)
            log = stack.enter_context(closing(Log(self.run, loggers, self.group.main)))
            stack.enter_context(deterministic(config.deterministic))
            stack.enter_context(emulation(self.device, config.precision))
            bar = stack.enter_context(
                ProgressDisplay(
                    state.step,
                    config.steps,
                    self.say,
                    not self.group.main,
                    config.seconds and config.seconds - state.seconds,
                    config.validate_every if self.validate else None,
                    self.pause,
                )
            )
            self.trained.train()
            self.clock = time.perf_counter()
            stop = False
            try:
                if state.owed:
                    self.saver.requested = None  # the saved checkpoint lacks this work: save again
                    self._between_steps(log, bar)
                while not (stop := self.group.any(bool(signals))) and not self._finished():
                    with self.group.stepping():
                        self._step()
                    self.saver.check()
                    bar.advance(state.step, self._last_loss)
                    self._between_steps(log, bar)
            except Diverged as diverged:
                return diverged.steps
            if not stop and config.keep == 0 and state.best_step:
                self.saver.wait()
                self.checkpointer.save(state, good=True, ended=True)
            elif self.saver.requested != state.step:
                self._save()
            self.saver.wait()
            if stop:
                self.say(f"stopped at step {state.step}, saved {self.saver.last}")
                self.group.any(False)  # no process exits before the checkpoint is on the disk
                raise Interrupted(state.step)
        return 0

    def _step(self) -> None:
        """Takes one optimizer step over the global batch."""
        config, state = self.config, self.state
        tokens = self.loader.count(state.batch_number, range(config.batch))  # of all processes
        units = config.batch if self.method.capabilities.per_row else tokens
        lr = learning_rate(state.step, config, self._spent)
        number, result = state.batch_number, None
        if self.graph_step:
            result = self.graph_step.run(*self.train_step.tensors(number), units, lr)
        if result is None:
            add = partial(self.train_step.add, number, units)
            clear = self.optimizer.zero_grad
            loss = self.micro.run(add, clear) if self.micro.search else add(self.micro.size)
            result = self.optimizer_step.finish(self.strategy.total(loss), lr)
        state.step += 1
        state.tokens += tokens
        if self.ema:
            self.ema.update(state.step)
        self.losses.append(result)
        self.out_of_time = self._has_no_time()

    @property
    def _spent(self) -> float:
        """Seconds of all training steps so far."""
        return self.state.seconds + time.perf_counter() - self.clock

    def _has_no_time(self) -> bool:
        return 0 < self.config.seconds <= self._spent

    def _graph_step(self) -> GraphStep | None:
        """The step as a CUDA graph; None if the device,
        the strategy or micro-batches exclude it.
        """
        whole = self.micro.pieces == 1 and not self.micro.search
        if self.device.type != "cuda" or not self.strategy.graphs or not whole:
            return None
        return GraphStep(self.optimizer_step, self.trained.loss_of)

    def _between_steps(self, log: Log, bar: ProgressDisplay) -> None:
        """Logs, validates, samples and saves if due, or if an interrupted run left it undone.

        Saving is last, so that the checkpoint includes the effects of the others.
        """
        config, state = self.config, self.state
        if self._due(config.log_every) and not state.owed:
            self._log(log, bar)
        try:
            if self.validate and self._due(config.validate_every) and state.owed != "sample":
                state.owed = "validate"
                self._validate(log, self.validate)
                bar.paused(self.pause)
            if self.sample and config.sample_every and self._due(config.sample_every):
                state.owed = "sample"
                self._sample(log, self.sample)
        except Aborted:
            return  # a resumed run repeats it
        state.owed = ""
        if state.step % config.save_every == 0:
            self._collect_losses()
            if healthy(state, config.max_skips):
                self._save(good=True)

    def _last_loss(self) -> float:
        """The loss of the last step; waits for the device."""
        return float(self.losses[-1][0]) if self.losses else self.state.pending[-1][0]

    def _due(self, every: int) -> bool:
        """True after each multiple of `every` steps and after the last step."""
        step = self.state.step
        last = step == self.config.steps or self.out_of_time
        return last or (every > 0 and step % every == 0)

    def _log(self, log: Log, bar: ProgressDisplay) -> None:
        self._collect_losses()
        state = self.state
        tokens, seconds = state.tokens - self.logged[0], state.seconds - self.logged[1]
        self.logged = (state.tokens, state.seconds)
        summary = review(state, self.config)
        for spike in summary.spikes:
            log.numbers({"step": state.step, "spike": spike})
        if summary.skipped:
            self.say(f"step {state.step}: {summary.skipped} steps were not finite and are skipped")
        rate = tokens / max(seconds, 1e-9)
        lr = learning_rate(state.step - 1, self.config, state.seconds)
        line = {"step": state.step, "tokens": state.tokens, **summary.to_dict(), "lr": lr}
        weight = self.method.loss_weight
        log.numbers(line | ({"loss_weight": weight} if weight else {}))
        log.times({"step": state.step, "seconds": state.seconds, "tokens_per_second": rate})
        best = bound(state.best_nats, state.best_error) if state.best_step else ""
        bar.show(state.step, summary.loss, best, rate)
        if 0 < self.config.max_skips <= summary.longest:
            raise Diverged(summary.longest)

    def _validate(self, log: Log, validate: Callable[[], ValidationResult]) -> None:
        with self._evaluating(), self._abortable():
            result = validate()
        state = self.state
        measured = {**result.to_dict(), "nats": result.nats, "error": result.error}
        newest = bool(self.method.capabilities.distills)
        better = state.record_validation(result, newest)
        log.numbers({"step": state.step, "validation": measured})
        value = bound(result.nats, result.error)
        best = ", the best so far" if better and not newest else ""
        self.say(f"step {state.step}: {value} nats/token{best}")
        if better:
            self.best = result
            weights = self.weights()
            if self.group.main:
                self.saver.save_best(weights, {"step": state.step, **measured})

    def _sample(self, log: Log, sample: Callable[[], list[str]]) -> None:
        with self._evaluating(), self._abortable():
            texts = sample()
        log.samples({"step": self.state.step, "samples": texts})

    def _abortable(self) -> AbstractContextManager[None]:
        """Lets a signal abort validation or sampling, in a run of one process.

        With several processes the work completes: the others wait for it.
        """
        return self.signals.abortable() if self.group.world == 1 else nullcontext()

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """A context with averaged weights in evaluation mode; its time is not training time."""
        self._collect_losses()
        began = time.perf_counter()
        self.method.eval()
        averaged = self.strategy.averages_loaded(self.method, self.trained, self.ema)
        with averaged, torch.no_grad(), autocast(self.device, self.config.precision):
            yield
        self.trained.train()
        self.clock = time.perf_counter()
        self.pause = self.clock - began

    def _collect_losses(self) -> None:
        """Waits for the device, then moves the losses and the elapsed time to the state."""
        state = self.state
        if self.losses:
            state.pending += [(loss, norm) for loss, norm in torch.stack(self.losses).tolist()]
            self.losses.clear()
        state.seconds += time.perf_counter() - self.clock
        self.clock = time.perf_counter()

    def _save(self, good: bool = False) -> None:
        """Saves a checkpoint; a rollback may use a good one."""
        self._collect_losses()
        self.checkpointer.save(self.state, good)
        self.clock = time.perf_counter()

    def _resume(self, begun: Path | None) -> None:
        """Resumes at the newest intact checkpoint, if there is one."""
        if self._adopt(self.checkpointer.newest(begun)) and not self._finished():
            self.say(f"resuming {self.run} at step {self.state.step}")

    def _adopt(self, found: TrainingState | None) -> bool:
        """Adopts the state of a loaded checkpoint; returns False if there is none."""
        if found:
            self.state = found
            self.logged = (found.tokens, found.seconds)
        return found is not None

    def _roll_back(self, skipped: int) -> None:
        """Returns to the last good checkpoint and continues with the next batches."""
        self.saver.wait()
        failed = self.state
        allowed = failed.rollbacks < self.config.max_rollbacks
        if not (allowed and self._adopt(self.checkpointer.last_good())):
            usual = (
                "try a lower training.lr, a longer training.warmup, training.clip 1 or "
                "training.precision fp32"
            )
            raise UnmaskError(
                f"training stopped at step {failed.step}: {skipped} steps in a row had a loss or "
                f"gradient that is not finite; {self.method.diagnosis() or usual}; {self._last_good()}"
            )
        if self.state.best_step != failed.best_step:
            self.best = None  # it is of steps that the run repeats
        note = self.state.skip_batches_of(failed)
        Log(self.run, enabled=self.group.main).numbers(note)
        self.say(
            f"step {failed.step}: {skipped} steps in a row were not finite; the run returns to step "
            f"{self.state.step} and continues with later batches"
        )

    def _finished(self) -> str:
        """The reason why training is complete, or an empty text."""
        config, state = self.config, self.state
        if state.owed:
            return ""
        if state.step >= config.steps:
            return f"all {config.steps} steps are done"
        if self.out_of_time:
            return f"all {config.seconds:g} seconds are spent"
        if config.patience and state.stale >= config.patience:
            return f"no better bound in {state.stale} validations since step {state.best_step}"
        return ""

    def _last_good(self) -> str:
        return f"last good checkpoint: {self.saver.last or 'none yet'}"


def _silence(message: str) -> None:
    """Prints nothing: the `say` of all processes but the main one."""
