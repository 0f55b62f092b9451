"""Loggers of a run: TensorBoard, Weights & Biases and plugins."""

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from unmask.imports import install_command
from unmask.registry import Registry


class Unavailable(Exception):
    """A logger cannot open; the message states the mend, and training continues without it."""


class Logger(ABC):
    """A destination for the records of a run.

    If a logger fails, the run prints one line, closes it and continues to train.
    A missing package raises ImportError when the logger opens.
    """

    install: ClassVar[str] = ""  # the command that installs the package

    @abstractmethod
    def __init__(self, run: Path, step: int, config: Mapping[str, Any]) -> None:
        """Opens the logger. Records of later steps, from before a resume or rollback, are void.

        Args:
            run: the run folder.
            step: the optimizer steps done.
            config: the run configuration.
        """

    @abstractmethod
    def write(self, record: Mapping[str, Any]) -> None:
        """Writes a record.

        Args:
            record: numbers, nested dicts of numbers and lists of texts; `step` is always present.
        """

    @abstractmethod
    def close(self) -> None:
        """Flushes and closes the logger."""


LOGGERS: Registry[Logger] = Registry("logger")


def open_loggers(
    names: Iterable[str],
    run: Path,
    step: int,
    config: Mapping[str, Any],
    say: Callable[[str], None],
) -> list[Logger]:
    """Opens loggers by name; one that cannot open is left out,
    with a line that states the reason.
    """
    opened: list[Logger] = []
    for name in names:
        kind = LOGGERS[name]
        try:
            opened.append(_Guarded(kind(run, step, config), name, say))
        except ImportError:
            say(f"no log to {name}: it is not installed; {kind.install or f'pip install {name}'}")
        except Exception as error:
            say(f"no log to {name}: {_reason(error)}")
    return opened


class _Guarded(Logger):
    """A logger that reports its first failure in one line and is then disabled."""

    def __init__(self, logger: Logger, name: str, say: Callable[[str], None]) -> None:
        self._logger: Logger | None = logger
        self._name, self._say = name, say

    def write(self, record: Mapping[str, Any]) -> None:
        if self._logger is None:
            return
        try:
            self._logger.write(record)
        except Exception as error:
            self._say(f"no more log to {self._name} from step {record['step']}: {_reason(error)}")
            with suppress(Exception):
                self._logger.close()
            self._logger = None

    def close(self) -> None:
        if self._logger is None:
            return
        try:
            self._logger.close()
        except Exception as error:
            self._say(f"the log to {self._name} may lack its last records: {_reason(error)}")
        self._logger = None


def _reason(error: Exception) -> str:
    """An error in one line."""
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, Unavailable):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@LOGGERS.register("tensorboard")
class TensorBoard(Logger):
    """Writes curves and texts for TensorBoard to tensorboard/ in the run folder."""

    install = install_command("log")

    def __init__(self, run: Path, step: int, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)

    def write(self, record: Mapping[str, Any]) -> None:
        for name, value in leaves(record):
            if isinstance(value, list):
                text = "\n\n---\n\n".join(map(str, value))
                self.writer.add_text(name, text, record["step"])
            else:
                self.writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self.writer.close()


@LOGGERS.register("wandb")
class WeightsAndBiases(Logger):
    """Sends curves, texts and the configuration to Weights & Biases;
    WANDB_… variables configure it.
    """

    install = install_command("wandb")

    def __init__(self, run: Path, step: int, config: Mapping[str, Any]) -> None:
        import wandb

        self.table = wandb.Table
        try:
            self.wandb_run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "unmask"),
                name=os.environ.get("WANDB_NAME", run.name),
                id=_run_id(run),  # a resumed run continues its curves
                resume="allow",
                dir=str(run),
                config=dict(config),
            )
        except wandb.Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise Unavailable(f"{reason}; WANDB_MODE=offline logs to {run} instead") from None
        # The x-axis is our step: after a rollback a run repeats steps, which wandb's own step
        # refuses.
        self.wandb_run.define_metric("step", hidden=True)
        self.wandb_run.define_metric("*", step_metric="step")

    def write(self, record: Mapping[str, Any]) -> None:
        found: dict[str, Any] = {"step": record["step"]}
        for name, value in leaves(record):
            texts = isinstance(value, list)
            found[name] = self.table(["text"], [[str(v)] for v in value]) if texts else value
        self.wandb_run.log(found)

    def close(self) -> None:
        self.wandb_run.finish()


def _run_id(run: Path) -> str:
    """The id of a run at Weights & Biases: random, and stored in the run folder."""
    file = run / "wandb" / "id"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(secrets.token_hex(8), encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and lists of texts of a record by path, such as validation/nats, without the step."""
    for key, value in tree.items():
        if isinstance(value, list | tuple) and not all(isinstance(item, str) for item in value):
            value = {str(index): item for index, item in enumerate(value)}  # ends of an interval
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}/")
        elif isinstance(value, list) or (isinstance(value, int | float) and key != "step"):
            yield f"{prefix}{key}", value
