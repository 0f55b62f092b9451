"""Reads a run folder: its configuration, its log and its number of parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.config.components import outline
from unmask.config.run_config import RunConfig, flatten, load_recipe, resolve
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.errors import UnmaskError
from unmask.training.logs.run_log import read_log
from unmask.vocabulary import Vocabulary


@dataclass(frozen=True)
class Parameters:
    """The number of parameters of a network, with and without embedding and head."""

    total: int
    non_embedding: int


@dataclass(frozen=True)
class Run:
    """The content of a run folder."""

    name: str
    folder: Path
    config: RunConfig
    log: list[dict[str, Any]]

    @property
    def losses(self) -> list[tuple[int, float]]:
        """Step and training loss of each log record."""
        return [(record["step"], record["loss"]) for record in self.log if "loss" in record]

    @property
    def validations(self) -> list[tuple[int, float, float]]:
        """Step, bound and standard error of each validation."""
        found = [record for record in self.log if "validation" in record]
        return [(r["step"], r["validation"]["nats"], r["validation"]["error"]) for r in found]

    @property
    def step(self) -> int:
        return max(record["step"] for record in self.log)

    @property
    def tokens(self) -> int:
        """The number of tokens trained on so far, over all epochs."""
        return int(self._last("tokens"))

    @property
    def seconds(self) -> float:
        """Seconds of all training steps, without validation and saving."""
        return float(self._last("seconds"))

    @property
    def parameters(self) -> Parameters:
        return count_parameters(self.config, load_tokenizer(self.folder / "tokenizer").vocabulary)

    def _last(self, name: str) -> float:
        return next((record[name] for record in reversed(self.log) if name in record), 0)


def read_run(folder: str | Path, name: str | None = None) -> Run:
    """Reads a run folder; raises an error that names the missing part."""
    path = Path(folder)
    if not path.is_dir():
        raise UnmaskError(f"no run {str(folder)!r}: give a folder that 'unmask train' made")
    if not (path / "config.yaml").is_file():
        raise UnmaskError(
            f"{str(folder)!r} is no run: it has no config.yaml; give a folder that 'unmask train' made"
        )
    config = resolve(load_recipe(str(path / "config.yaml")))
    log = [record for record in read_log(path) if "step" in record]
    if not log:
        raise UnmaskError(f"{str(folder)!r} has no log: train some steps there with 'unmask train'")
    return Run(name or path.resolve().name, path, config, log)


def read_runs(folders: Sequence[str | Path]) -> list[Run]:
    """Runs with unique names: the folder's name, or its path if two names are equal."""
    paths = list(dict.fromkeys(Path(folder) for folder in folders))
    short = [path.resolve().name for path in paths]
    return [
        read_run(path, name if short.count(name) == 1 else str(path))
        for path, name in zip(paths, short, strict=True)
    ]


def count_parameters(config: RunConfig, vocabulary: Vocabulary) -> Parameters:
    """The number of parameters of a configuration, counted on the meta device."""
    sizes = {name: p.numel() for name, p in outline(config, vocabulary).named_parameters()}
    embedding = ("backbone.embedding.", "backbone.head.")
    rest = sum(size for name, size in sizes.items() if not name.startswith(embedding))
    return Parameters(sum(sizes.values()), rest)


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The settings in which runs differ, by dotted name; None if a run has no such setting."""
    flat = [flatten(run.config) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    values = {name: [settings.get(name) for settings in flat] for name in names}
    return {name: each for name, each in values.items() if any(v != each[0] for v in each)}
