"""GPU measurements of code, sizes, long texts and pairs, in commands of limited time.

    python benchmarks/control_all.py --prepare DATA --data carry/control                     # on a CPU, once
    python benchmarks/control_all.py --data carry/control --out OUT --only code              # on a GPU, 530 s
    python benchmarks/control_all.py --data carry/control --out OUT --only lengths sizes     # 620 s
    python benchmarks/control_all.py --data carry/control --out OUT --only multi30k e2e      # 480 s

DATA holds corpora/wikipedia.train.txt.xz, seq2seq/multi30k.de-en.tar.xz and seq2seq/e2e-nlg.tar.xz. `--prepare` copies
the pairs and tokenizes 80 MB of Wikipedia for the sizes. Each part has the seconds of SECONDS, and OUT receives each of its
results as soon as it exists:

- code: `unmask train code` and `code-autoregressive`, then code_filling.py. OUT has `code.jsonl` and both models in int8,
  as archives in pieces: `cat OUT/code.tar.* | tar x`.
- sizes: sizes.py. OUT has the folder `sizes` with results and texts.
- lengths: length_speed.py at 8,192 and 16,384 tokens. OUT has `lengths.jsonl`, with the rows of shorter texts.
- multi30k, e2e: encoder_decoder.py. OUT has `multi30k.jsonl` and `e2e.jsonl`.
"""

import argparse
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from machine import Report, read_rows
from stages import Stages

HERE = Path(__file__).parent
SECONDS = {"code": 530.0, "sizes": 400.0, "lengths": 220.0, "multi30k": 250.0, "e2e": 230.0}
PAIRS = {"multi30k": "multi30k.de-en.tar.xz", "e2e": "e2e-nlg.tar.xz"}
WIKIPEDIA_BYTES, WIKIPEDIA_ROWS = 80_000_000, 150_000  # sizes.py trains on 128,000 rows
CODE = {"code": 0.52, "code-autoregressive": 0.78}  # shares of the seconds until training ends
PAIR_STEPS = {"multi30k": 1800, "e2e": 1400}
LONG = ("8192", "16384")  # tokens of the texts of lengths
PIECE = 15 << 20  # bytes of a piece of an archive
TINY_CODE = "--training.steps 4 --data.tokenizer.size 600 --data.holdout 0.3 --training.batch 2 --backbone.width 48 --backbone.depth 1"

Jobs = tuple[dict[str, list[str]], float]  # commands, and the share of the seconds until they end


