"""Runs of a table of the paper at one scale, trained where they are missing."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unmask.config.run_config import RunConfig, load_recipe, resolve
from unmask.data.data_config import DataConfig
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.extensions.report.measurements import Budget, Measuring
from unmask.extensions.report.published_tables import PUBLISHED, Published
from unmask.runs.run_folder import read_run
from unmask.runs.train import train

Say = Callable[[str], None]
Overrides = Sequence[tuple[str, str]]

# D3PM must learn to copy visible tokens. Its reconstruction term on a share of the rows suffices.
_D3PM = {"method": "d3pm", "method.copied": "0.125"}

# The run of each row, as changes to the recipe of the scale. The suffix "-seed-1" names the same
# run with the next seed.
RUNS: dict[str, dict[str, str]] = {
    "ar": {"method": "autoregressive", "backbone": "causal"},
    "mdlm": {},
    "sedd": {"method": "sedd", "backbone.time_conditioning": "true"},
    "mdlm-1000": {"method.steps": "1000"},
    "no-carry-over": {**_D3PM, "method.zero_masking": "true"},
    "d3pm": _D3PM,
}
_SEED = "-seed-"

# Tables whose rows are different networks, with the number of seeds of a row (default 1).
SEEDS: dict[str, dict[str, int]] = {"table1": {"mdlm": 2}, "table8": {}}


@dataclass(frozen=True)
class Scale:
    """The size of a reproduction."""

    recipe: str
    budget: Budget
    own_text: bool  # True if the user must give the text


SCALES = {
    "tiny": Scale("reproduce-tiny", Budget(rows=128, draws=8), own_text=False),
    "small": Scale("reproduce-small", Budget(rows=0, draws=8), own_text=True),
}


@dataclass(frozen=True)
class Request:
    """Arguments of a reproduction."""

    table: str
    scale: str = "tiny"
    runs: Path | None = None  # the folder of all runs
    data: str = ""
    valid: str = ""
    test: str = ""  # text to measure on; "" = the validation text
    only: Sequence[str] = ()  # rows; () = all
    seeds: int = 1  # seeds of every row, at least
    overrides: Overrides = ()  # changes to the recipe's settings
    budget: Mapping[str, int] = field(default_factory=dict)  # changes to the scale's budget
    device: str = "auto"
    say: Say = print

    def __post_init__(self) -> None:
        if self.table not in PUBLISHED:
            raise unknown("table", self.table, PUBLISHED)
        if self.scale not in SCALES:
            raise unknown("scale", self.scale, SCALES)
        if SCALES[self.scale].own_text and not self.data:
            raise UnmaskError(
                f"scale {self.scale} ships no text: give --data, and --valid for a separate text "
                "to measure on"
            )
        if self.seeds < 1:
            raise UnmaskError(f"--seeds must be 1 or more, not {self.seeds}")
        if self.seeds > 1 and self.table not in SEEDS:
            raise UnmaskError(
                f"{self.table} measures a single run: --seeds is for {' and '.join(SEEDS)}"
            )
        for name in self.only:
            if name not in self.published.figures:
                raise unknown(f"row of {self.table}", name, self.published.figures)
        _ = self.full_budget  # raises an error now, not after hours of training

    @property
    def published(self) -> Published:
        return PUBLISHED[self.table]

    @property
    def full_budget(self) -> Budget:
        """The scale's budget with the changes of `budget`."""
        return replace(SCALES[self.scale].budget, **self.budget)

    @property
    def folder(self) -> Path:
        return self.runs or Path("runs") / f"reproduce-{self.scale}"

    @property
    def rows(self) -> list[str]:
        """The rows to reproduce, in the paper's order."""
        return [name for name in self.published.figures if not self.only or name in self.only]

    def seeds_of(self, row: str) -> list[str]:
        """The runs whose mean is a row: the seeds to train, and those that are trained already."""
        wanted = max(self.seeds, SEEDS[self.table].get(row, 1))
        first = [row, *(f"{row}{_SEED}{seed}" for seed in range(1, wanted))]
        return list(dict.fromkeys([*first, *self.trained_seeds(row)]))

    def trained_seeds(self, row: str) -> list[str]:
        """The runs of a row that are trained already."""
        named = re.compile(re.escape(row + _SEED) + "([1-9][0-9]*)")
        matches = (named.fullmatch(path.name) for path in self.folder.glob("*"))
        seeds = sorted(int(match[1]) for match in matches if match)
        names = [row, *(f"{row}{_SEED}{seed}" for seed in seeds)]
        return [name for name in names if _trained(self.folder / name, self.config(name))]

    def config(self, run: str) -> RunConfig:
        """The configuration of a run: the scale's recipe with the run's changes."""
        recipe = load_recipe(SCALES[self.scale].recipe)
        given = [
            ("data.train", self.data),
            ("data.valid", self.valid),
            ("training.device", self.device),
        ]
        shared = [*((name, value) for name, value in given if value), *self.overrides]
        row, _, seed = run.partition(_SEED)
        changes, base = dict(RUNS[row]), resolve(recipe, shared)
        if seed:
            changes["seed"] = str(base.seed + int(seed))
        if "backbone" in changes:  # another network of the same shape
            names = ("width", "depth", "heads", "dropout")
            changes |= {
                f"backbone.{name}": str(getattr(base.backbone.config, name)) for name in names
            }
            shared = [pair for pair in shared if not pair[0].startswith("backbone")]
        return resolve(recipe, [*shared, *changes.items()])

    def measuring(self, run: str) -> Measuring:
        """The measurements of a run; trains the run first if necessary."""
        config, folder = self.config(run), self.folder / run
        if not _trained(folder, config):
            self.say(f"training {folder}")
            try:
                shared = _shared_tokenizer(self.folder, config.data)
                train(config, folder, say=self.say, tokenizer=shared)
            except UnmaskError as error:  # its text names an option of 'unmask train'
                raise UnmaskError(
                    str(error).replace("run folder (--run)", "folder of runs (--runs)")
                ) from None
        if self.test:
            config = replace(config, data=replace(config.data, valid=self.test))
        return Measuring(folder, config, self.full_budget, self.device, self.say)


def _trained(folder: Path, config: RunConfig) -> bool:
    """True if the folder holds a finished run of exactly this configuration."""
    if not (folder / "model").is_dir():
        return False
    run = read_run(folder)
    return run.config == config and run.step >= config.training.steps


def _shared_tokenizer(folder: Path, data: DataConfig) -> Tokenizer | None:
    """The tokenizer of another run in the folder that reads the same text, or None."""
    for log in sorted(folder.glob("*/log.jsonl")):
        if resolve(load_recipe(str(log.parent / "config.yaml"))).data == data:
            return load_tokenizer(log.parent / "tokenizer")
    return None
