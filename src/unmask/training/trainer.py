"""The training loop, top to bottom.

Data, noise and dropout of a step are functions of (seed, step, row) and everything else is in the
checkpoint, so a run that was killed and resumed ends with the same bits as one that was not.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from unmask.backbones import compile_backbone
from unmask.errors import UnmaskError
from unmask.methods import Method
from unmask.methods.base import targets
from unmask.randomness import RowStream
from unmask.training import checkpoint
from unmask.training.config import TrainingConfig
from unmask.training.curve import draw_curve
from unmask.training.device import (
    autocast,
    deterministic,
    dropout_keys,
    resolve_device,
)
from unmask.training.ema import EMA
from unmask.training.interrupt import Interrupted, interruptible
from unmask.training.logging import Log
from unmask.training.optimizer import NamedAdamW, clip_gradients, learning_rate
from unmask.training.progress import ProgressDisplay, bound
from unmask.training.state import TrainingState, ValidationResult
from unmask.training.storage import check_fit, full_disk, load_weights, read_json, read_weights
from unmask.transfer import to_device


@runtime_checkable
class BatchSource(Protocol):
    """Rows `part` of the global batch of a step: a pure function of its arguments."""

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "rows length"], Bool[Tensor, "rows length"]]: ...

    def given(self, step: int, part: range) -> Bool[Tensor, "rows length"] | None:
        """Which of their tokens are seen and not predicted; None for none."""

    def count(self, step: int, part: range) -> int:
        """How many of their tokens the mean loss is per."""


class Trainer:
    """Trains `method` in the folder `run`, or continues there; `fit` does it all."""

    def __init__(
        self,
        method: Method,
        loader: BatchSource,
        config: TrainingConfig,
        run: Path,
        seed: int,
        fingerprint: dict[str, Any],
        validate: Callable[[], ValidationResult] | None = None,
        sample: Callable[[], list[str]] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.device = resolve_device(config.device)
        self.method = method.to(self.device)
        self.loader, self.config, self.run, self.seed = loader, config, run, seed
        self.fingerprint = fingerprint
        self.validate, self.sample, self.say = validate, sample, say
        self.optimizer = NamedAdamW(self.method, config)
        self.ema = EMA(self.method, config.ema) if config.ema else None
        self.rows = range(config.batch)  # this process's share of the global batch
        self.state = TrainingState()
        self.losses: list[Tensor] = []  # (loss, norm) of steps the device may still be working on
        self.saved: Path | None = None  # last good checkpoint
        self.clock = time.perf_counter()
        self.mark = (0, 0.0)  # tokens and seconds at the last log line

    def fit(self) -> TrainingState:
        """Train to the last step, the end of patience or a signal, from the newest checkpoint on."""
        with full_disk(lambda: f"training stopped at step {self.state.step}; {self._last_good()}"):
            self._resume()
            if self._finished():
                self.say(f"{self.run} is already trained: {self._finished()}")
                return self.state
            self._loop()
            self.say(f"finished at step {self.state.step}: {self._finished()}")
            if draw_curve(self.run) is None:
                self.say("no loss curve: pip install 'unmask[log]' brings matplotlib")
        return self.state

    def weights(self) -> dict[str, Tensor]:
        """The weights to ship: averaged, if averages are kept."""
        return self.ema.tensors() if self.ema else self.method.state_dict()

    def _loop(self) -> None:
        config, state = self.config, self.state
        if config.compile:
            compile_backbone(self.method.backbone, config.micro_batch or config.batch)
        with ExitStack() as stack:
            log = Log(self.run, state.step, config.tensorboard)
            stack.callback(log.close)
            stack.enter_context(deterministic(config.deterministic))
            bar = stack.enter_context(ProgressDisplay(state.step, config.steps, self.say))
            signals = stack.enter_context(interruptible())
            self.method.train()
            self.clock = time.perf_counter()
            while not self._finished() and not signals:
                self._step()
                bar.advance(state.step)
                self._between_steps(log, bar)
            if self.saved != checkpoint.folder(self.run, state.step):
                self._save()
            if signals:
                self.say(f"stopped at step {state.step}, saved {self.saved}")
                raise Interrupted(state.step)

    def _step(self) -> None:
        """One optimizer step over the global batch, micro-batch by micro-batch."""
        config, step = self.config, self.state.step
        x, valid = self.loader.batch(step, self.rows)
        given = self.loader.given(step, self.rows)
        tokens = self.loader.count(step, self.rows)
        size = config.micro_batch or config.batch
        loss = torch.zeros((), device=self.device)
        for first in range(0, len(self.rows), size):
            part = self.rows[first : first + size]
            here = slice(first, first + size)
            seen = None if given is None else given[here]
            loss += self._backward(step, part, x[here], valid[here], seen, tokens)
        norm = clip_gradients(self.method, config.clip)
        self.optimizer.step(learning_rate(step, config))
        self.state.step += 1
        self.state.tokens += tokens
        if self.ema:
            self.ema.update(self.state.step)
        self.losses.append(torch.stack([loss, norm]))

    def _backward(
        self,
        step: int,
        part: range,
        x: Int64[Tensor, "rows length"],
        valid: Bool[Tensor, "rows length"],
        given: Bool[Tensor, "rows length"] | None,
        tokens: int,
    ) -> Tensor:
        """Add the gradient of these rows' share of the mean loss per token; the share itself."""
        stream = RowStream(self.seed, step, part, self.config.batch)
        noise = self.method.noise(stream, targets(valid, given))
        self.method.backbone.dropout_keys = dropout_keys(stream, self.device)
        with autocast(self.device, self.config.precision):
            nll = self.method.nll(to_device(x, self.device), valid, noise, given=given)
        share = nll.total / max(1, tokens)
        share.backward()
        self.method.backbone.dropout_keys = None  # they were of these rows
        return share.detach().float()

    def _between_steps(self, log: Log, bar: ProgressDisplay) -> None:
        """Whatever is due after this step; saving comes last, so that it covers the rest."""
        config = self.config
        if self._due(config.log_every):
            self._log(log, bar)
        if self.validate and self._due(config.validate_every):
            self._validate(log, self.validate)
        if self.sample and config.sample_every and self._due(config.sample_every):
            with self._resting():
                log.samples({"step": self.state.step, "samples": self.sample()})
        if self.state.step % config.save_every == 0:
            self._save()

    def _due(self, every: int) -> bool:
        """After every so many steps, and after the last one."""
        step = self.state.step
        return step == self.config.steps or (every > 0 and step % every == 0)

    def _log(self, log: Log, bar: ProgressDisplay) -> None:
        self._settle()
        state = self.state
        tokens, seconds = state.tokens - self.mark[0], state.seconds - self.mark[1]
        self.mark = (state.tokens, state.seconds)
        record = {
            "step": state.step,
            "tokens": state.tokens,
            "loss": math.fsum(loss for loss, _ in state.pending) / len(state.pending),
            "norm": max(norm for _, norm in state.pending),
            "lr": learning_rate(state.step - 1, self.config),
            "seconds": state.seconds,
            "tokens_per_second": tokens / max(seconds, 1e-9),
        }
        state.pending.clear()
        log.numbers(record)
        best = bound(state.best_nats, state.best_error) if state.best_step else ""
        bar.show(state.step, record["loss"], best, record["tokens_per_second"])

    def _validate(self, log: Log, validate: Callable[[], ValidationResult]) -> None:
        with self._resting():
            result = validate()
        state = self.state
        measured = {**result.to_dict(), "nats": result.nats, "error": result.error}
        better = state.judge(result)
        log.numbers({"step": state.step, "validation": measured})
        value = bound(result.nats, result.error)
        self.say(f"step {state.step}: {value} nats/token{', the best so far' if better else ''}")
        if better:
            checkpoint.save_best(self.run, self.weights(), {"step": state.step, **measured})

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Averaged weights in evaluation mode, off the clock."""
        self._settle()
        swapped = self.ema.swapped() if self.ema else nullcontext()
        self.method.eval()
        with swapped, torch.no_grad(), autocast(self.device, self.config.precision):
            yield
        self.method.train()
        self.clock = time.perf_counter()

    def _settle(self) -> None:
        """Wait for the device: losses become numbers, and one that is not finite ends the run."""
        state = self.state
        if self.losses:
            state.pending += [(loss, norm) for loss, norm in torch.stack(self.losses).tolist()]
            self.losses.clear()
        state.seconds += time.perf_counter() - self.clock
        self.clock = time.perf_counter()
        first = state.step - len(state.pending) + 1
        for step, (loss, norm) in enumerate(state.pending, first):
            if not math.isfinite(loss + norm):
                raise UnmaskError(
                    f"training stopped: step {step} has loss {loss:g} and gradient norm {norm:g}; "
                    "try a lower training.lr, a longer training.warmup, training.clip 1 or "
                    f"training.precision fp32; {self._last_good()}"
                )

    def _save(self) -> None:
        self._settle()
        parts = {"model": self.method.state_dict(), "optimizer": self.optimizer.tensors()}
        if self.ema:
            parts["ema"] = self.ema.tensors()
        content = {"state": self.state.to_dict(), "fingerprint": self.fingerprint}
        self.saved = checkpoint.save(self.run, self.state.step, self.config.keep, parts, content)
        self.clock = time.perf_counter()

    def _resume(self) -> None:
        """Take up the newest intact checkpoint, if there is one."""
        found = checkpoint.resumable(self.run, self.fingerprint, self.say)
        if found is None:
            self.run.mkdir(parents=True, exist_ok=True)
            return
        load_weights(self.method, read_weights(found), found / "model.safetensors")
        moments = read_weights(found, "optimizer")
        check_fit(moments, self.optimizer.tensors(), found / "optimizer.safetensors")
        self.optimizer.load(moments)
        if self.ema:
            averages = read_weights(found, "ema")
            check_fit(averages, self.ema.tensors(), found / "ema.safetensors")
            self.ema.load(averages)
        self.state = TrainingState.from_dict(read_json(found / "state.json")["state"])
        self.mark = (self.state.tokens, self.state.seconds)
        self.saved = found
        if not self._finished():
            self.say(f"resuming {self.run} at step {self.state.step}")

    def _finished(self) -> str:
        """Why there is nothing left to do, or an empty string."""
        config, state = self.config, self.state
        if state.step >= config.steps:
            return f"all {config.steps} steps are done"
        if config.patience and state.stale >= config.patience:
            return f"no better bound in {state.stale} validations since step {state.best_step}"
        return ""

    def _last_good(self) -> str:
        return f"last good checkpoint: {self.saved or 'none yet'}"