class Control:
    """Runs the parts and copies their results."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.data, self.out, self.runs = map(Path, (args.data, args.out, args.runs))
        for folder in (self.out, self.runs):
            folder.mkdir(parents=True, exist_ok=True)
        self.runner = Stages(self.out / "log.txt", ended=30.0)  # a run saves its weights
        self.tiny = ["--tiny"] * args.tiny

    def run(self) -> None:
        """Runs the chosen parts, one after the other."""
        for part in self.args.only:
            start, most = self.runner.seconds(), SECONDS[part] * self.args.scale
            self.runner.say(f"{part}, {most:.0f} s")
            for jobs, share in getattr(self, part)(most):
                self.runner.run(jobs, start + share * most)

    def code(self, most: float) -> Iterator[Jobs]:
        """Both models of code, then the gaps that they fill."""
        small = ["--data.train", f"python:{HERE}", *TINY_CODE.split()] * self.args.tiny
        for name, share in CODE.items():
            options = ["--run", str(self.runs / name), *small]
            yield {name: ["-m", "unmask", "train", name, *options]}, share
            self.pack(name)
        fill = [str(HERE / "code_filling.py"), str(self.runs / "code")]
        fill += ["--baseline", str(self.runs / "code-autoregressive")]
        fill += ["--functions", "2", "--lines", "1"] * self.args.tiny
        yield {"filling": [*fill, "--out", str(self.out / "code.jsonl")]}, 1.0

    def pack(self, name: str) -> None:
        """Writes a model in int8 as an archive in pieces."""
        folder = self.runs / f"{name}-int8"
        export = ["-m", "unmask", "export", str(self.runs / name), str(folder)]
        command = [sys.executable, *export, "--precision", "int8"]
        if subprocess.run(command, check=False).returncode:
            self.runner.say(f"{name}: no model to export")
            return
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(folder, name)
        for start in range(0, buffer.tell(), PIECE):
            piece = self.out / f"{name}.tar.{start // PIECE}"
            piece.write_bytes(buffer.getbuffer()[start : start + PIECE])

    def sizes(self, most: float) -> Iterator[Jobs]:
        """Four sizes, six schedules, and texts of five samplers."""
        found = [str(HERE / "sizes.py"), "--out", str(self.out / "sizes"), *self.tiny]
        found += ["--weights", str(self.runs / "sizes")]
        if not self.args.tiny:
            found += ["--data", str(self.data / "wikipedia"), "--processes", "4"]
        yield {"sizes": [*found, "--seconds", str(0.95 * most)]}, 1.0

    def lengths(self, most: float) -> Iterator[Jobs]:
        """Long texts. The rows of shorter ones predict their time."""
        file = self.out / "lengths.jsonl"
        report = Report(file)
        if not self.args.tiny:
            for row in read_rows(HERE / "length_speed_h200.jsonl"):
                if row.get("length", 0) < int(min(LONG, key=int)):
                    report.write(row)
        found = [str(HERE / "length_speed.py"), "--out", str(file), *self.tiny]
        found += ["--lengths", *(("16", "32") if self.args.tiny else LONG)]
        yield (
            {"lengths": [*found, "--most", "40", "--runs", "1", "--seconds", str(0.8 * most)]},
            1.0,
        )

    def multi30k(self, most: float) -> Iterator[Jobs]:
        """Six models of translation."""
        yield self.pairs("multi30k", most), 1.0

    def e2e(self, most: float) -> Iterator[Jobs]:
        """Six models that write a sentence of facts."""
        yield self.pairs("e2e", most), 1.0

    def pairs(self, task: str, most: float) -> dict[str, list[str]]:
        """The command of a task. Training has seven tenths of the seconds."""
        folder = self.runs / f"{task}-data"
        with tarfile.open(self.data / PAIRS[task]) as archive:
            archive.extractall(folder, filter="data")
        found = [str(HERE / "encoder_decoder.py"), "--task", task, *self.tiny]
        found += ["--data", str(folder), "--runs", str(self.runs / task)]
        found += ["--out", str(self.out / f"{task}.jsonl"), "--seconds", str(0.7 * most)]
        found += ["--optimizer", "muon", "--steps", str(2 if self.args.tiny else PAIR_STEPS[task])]
        if self.args.tiny:
            found += ["--batch", "4", "--sources", "3", "--only", "joint AR"]
        return {task: found}


def prepare(source: Path, data: Path) -> None:
    """Fills the folder that a GPU machine needs."""
    data.mkdir(parents=True, exist_ok=True)
    for name in PAIRS.values():
        shutil.copyfile(source / "seq2seq" / name, data / name)
    text = data / "wikipedia.txt"
    with lzma.open(source / "corpora" / "wikipedia.train.txt.xz") as whole:
        text.write_bytes(whole.read(WIKIPEDIA_BYTES))
    command = [str(HERE / "learning.py"), "--prepare", str(data / "wikipedia"), "--text", str(text)]
    command += ["--vocabulary", "4096", "--train-rows", str(WIKIPEDIA_ROWS)]
    subprocess.run([sys.executable, *command], check=True)
    text.unlink()
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    print(f"{data}: {size / 2**20:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="the prepared folder")
    parser.add_argument("--prepare", type=Path, metavar="DATA", help="fills --data from DATA")
    parser.add_argument("--out", default="out", help="folder of the results")
    parser.add_argument("--runs", default="runs/control", help="folder of the runs")
    parser.add_argument("--only", nargs="+", choices=SECONDS, default=list(SECONDS))
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the seconds")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the script")
    args = parser.parse_args()
    if args.prepare:
        prepare(args.prepare, Path(args.data))
    else:
        Control(args).run()


if __name__ == "__main__":
    main()
