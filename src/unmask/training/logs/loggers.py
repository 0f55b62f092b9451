"""Where a run's numbers go beside its own files, each place by its name."""

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from unmask.registry import Registry


class Unavailable(Exception):
    """A place that cannot be written to now; the message says what to do. Training goes on."""


class Logger(ABC):
    """Takes the records of a run as they are made; what its package lacks is told when it is opened.

    An error in it is told once, and it gets no more records: training goes on.
    """

    install: ClassVar[str] = ""  # what pip is to install

    @abstractmethod
    def __init__(self, run: Path, step: int, config: Mapping[str, Any]) -> None:
        """Open for a run that stands at `step`: what was logged beyond that step is void."""

    @abstractmethod
    def write(self, record: Mapping[str, Any]) -> None:
        """A record of its `step`: numbers, sections of them, and lists of texts."""

    @abstractmethod
    def close(self) -> None:
        """Nothing more comes."""


LOGGERS: Registry[Logger] = Registry("logger")


def open_loggers(
    names: Iterable[str],
    run: Path,
    step: int,
    config: Mapping[str, Any],
    say: Callable[[str], None],
) -> list[Logger]:
    """The loggers of these names; one that is not there is told in a line, and left out."""
    opened: list[Logger] = []
    for name in names:
        kind = LOGGERS[name]
        try:
            opened.append(_Guarded(kind(run, step, config), name, say))
        except ImportError:
            say(f"no log to {name}, which is not installed: pip install '{kind.install or name}'")
        except Exception as error:
            say(f"no log to {name}: {_reason(error)}")
    return opened


class _Guarded(Logger):
    """A logger whose failure is told once, and not a reason to stop training: it is written to no more."""

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
            self._say(f"the log to {self._name} may lack its end: {_reason(error)}")
        self._logger = None


def _reason(error: Exception) -> str:
    """An error in one line."""
    told = str(error).strip().partition("\n")[0]
    if isinstance(error, Unavailable):
        return told
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


@LOGGERS.register("tensorboard")
class TensorBoard(Logger):
    """Curves and texts for TensorBoard, in the run's folder tensorboard/."""

    install = "unmask[log]"

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
    """Curves, texts and the configuration for Weights & Biases; WANDB_… variables set the rest."""

    install = "unmask[wandb]"

    def __init__(self, run: Path, step: int, config: Mapping[str, Any]) -> None:
        import wandb

        self.table = wandb.Table
        try:
            self.online = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "unmask"),
                name=os.environ.get("WANDB_NAME", run.name),
                id=_identity(run),  # a resumed run goes on with its curves
                resume="allow",
                dir=str(run),
                config=dict(config),
            )
        except wandb.Error as error:
            reason = str(error).strip().partition("\n")[0]
            raise Unavailable(f"{reason}; WANDB_MODE=offline keeps it in {run}") from None
        # our step is the axis: a run that went back writes steps again, which wandb's own refuses
        self.online.define_metric("step", hidden=True)
        self.online.define_metric("*", step_metric="step")

    def write(self, record: Mapping[str, Any]) -> None:
        found: dict[str, Any] = {"step": record["step"]}
        for name, value in leaves(record):
            texts = isinstance(value, list)
            found[name] = self.table(["text"], [[str(v)] for v in value]) if texts else value
        self.online.log(found)

    def close(self) -> None:
        self.online.finish()


def _identity(run: Path) -> str:
    """The name by which a run is found again: drawn once, and kept in its folder."""
    file = run / "wandb" / "id"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(secrets.token_hex(8), encoding="utf-8")
    return file.read_text(encoding="utf-8").strip()


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers and lists of texts by their place, such as validation/nats; the step is not among them."""
    for key, value in tree.items():
        if isinstance(value, list | tuple) and not all(isinstance(item, str) for item in value):
            value = {str(index): item for index, item in enumerate(value)}  # an interval's ends
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}/")
        elif isinstance(value, list) or (isinstance(value, int | float) and key != "step"):
            yield f"{prefix}{key}", value
