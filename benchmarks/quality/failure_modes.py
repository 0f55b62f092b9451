"""Failure modes of masked diffusion texts, each with a measure and the setting that reduces it.

    python benchmarks/quality failure_modes --real tinystories.valid.txt.xz --out failure.jsonl
    python benchmarks/quality failure_modes --table failure.jsonl --plot docs/images/failure-modes.png

- repetition: share of 4-grams that occurred before in the text, over steps and temperatures.
- context: share of the names in each quarter of a long text that the first quarter has, over the overlap of windows.
- early: nats of a token given the finished text, over the step in which it was written.
- dependence: log p(token | context and the tokens written with it) − log p(token | context), over their number.

`--real FILE` adds real stories. `--out FILE` adds rows to a file and does not repeat rows that it has. `--table FILE`
prints the rows, `--plot PNG` draws them.
"""

import argparse
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from benchmarks.machine import DEVICE
from benchmarks.pictures import picture
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask import Model, load
from unmask.data.documents.fields import Fields
from unmask.data.documents.separation import AUTO
from unmask.data.sources.open_source import open_corpus
from unmask.evaluation.judges.judge import MethodJudge, Sample
from unmask.evaluation.metrics.bootstrap import mean, ratio
from unmask.evaluation.metrics.text_quality import repetition, visible
from unmask.likelihood.token_scores import token_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODES = ("repetition", "context", "early", "dependence")
QUARTERS = 4
UNLIKELY = math.log(0.01)
NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+(?=\W)")  # a capitalised word inside a sentence
REVISIONS = 8  # of the sampler refine, by default
BATCH = 32  # rows of a network call
Row = tuple[str, Callable[[], dict[str, Any]]]  # name and measurement
TINY = {"texts": 2, "steps": [2, 4], "length": 16, "long": 64, "window": 24, "probes": 2}


@dataclass(frozen=True)
class Setting:
    """A sampler with its steps and temperature."""

    sampler: str
    steps: int | None = None
    temperature: float = 1.0

    @property
    def curve(self) -> str:
        """The name without steps and gamma, which differ along a curve."""
        return f"{self.sampler.partition(':gamma')[0]}, temperature {self.temperature:g}"

    @property
    def name(self) -> str:
        steps = "" if self.steps is None else f", {self.steps} steps"
        return f"{self.sampler}, temperature {self.temperature:g}{steps}"

    def options(self) -> dict[str, Any]:
        """Options of `generate` and `stream`."""
        steps = {} if self.steps is None else {"steps": self.steps}
        return {"sampler": self.sampler, "temperature": self.temperature, **steps}


