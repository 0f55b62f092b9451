"""All measurements of DNA models in one command of limited time: tables 6 and 7, sequences, enhancers and speed.

    python benchmarks/dna_all.py --prepare SOURCE --data carry/dna          # on a CPU, once
    python benchmarks/dna_all.py --data carry/dna --out OUT --seconds 570   # on a GPU

SOURCE holds human-GRCh37-chr20.fa.xz, human-200bp-4celltypes.tsv.xz and genomic-benchmarks-subset.tar.xz. `--prepare`
copies or unpacks them into a folder, and adds what needs no GPU: the intervals that training leaves out, the
held-out intervals and the Markov baselines.

The measurements run in stages, the most important first. Each stage has a share of the seconds, after which its jobs
are ended. A stage that ends early leaves its time to the next one.

1. Table 6 with one seed. `dna_tables.py` measures the speed of each network and chooses the steps.
2. Twenty sequences of Caduceus MDLM, and enhancers.
3. Table 7 in two processes.
4. Speed, alone on the GPU.
5. Further seeds of table 6.

OUT receives every result as soon as it exists: `results.jsonl` (tables 6 and 7), `models.tar` (trained models),
`sequences.fa`, `enhancers.jsonl`, `speed.jsonl` and `log.txt`. A later command continues if `results.jsonl`,
`speed.jsonl` and `models.tar` lie in the folder of `--data`. `dna_tables.py --runs OUT --table` prints both tables.
"""

import argparse
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dna_tables import GENOME, ROWS, TASKS, tables
from machine import read_rows
from stages import Stages

HERE = Path(__file__).parent
CELLS = "human-200bp-4celltypes.tsv.xz"
SHIPPED = "caduceus-mdlm"
# rows of table 7 that one process measures; the two processes take about the same time
CLASSIFIERS = (("caduceus-mdlm", "caduceus-mlm"), ("mamba-ar", "caduceus-sedd", "caduceus-plaid"))
TRAINING = 0.33  # share of the seconds in which the rows of table 6 train


class Stage(NamedTuple):
    """Jobs that run at the same time, and the share of all seconds after which they are ended."""

    name: str
    until: float
    jobs: dict[str, list[str]]


class Driver:
    """Runs the stages and copies their results."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.runs, self.out = args, Path(args.runs), Path(args.out)
        for folder in (self.runs, self.out):
            folder.mkdir(parents=True, exist_ok=True)
        self.copied: set[str] = set()
        self.runner = Stages(self.out / "log.txt", self.collect)

    def stages(self) -> Iterable[Stage]:
        """The stages. Each is made after the one before it has ended."""
        args, tiny = self.args, ["--tiny"] * self.args.tiny
        common = [str(HERE / "dna_tables.py"), "--data", args.data, "--runs", str(self.runs)]
        common += ["--batch", str(args.batch), "--draws", "4", *tiny]
        seconds = [] if args.tiny else ["--seconds", str(TRAINING * args.seconds)]
        six = [*common, "--tables", "6", *seconds]
        yield Stage("table 6", 0.5, {"table 6": [*six, "--seeds", "1"]})
        jobs = {}
        if self.trained(SHIPPED):
            written = ["--n", "20", "--out", str(self.out / "sequences.fa")]
            jobs["sequences"] = ["-m", "unmask", "generate", str(self.folder(SHIPPED)), *written]
        enhancers = [str(HERE / "dna_enhancers.py"), "--data", str(Path(args.data) / CELLS), *tiny]
        enhancers += ["--runs", str(self.runs / "enhancers")]
        enhancers += ["--steps", "3000", "--n", "500", "--batch", "250"]
        jobs["enhancers"] = [*enhancers, "--out", str(self.out / "enhancers.jsonl")]
        yield Stage("sequences and enhancers", 0.7, jobs)
        jobs = {}
        for rows in CLASSIFIERS:
            present = [row for row in rows if self.trained(row)]
            if present:
                seven = [*common, "--tables", "7", "--rows", *present]
                jobs[f"table 7, {' '.join(present)}"] = seven
        yield Stage("table 7", 0.9, jobs)
        speed = [str(HERE / "dna_speed.py"), "--out", str(self.out / "speed.jsonl"), *tiny]
        yield Stage("speed", 0.975, {"speed": speed})
        yield Stage("further seeds", 0.975, {"further seeds": [*six, "--seeds", "5"]})

    def run(self) -> None:
        """Runs all stages."""
        self.unpack()
        for stage in self.stages():
            until = stage.until * self.args.seconds
            self.runner.say(f"{stage.name}, until {until:.0f} s")
            self.runner.run(stage.jobs, until)
        if (self.out / "results.jsonl").exists():
            print(tables(read_rows(self.out / "results.jsonl")), flush=True)

    def unpack(self) -> None:
        """Copies prepared files and earlier results into the folder of the runs."""
        data = Path(self.args.data)
        beds = () if self.args.tiny else ("exclude.bed", "holdout_intervals.bed")
        places = {"results.jsonl": self.runs, "speed.jsonl": self.out} | dict.fromkeys(
            beds, self.runs
        )
        for name, folder in places.items():
            if (data / name).exists() and not (folder / name).exists():
                shutil.copyfile(data / name, folder / name)
        if (data / "models.tar").exists():
            with tarfile.open(data / "models.tar") as archive:
                archive.extractall(self.runs, filter="data")
        self.collect()

    def collect(self) -> None:
        """Copies results and newly trained models."""
        results = self.runs / "results.jsonl"
        if results.exists():
            shutil.copyfile(results, self.out / "results.jsonl")
        for row in ROWS:
            if row not in self.copied and self.trained(row):
                self.copied.add(row)
                with tarfile.open(self.out / "models.tar", "a") as archive:
                    archive.add(self.folder(row) / "model", f"{row}-0/model")
                    for name in ("config.yaml", "log.jsonl", "clock.jsonl"):
                        if (self.folder(row) / name).exists():
                            archive.add(self.folder(row) / name, f"{row}-0/{name}")

    def folder(self, row: str) -> Path:
        """The run folder of a row of table 6 with seed 0."""
        return self.runs / f"{row}-0"

    def trained(self, row: str) -> bool:
        """True if the model of a row is complete."""
        return (self.folder(row) / "model" / "model.json").exists()


def prepare(source: Path, data: Path) -> None:
    """Fills the folder that a GPU machine needs."""
    data.mkdir(parents=True, exist_ok=True)
    for name in (GENOME, CELLS):
        shutil.copyfile(source / name, data / name)
    with tarfile.open(source / TASKS) as archive:
        archive.extractall(data, filter="data")
    command = [str(HERE / "dna_tables.py"), "--data", str(source), "--runs", str(data)]
    subprocess.run([sys.executable, *command, "--markov"], check=True)
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    print(f"{data}: {size / 2**20:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="the prepared folder")
    parser.add_argument("--prepare", type=Path, metavar="SOURCE", help="fills --data from SOURCE")
    parser.add_argument("--out", default="out", help="folder of the results")
    parser.add_argument("--runs", default="runs/dna", help="folder of the runs")
    parser.add_argument("--seconds", type=float, default=570, help="seconds of all stages")
    parser.add_argument("--batch", type=int, default=64, help="windows of a training step")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the script")
    args = parser.parse_args()
    if args.prepare:
        prepare(args.prepare, Path(args.data))
    else:
        Driver(args).run()


if __name__ == "__main__":
    main()
