"""Generation: fills rows with a sampler, in batches.
Options are checked before any network call.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby

import torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.extension import attachments
from unmask.generation.constrain import constrained
from unmask.generation.ending import end_sentences
from unmask.generation.guidance import guided
from unmask.generation.incompatible import refuse_constraint, refuse_sampler
from unmask.generation.logits_processor import build_processors
from unmask.generation.prompts import FillRequest
from unmask.generation.sampler_spec import choose_sampler, in_windows
from unmask.generation.sampling_params import SHARPNESS, SamplingParams
from unmask.randomness import child_seed, row_seeds
from unmask.samplers.core.canvas import Canvas, Frame, last_frame
from unmask.samplers.core.token_sampler import TAIL, SamplingTask
from unmask.samplers.length_first import LengthFirst, PredictedLength
from unmask.samplers.sampler import SAMPLERS, Sampler

_CPU_BATCH_TOKENS = 512  # tokens of a batch; a larger one is not faster per token on a CPU


@dataclass(frozen=True, repr=False)
class Result:
    """A generated text. `str()` gives the text; `calls` is its number of network calls."""

    text: str
    ids: list[int]  # tokens of the text, with its EOS if one was drawn
    calls: int
    seconds: float  # of the text's batch
    seed: int  # generates this text again, alone

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Result({self.text!r}, calls={self.calls}, seed={self.seed})"

    def _repr_html_(self) -> str:
        """The text, below the cell of a notebook."""
        about = f"{len(self.ids)} tokens, {self.calls} network calls, seed {self.seed}"
        return f"<p style='white-space:pre-wrap'>{escape(self.text)}</p><small>{about}</small>"


class Generator:
    """Fills rows with a sampler."""

    def __init__(self, bundle: Bundle, job: FillRequest, sampling: SamplingParams) -> None:
        self.bundle, self.job, self.sampling = bundle, job, sampling
        self.texts = len(job.canvases) // job.rows
        self.seeds = row_seeds(sampling.seed, self.texts)
        self.sampler = self._sampler()
        self.job, self.task = constrained(
            bundle.tokenizer, job, sampling, self._sampling_task(), bundle.length
        )
        if self.task.allow is not None:
            refuse_constraint(bundle, sampling)

    def frames(self) -> Iterator[Frame]:
        """Every step of all rows, in one batch, without their context."""
        if not self.job.canvases:
            return iter(())
        if self.job.rows > 1:
            raise UnmaskError(
                "the text is longer than the model, which reads it in several rows: its steps cannot be "
                "streamed; leave streaming out or shorten the text"
            )
        if len({len(row) for row in self.job.canvases}) > 1:
            raise UnmaskError(
                "the rows differ in length: their steps cannot be streamed; leave streaming out"
            )
        if len(self.job.canvases) > self.sampling.batch:
            raise UnmaskError(
                f"{len(self.job.canvases)} texts are streamed in one batch, and batch is "
                f"{self.sampling.batch}: raise batch or lower n"
            )
        frames = self._batch(range(len(self.job.canvases)), watched=True)
        return map(self._without_context, frames) if self.job.context else frames

    def _without_context(self, frame: Frame) -> Frame:
        kept = torch.ones(frame.tokens.shape[1], dtype=torch.bool, device=frame.tokens.device)
        kept[self.job.lead - self.job.context : self.job.lead] = False
        return replace(
            frame,
            tokens=frame.tokens[:, kept],
            changed=frame.changed[:, kept],
            confidence=frame.confidence[:, kept],
            settled=None if frame.settled is None else frame.settled[:, kept],
        )

    def results(self) -> list[Result]:
        """The finished texts."""
        return list(self._finished(lambda length: self.sampling.batch))

    def one_by_one(self) -> Iterator[Result]:
        """The finished texts in order, each as soon as its batch is done."""
        return self._finished(self._small_batch)

    def _finished(self, batch_size: Callable[[int], int]) -> Iterator[Result]:
        rows: dict[int, tuple[list[int], int, float]] = {}
        yielded = 0
        for part in self._batches(batch_size):
            start = time.perf_counter()
            last = last_frame(self._batch(part, watched=False), self._canvas(part))
            seconds = time.perf_counter() - start
            for row, ids, calls in zip(
                part, last.tokens.tolist(), last.calls.tolist(), strict=True
            ):
                rows[row] = (ids, calls, seconds)
            while yielded < self.texts and all(i in rows for i in self._rows_of(yielded)):
                yield self._result([rows.pop(i) for i in self._rows_of(yielded)], yielded)
                yielded += 1

    def _rows_of(self, text: int) -> range:
        return range(text * self.job.rows, (text + 1) * self.job.rows)

    def _small_batch(self, length: int) -> int:
        """Batch size: small on a CPU, so that the first text is ready early; elsewhere `batch`."""
        small = self.bundle.device.type == "cpu" and not self.bundle.method.capabilities.causal
        return (
            min(max(_CPU_BATCH_TOKENS // length, 1), self.sampling.batch)
            if small
            else self.sampling.batch
        )

    def _batches(self, batch_size: Callable[[int], int]) -> Iterator[list[int]]:
        """Batches of rows of equal length; `batch_size` maps a length to a number of rows."""
        canvases = self.job.canvases
        by_length = sorted(range(len(canvases)), key=lambda row: len(canvases[row]))
        for length, group in groupby(by_length, key=lambda row: len(canvases[row])):
            rows, size = list(group), batch_size(length)
            yield from (rows[first : first + size] for first in range(0, len(rows), size))

    def _batch(self, rows: list[int] | range, watched: bool) -> Iterator[Frame]:
        seeds = [self._row_seed(row) for row in rows]
        task = replace(self.task, seeds=seeds, watched=watched)
        denoiser = guided(self.bundle, self.sampling)
        # a sampler that cannot use this denoiser raises its error here, before the first frame
        frames = in_inference_mode(self.sampler.generate(denoiser, self._canvas(rows), task))
        if not self._ends_sentences():
            return frames
        return end_sentences(frames, self.bundle.tokenizer, [self.job.fixed[row] for row in rows])

    def _ends_sentences(self) -> bool:
        """True if a text may get an EOS after its last sentence:
        no constraint holds for its end.
        """
        s = self.sampling
        bound = s.regex or s.include or s.allowed or s.json_schema is not None
        free = not (bound or self.job.target_only)
        return s.ending == "sentence" and free and self.task.eos_id is not None

    def _row_seed(self, row: int) -> int:
        text, part = divmod(row, self.job.rows)
        return child_seed(self.seeds[text], part, "part")

    def _canvas(self, rows: list[int] | range) -> Canvas:
        tokens = torch.tensor([self.job.canvases[row] for row in rows], device=self.bundle.device)
        return Canvas(
            tokens, self.bundle.tokenizer.vocabulary.mask_id, self._revisable(tokens, rows)
        )

    def _revisable(self, tokens: Tensor, rows: list[int] | range) -> Tensor | None:
        """True at tokens that the sampler may rewrite: the text without BOS and EOS;
        None for none.
        """
        if not self.job.revisable:
            return None
        places = torch.zeros_like(tokens, dtype=torch.bool)
        places[:, self.job.fixed[rows[0]] : tokens.shape[1] - self._closed] = True
        return places

    @property
    def _closed(self) -> bool:
        """True if the rows of an edited text end with EOS."""
        return self.bundle.tokenizer.vocabulary.eos_id is not None

    def _sampler(self) -> Sampler:
        bundle = self.bundle
        longest = max(map(len, self.job.canvases), default=0)
        sampler = choose_sampler(
            self.sampling,
            bundle.method,
            min(self.job.openings, bundle.length),
            bundle.attachments,
            self.job.fills(bundle.tokenizer.vocabulary.mask_id) or bundle.conditional,
        )
        if trained_for := sampler.unwrapped().trained_for:
            own = SAMPLERS.name_of(sampler.unwrapped())
            for name, kind in attachments().items():
                part = bundle.attachments.get(name)  # it was checked when it was read
                if kind.sampler == own and (part is None or part.digest != trained_for):
                    bundle.check_attachment(name, trained_for)
        outer = sampler
        windowed = sampler.windowed and (not sampler.blocks or bundle.method.capabilities.blocks)
        if longest > bundle.length or windowed:
            eos_id = bundle.tokenizer.vocabulary.eos_id
            outer = in_windows(sampler, bundle.length, self.job.lead, eos_id, windowed)
        refuse_sampler(bundle, self.job, self.sampling, sampler, outer)
        if bundle.method.backbone.predicts_length:
            return PredictedLength(outer)
        return LengthFirst(outer) if self.sampling.ending == "first" else outer

    def _sampling_task(self) -> SamplingTask:
        s, v = self.sampling, self.bundle.tokenizer.vocabulary
        special = {v.bos_id, v.pad_id, v.eos_id, *self.bundle.tokenizer.labels.values()}
        special |= {self.bundle.tokenizer.ignored_id}
        if self.job.ends:
            special -= {v.eos_id, *self.job.stops}
        return SamplingTask(
            self.seeds,
            self.bundle.method.schedule,
            **{name: getattr(s, name) for name in (*SHARPNESS, "strategy")},
            tail=TAIL if s.tail is None else s.tail,
            banned=tuple(sorted(i for i in special if i is not None)),
            processors=build_processors(s.processors),
            eos_id=v.eos_id if self.job.ends else None,
            stop_ids=self.job.stops if self.job.ends else (),
        )

    def _result(self, rows: list[tuple[list[int], int, float]], text: int) -> Result:
        """The result of one text from its filled rows, up to the first EOS behind the prompt."""
        tokenizer, job = self.bundle.tokenizer, self.job
        first = job.fixed[text * job.rows]
        stops = {tokenizer.vocabulary.eos_id, *job.stops} if job.ends else set()
        parts = [ids for ids, _, _ in rows]
        if len(parts) > 1:
            parts = [ids[first : len(ids) - self._closed] for ids in parts]
        ids = [token for part in parts for token in part]
        end = next((at for at in range(first, len(ids)) if ids[at] in stops), len(ids))
        calls, seconds = sum(calls for _, calls, _ in rows), sum({spent for _, _, spent in rows})
        ids, end = (ids[first:], end - first) if job.target_only else (ids, end)
        ids, end = ids[: job.lead - job.context] + ids[job.lead :], end - job.context
        return Result(tokenizer.decode(ids[:end]), ids[: end + 1], calls, seconds, self.seeds[text])


def check_request(bundle: Bundle, job: FillRequest, sampling: SamplingParams) -> None:
    """Raises an error if a model cannot write these rows with these options; runs no network."""
    Generator(bundle, job, sampling)


def in_inference_mode(frames: Iterator[Frame]) -> Iterator[Frame]:
    """The frames, computed in inference mode; the mode is off in the caller between two frames."""
    while True:
        with torch.inference_mode():
            frame = next(frames, None)
        if frame is None:
            return
        yield frame