class Study:
    """The models, the real stories and the measurements of all failure modes."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.model, self.judge = (load(name, device=DEVICE.type) for name in args.models)
        if self.judge.tokenizer.fingerprint != self.model.tokenizer.fingerprint:
            raise SystemExit(
                "the two models have different tokenizers: choose models with the same one"
            )
        self.vocabulary = self.model.tokenizer.vocabulary
        self.real: list[list[int]] = []  # tokens of each real story
        if args.real:
            stories = [text for text in open_corpus(str(args.real), Fields(AUTO, "text")) if text]
            self.real = [self.model.tokenizer.encode(text) for text in stories]

    # Repetition

    def repetition(self) -> Iterator[Row]:
        """Texts of `--length` tokens: real stories, the autoregressive model, then samplers by their steps."""
        length = self.args.length
        if self.real:
            whole = [story[:length] for story in self.real if len(story) >= length]
            yield "real stories", partial(self._repeated, whole[: 10 * self.args.texts])
        for temperature in (1.0, 0.7):
            setting = Setting("left_to_right", None, temperature)
            name = f"autoregressive, temperature {temperature:g}"
            yield name, partial(self._written, self.judge, setting)
        for steps in self.args.steps:
            for setting in (
                Setting("ancestral", steps),
                Setting("ancestral", steps, 0.7),
                Setting("confidence", steps, 0.7),
                Setting("confidence:drawn=true", steps, 0.7),
                Setting("predictor_corrector", max(1, steps // 2), 0.7),  # two calls a step
                Setting("spread", steps, 0.7),
                Setting("refine", max(1, steps // 2), 0.7),  # two calls a step, and its revisions
            ):
                yield setting.name, partial(self._curve, setting)

    def _curve(self, setting: Setting) -> dict[str, Any]:
        return {"curve": setting.curve, **self._written(self.model, setting)}

    def _written(self, model: Model, setting: Setting) -> dict[str, Any]:
        args = self.args
        results = model.generate(
            n=args.texts, length=args.length, stop=False, seed=args.seed, **setting.options()
        )
        calls = sum(result.calls for result in results) / len(results)
        return {"calls": calls, **self._repeated([result.ids for result in results])}

    def _repeated(self, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
        bodies = [visible(text, self.vocabulary) for text in texts]
        repeated = mean([repetition(body) for body in bodies])
        samples = [Sample(body, "") for body in bodies]
        scores = MethodJudge(self.judge.method, self.judge.length, draws=1).read(samples)
        nats = ratio(scores.nats.numpy(), scores.tokens.numpy())
        return {
            "texts": len(texts),
            "length": self.args.length,
            "repetition": repeated.value,
            "error": _finite(repeated.error),
            "nats": nats.value,
            "nats_error": _finite(nats.error),
        }

    # Long contexts

    def context(self) -> Iterator[Row]:
        """Texts of `--long` tokens: one real story, several real stories, then windows by their overlap."""
        args = self.args
        if self.real:
            longest = sorted(self.real, key=len)[-args.texts :]
            yield "one real story", partial(self._quarters, [each[: args.long] for each in longest])
            yield "several real stories", partial(self._quarters, self._joined())
        for overlap in (0, args.window // 2, args.window * 3 // 4):
            name = f"windows of {args.window}, overlap of {overlap}"
            yield name, partial(self._in_windows, overlap)
        yield f"windows of {self.model.length}, first quarter as context", self._with_context

    def _joined(self) -> list[list[int]]:
        """Texts of `--long` tokens, each of several stories."""
        texts: list[list[int]] = [[]]
        for story in self.real:
            if len(texts[-1]) >= self.args.long:
                texts.append([])
            texts[-1] += story
        return [text[: self.args.long] for text in texts[: self.args.texts]]

    def _in_windows(self, overlap: int) -> dict[str, Any]:
        args = self.args
        edges = sum(
            token is not None for token in (self.vocabulary.bos_id, self.vocabulary.eos_id)
        )  # special tokens of a window
        stride = args.window - edges - overlap
        results = self.model.generate(
            n=args.texts,
            length=args.long,
            stop=False,
            seed=args.seed,
            sampler=f"semi_autoregressive:window={args.window},stride={stride},inner=ancestral",
            steps=args.window_steps,
            temperature=0.7,
        )
        calls = sum(result.calls for result in results) / len(results)
        found = self._quarters([visible(result.ids, self.vocabulary) for result in results])
        return {"overlap": overlap, "window": args.window, "calls": calls, **found}

    def _with_context(self) -> dict[str, Any]:
        """Texts whose first quarter is written first. Each later window reads it as a passage."""
        args, results = self.args, []
        options = {"stop": False, "steps": args.window_steps, "temperature": 0.7}
        options["sampler"] = "ancestral"
        for seed in range(args.texts):
            [first] = self.model.generate(length=args.long // QUARTERS, seed=seed, **options)
            start = first.text
            results += self.model.generate(
                start, context=[start], length=args.long, seed=seed, **options
            )
        calls = sum(result.calls for result in results) / len(results)
        found = self._quarters([visible(result.ids, self.vocabulary) for result in results])
        return {"calls": calls, **found}

    def _quarters(self, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The share of known names and the judge's nats in each quarter."""
        known: list[list[int]] = []  # of each text and quarter: names that the first quarter has
        named: list[list[int]] = []  # names
        nats: list[list[float]] = []
        for text in texts:
            size = len(text) // QUARTERS
            parts = [list(text[size * quarter :][:size]) for quarter in range(QUARTERS)]
            decoded = [self.model.tokenizer.decode(part) for part in parts]
            first = set(re.findall(r"\w+", decoded[0]))
            names = [set(NAME.findall(part)) for part in decoded]
            known.append([len(each & first) for each in names])
            named.append([len(each) for each in names])
            nats.append([self._nats(parts, quarter) for quarter in range(QUARTERS)])
        shares = map(_ratio, zip(*known, strict=True), zip(*named, strict=True))
        scores = [mean(column) for column in zip(*nats, strict=True)]
        return {
            "texts": len(texts),
            "length": sum(map(len, texts)) / len(texts),
            "names": [sum(column) for column in zip(*named, strict=True)],
            "known": list(shares),
            "nats": [round(score.value, 4) for score in scores],
            "nats_error": [_finite(score.error) for score in scores],
        }

    def _nats(self, parts: Sequence[list[int]], quarter: int) -> float:
        """Nats per token of a quarter, given BOS and the quarter before as far as the judge reads."""
        bos = [] if self.vocabulary.bos_id is None else [self.vocabulary.bos_id]
        ids = parts[quarter][: self.judge.length // 2]
        room = self.judge.length - len(ids) - len(bos)
        before = parts[quarter - 1][-room:] if quarter else []
        scores = token_scores(self.judge.method, self.judge.length, [*bos, *before], ids)
        values = [-score.log_p for score in scores if score.log_p is not None]
        return sum(values) / len(values)

    # Tokens of single steps

    def early(self) -> Iterator[Row]:
        """Tokens by the quarter of steps in which they were written, at about the same number of calls."""
        steps = self.args.early_steps
        if self.real:
            yield "real stories", self._real_tokens
        for setting in (
            Setting("ancestral", steps),
            Setting("predictor_corrector", max(1, steps // 2)),
            Setting("remask", steps),
            Setting("spread", steps),
            Setting("refine", max(1, (steps - REVISIONS) // 2)),
        ):
            yield setting.name, partial(self._by_step, setting)

    def _real_tokens(self) -> dict[str, Any]:
        length = self.args.length
        bos = [] if self.vocabulary.bos_id is None else [self.vocabulary.bos_id]
        rows = [[*bos, *story][:length] for story in self.real if len(story) >= length]
        x = torch.tensor(rows[: self.args.texts], device=self.model.device)
        probes = self._probes(torch.arange(length) >= len(bos), len(x))
        log_p = self._log_p(x[probes[0]], probes[1], x[probes]).view(len(x), -1)
        return {"texts": len(x), "length": length, **_fit(log_p)}

    def _by_step(self, setting: Setting) -> dict[str, Any]:
        x, calls = self._frames(setting)
        changed = x[1:] != x[:-1]
        step = torch.arange(len(changed), device=x.device)[:, None, None]
        last = (changed * step).amax(0)  # [rows, length]: the last frame that wrote each token
        probes = self._probes((x[0] == self.vocabulary.mask_id)[0].cpu(), x.shape[1])
        log_p = self._log_p(x[-1][probes[0]], probes[1], x[-1][probes])
        quarter = (last[probes].cpu() * QUARTERS) // len(changed)
        log_p, quarter = log_p.view(x.shape[1], -1), quarter.view(x.shape[1], -1)
        found = [(-log_p * (quarter == each), quarter == each) for each in range(QUARTERS)]
        return {
            "texts": x.shape[1],
            "length": self.args.length,
            "calls": calls,
            "by_quarter": [_ratio(nats.sum(1), chosen.sum(1)) for nats, chosen in found],
            **_fit(log_p),
        }

    def dependence(self) -> Iterator[Row]:
        """Tokens by the number that one call writes: ancestral by its steps, entropy_bound by its gamma."""
        by_steps = [
            Setting(sampler, steps)
            for sampler in ("ancestral", "confidence", "spread")
            for steps in self.args.steps
        ]
        bounded = [Setting(f"entropy_bound:gamma={gamma:g}") for gamma in self.args.gammas]
        for setting in (*by_steps, *bounded):
            yield setting.name, partial(self._together, setting)

    def _together(self, setting: Setting) -> dict[str, Any]:
        x, calls = self._frames(setting)
        new = (x[1:] != x[:-1]) & (x[:-1] == self.vocabulary.mask_id)  # [frames, rows, length]
        rows, columns = self._probes((x[0] == self.vocabulary.mask_id)[0].cpu(), x.shape[1])
        frame = new.int().argmax(0)[rows, columns]
        together = new.sum(2)[frame, rows].cpu()
        tokens = x[-1][rows, columns]
        apart = together > 1  # a token that is written alone depends on no other: its gain is 0
        gain = torch.zeros(len(rows), dtype=torch.float64)
        if apart.any():
            some = apart.to(x.device)
            place = (frame[some], rows[some])
            alone = self._log_p(x[:-1][place], columns[some], tokens[some])
            given = self._log_p(x[1:][place], columns[some], tokens[some])
            gain[apart] = given - alone
        figure = mean(gain.view(x.shape[1], -1).mean(1).tolist())
        return {
            "curve": setting.curve,
            "texts": x.shape[1],
            "length": self.args.length,
            "tokens": len(rows),
            "calls": calls,
            "together": float(together.double().mean()),
            "gain": figure.value,
            "error": _finite(figure.error),
        }

    def _frames(self, setting: Setting) -> tuple[Tensor, float]:
        """The tokens before the first step and after each, [frames, rows, length], and the calls of a text."""
        args = self.args
        frames = list(
            self.model.stream(
                n=args.texts, length=args.length, stop=False, seed=args.seed, **setting.options()
            )
        )
        first = frames[0].tokens.masked_fill(frames[0].changed, self.vocabulary.mask_id)
        calls = frames[-1].calls.double().mean()
        return torch.stack([first, *(frame.tokens for frame in frames)]), float(calls)

    def _probes(self, open: Tensor, rows: int) -> tuple[Tensor, Tensor]:
        """Rows and columns of `--probes` random open positions of each row."""
        generator = torch.Generator().manual_seed(self.args.seed)
        places = open.nonzero()[:, 0]
        chosen = [
            places[torch.randperm(len(places), generator=generator)[: self.args.probes]]
            for _ in range(rows)
        ]
        numbers = torch.arange(rows).repeat_interleave(len(chosen[0]))
        return numbers.to(self.model.device), torch.cat(chosen).to(self.model.device)

    @torch.inference_mode()
    def _log_p(self, z: Tensor, columns: Tensor, tokens: Tensor) -> Tensor:
        """log x_theta of one token of each row, which is masked first; on the CPU, in float64."""
        rows = torch.arange(len(z), device=z.device)
        z = z.clone()
        z[rows, columns] = self.vocabulary.mask_id
        alpha_t = 1 - (z == self.vocabulary.mask_id).double().mean(1).cpu()
        times = self.model.method.schedule.inverse(alpha_t).detach()
        denoiser = self.model.method.denoiser()
        found = []
        for part in rows.split(BATCH):
            at = (torch.arange(len(part), device=z.device), columns[part])
            log_x_theta = denoiser(z[part], times[part.cpu()], at)
            found.append(log_x_theta.gather(1, tokens[part][:, None])[:, 0])
        return torch.cat(found).double().cpu()


def _fit(log_p: Tensor) -> dict[str, Any]:
    """Nats of tokens given the finished text, and the share that is unlikely; [texts, probes]."""
    nats, unlikely = (
        mean(values.double().mean(1).tolist()) for values in (-log_p, log_p < UNLIKELY)
    )
    return {
        "tokens": log_p.numel(),
        "nats": nats.value,
        "error": _finite(nats.error),
        "unlikely": unlikely.value,
        "unlikely_error": _finite(unlikely.error),
    }


def _ratio(above: ArrayLike, below: ArrayLike) -> tuple[float, float | None] | None:
    """A ratio of two sums over texts with its error; None if nothing was counted."""
    if not np.asarray(below).sum():
        return None
    figure = ratio(above, below)
    return round(figure.value, 4), _finite(figure.error)


def _finite(error: float) -> float | None:
    return round(error, 4) if math.isfinite(error) else None


def run(args: argparse.Namespace) -> None:
    """Measures the rows that the file does not have."""
    kept = {row["row"] for row in read_rows(args.out)} if args.out and args.out.exists() else set()
    study, report = Study(args), Report(args.out)
    for mode in args.only:
        for name, measure in getattr(study, mode)():
            row = f"{mode}/{name}"
            if row in kept:
                continue
            start = time.perf_counter()
            found = measure()
            seconds = time.perf_counter() - start
            report.write({"row": row, "mode": mode, "name": name, **found, "seconds": seconds})


# Tables and pictures


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    """A table for each failure mode."""
    heads = {
        "repetition": "calls | repeated 4-grams, % | nats by the judge",
        "context": "calls | known names by quarter, % | nats by the judge, by quarter",
        "early": "calls | nats given the text | p < 1%, % of tokens | nats by quarter of the steps",
        "dependence": "calls | written together | gain, nats a token",
    }
    for mode, head in heads.items():
        mine = [row for row in found if row.get("mode") == mode]
        if not mine:
            continue
        calls = [f"{row['calls']:.0f}" if "calls" in row else "–" for row in mine]
        lines = (
            [row["name"], row["texts"], n, *_cells(row)] for row, n in zip(mine, calls, strict=True)
        )
        yield from markdown([mode, "texts", *head.split(" | ")], lines)
        yield ""


def _cells(row: dict[str, Any]) -> Iterator[str]:
    if row["mode"] == "repetition":
        yield _figure(row["repetition"], row["error"], 100, 1)
        yield _figure(row["nats"], row["nats_error"])
    elif row["mode"] == "context":
        yield ", ".join("–" if each is None else f"{100 * each[0]:.0f}" for each in row["known"])
        yield ", ".join(f"{value:.2f}" for value in row["nats"])
    elif row["mode"] == "early":
        yield _figure(row["nats"], row["error"])
        yield _figure(row["unlikely"], row["unlikely_error"], 100, 1)
        quarters = row.get("by_quarter", [None])
        yield ", ".join("–" if each is None else _figure(*each) for each in quarters)
    else:
        yield f"{row['together']:.1f}"
        yield _figure(row["gain"], row["error"], 1, 3)


def _figure(value: float, error: float | None, scale: float = 1, digits: int = 2) -> str:
    spread = "" if error is None else f" ± {scale * error:.{digits}f}"
    return f"{scale * value:.{digits}f}{spread}"


def draw(found: list[dict[str, Any]], file: Path) -> None:
    """One panel for each failure mode."""
    with picture(file, (11, 8.5), 2, 2, dpi=110) as (_, panels):
        for axes, mode, panel in zip(panels, MODES, PANELS, strict=True):
            panel(axes, [row for row in found if row.get("mode") == mode])
            if axes.get_legend_handles_labels()[0]:
                axes.legend(framealpha=0.7, edgecolor="none", fontsize=7)


def _draw_repetition(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    for label, mine in _curves(rows):
        _line(axes, mine, "calls", "repetition", label)
    others = [row for row in rows if "curve" not in row]
    for row, style in zip(others, ("-", "--", ":"), strict=False):
        axes.axhline(row["repetition"], color="black", linestyle=style, label=row["name"])
    _logarithmic(axes)
    axes.set(
        xlabel="network calls of a text", ylabel="share of repeated 4-grams", title="Repetition"
    )


def _draw_context(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    for row in rows:
        real = {"color": "black", "linestyle": "-" if "one" in row["name"] else "--"}
        _by_quarter(axes, row["known"], row["name"], **({} if "windows" in row["name"] else real))
    axes.set(
        xticks=range(1, QUARTERS + 1),
        xlabel="quarter of the text",
        ylabel="share of names that the first quarter has",
        title="Context of long texts",
    )


def _draw_early(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if "by_quarter" in row:
            _by_quarter(axes, row["by_quarter"], row["name"])
        else:
            axes.axhline(row["nats"], color="black", label=row["name"])
    axes.set(
        xticks=range(1, QUARTERS + 1),
        xlabel="quarter of the steps that wrote the token last",
        ylabel="nats of the token given the finished text",
        title="Early steps",
    )


def _by_quarter(
    axes: "Axes", values: list[tuple[float, float | None] | None], label: str, **style: Any
) -> None:
    y, errors = zip(*(each or (math.nan, None) for each in values), strict=True)
    error = [each or 0.0 for each in errors]
    x = range(1, len(y) + 1)
    axes.errorbar(x, y, error, marker="o", markersize=3, label=label, **style)


def _draw_dependence(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    for label, mine in _curves(rows):
        _line(axes, mine, "together", "gain", label)
    axes.axhline(0, color="black", linewidth=0.8)
    _logarithmic(axes)
    axes.set(
        xlabel="tokens written together, mean over tokens",
        ylabel="log p given the others − log p without them",
        title="Dependence of tokens written together",
    )


def _logarithmic(axes: "Axes") -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")


PANELS = (_draw_repetition, _draw_context, _draw_early, _draw_dependence)


def _curves(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for name in dict.fromkeys(row["curve"] for row in rows if "curve" in row):
        yield name, [row for row in rows if row.get("curve") == name]


def _line(axes: "Axes", rows: list[dict[str, Any]], x: str, y: str, label: str) -> None:
    rows = sorted(rows, key=lambda row: row[x])
    errors = [row["error"] or 0.0 for row in rows]
    at, values = ([row[key] for row in rows] for key in (x, y))
    axes.errorbar(at, values, errors, marker="o", markersize=3, label=label)


def main() -> None:
    parser = script_parser(__doc__, "out", "table", "plot", "tiny")
    add = parser.add_argument
    add(
        "--models",
        nargs=2,
        default=["stories", "stories-ar"],
        metavar=("MODEL", "JUDGE"),
        help="a masked diffusion model, and an autoregressive one of the same tokenizer",
    )
    add("--real", type=Path, metavar="FILE", help="a file of real stories")
    add("--only", nargs="+", choices=MODES, default=MODES)
    add("--texts", type=int, default=16, help="texts of a row")
    add("--steps", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    add("--early-steps", type=int, default=32, help="sampling steps of early")
    add("--gammas", type=float, nargs="+", default=[0.1, 0.5, 2.0])
    add("--length", type=int, default=128, help="tokens of a text")
    add("--long", type=int, default=1000, help="tokens of a text of context")
    add("--window", type=int, default=128, help="tokens of a window of context")
    add("--window-steps", type=int, default=16, help="steps of a window")
    add("--probes", type=int, default=32, help="measured tokens of a text")
    add("--seed", type=int, default=0)
    add("--threads", type=int, help="threads of a CPU")
    args = parser.parse_args()
    if args.table:
        found = read_rows(*args.table)
        print("\n".join(table(found)))
        if args.plot:
            draw(found, args.plot)
        return
    if args.tiny:
        vars(args).update(TINY, early_steps=4, gammas=[0.0, 1000.0], window_steps=2)
    if args.threads and DEVICE.type == "cpu":
        torch.set_num_threads(args.threads)
    run(args)
