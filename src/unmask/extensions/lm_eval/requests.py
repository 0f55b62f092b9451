"""Log-likelihoods and texts for the requests of lm-evaluation-harness, without importing it."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from unmask.errors import UnmaskError
from unmask.extensions.lm_eval.model_args import Options, decoding
from unmask.extensions.lm_eval.scoring import (
    Scorer,
    ScoringRequest,
    common_prefix,
    no_progress,
    windows,
)
from unmask.generation.generator import Generator, check_request
from unmask.generation.guidance import first_tokens
from unmask.generation.prompts import FillRequest
from unmask.generation.sampler_spec import DECODING
from unmask.generation.sampling_params import SHARPNESS, SamplingParams
from unmask.likelihood.bound import CERTIFICATES
from unmask.likelihood.estimate import Progress, checked
from unmask.model import Model
from unmask.randomness import child_seed

# Lengths of generated rows are rounded up to a multiple of GRAIN, so that more rows share a batch.
GRAIN = 32
TASK_OPTIONS = {"until", "max_gen_toks", "do_sample", *SHARPNESS}
_log = logging.getLogger("unmask.extensions.lm_eval")


class RequestRunner:
    """Runs requests with a model. The result of a request does not depend on the others."""

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        v = model.tokenizer.vocabulary
        special = {v.bos_id, v.pad_id, *model.tokenizer.labels.values()} - {None, v.eos_id}
        self._length = checked("row_length", options.row_length or model.length, 8)
        if self._length > model.length:
            raise UnmaskError(
                f"row_length must be at most the model's {model.length} tokens, not {self._length}"
            )
        self.scorer = Scorer(
            model.method,
            self._length,
            draws=options.draws,
            seed=options.seed,
            batch=checked("batch_size", options.batch),
            banned=sorted(i for i in special if i is not None),
            **options.how,
        )
        self._decoding = DECODING[model.method.capabilities.causal]
        sampling = SamplingParams.of(decoding(self._decoding, options.sampling, {}))
        self._first = first_tokens(model, sampling)
        canvas, lead = [*self._first, v.mask_id], len(self._first)
        check_request(model, FillRequest([canvas], lead, [lead], True, 1), sampling)
        # the last position of a row is reserved for EOS
        self._room = self._length - lead - (v.eos_id is not None)

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the log-likelihoods: certificate, process, noise draws, row length."""
        estimator = self.scorer.estimator
        return {
            "unmask_likelihood": f"{CERTIFICATES[estimator.certificate]}, {estimator.of}",
            "unmask_draws": self.scorer.draws,
            "unmask_length": self._length,
        }

    def loglikelihood(
        self, requests: Sequence[tuple[str, str]], progress: Progress = no_progress
    ) -> list[tuple[float, bool]]:
        """log p(continuation | context), and True if greedy decoding writes the continuation."""
        split, cut = [], 0  # rows of each request
        for context, continuation in requests:
            ids, start = self._split(context, continuation)
            split.append(list(windows(self._first, ids, start, self._room)))
            cut += len(ids) > self._room
        _warn_of_cuts(cut, len(requests), self._length)
        rows = [row for parts in split for row in parts]
        log_p = dict(zip(rows, self.scorer.log_p(rows, progress), strict=True))
        greedy = dict(zip(rows, self.scorer.greedy(rows), strict=True))
        return [
            (sum(log_p[part] for part in parts), all(greedy[part] for part in parts))
            for parts in split
        ]

    def rolling(self, texts: Sequence[str], progress: Progress = no_progress) -> list[float]:
        """log p of each text, summed over windows. BOS is given, and EOS is not scored."""
        if self.model.conditional:
            raise UnmaskError(
                "this model writes targets for sources and has no likelihood of a text without a source: "
                "give a task with contexts"
            )
        encode = self.model.tokenizer.encode
        split = [list(windows(self._first, encode(text), 0, self._room)) for text in texts]
        log_p = iter(self.scorer.log_p([row for parts in split for row in parts], progress))
        return [sum(next(log_p) for _ in parts) for parts in split]

    def generate_until(
        self, requests: Sequence[tuple[str, Mapping[str, Any]]], progress: Progress = no_progress
    ) -> list[str]:
        """The continuation of each context, up to a stop string, EOS or max_gen_toks."""
        unknown = {name for _, task in requests for name in task} - TASK_OPTIONS
        if unknown:
            _log.warning("generation options that unmask lacks are ignored: %s", ", ".join(unknown))
        repeats: Counter[str] = Counter()
        jobs = []
        for context, task in requests:
            given, cut, max_new = self._prompt(context, task)
            length = min(-(-(len(given) + max_new) // GRAIN) * GRAIN, self.model.length)
            if self.model.conditional:  # training rows of pairs are filled with EOS to their end
                length = self.model.length
            row = ScoringRequest(given, length)
            # a repeated request gets a seed of its own
            content = repr((row, sorted(task.items())))
            seed = child_seed(row.seed(self.options.seed), repeats[content], "repeat")
            repeats[content] += 1
            options = decoding(self._decoding, self.options.sampling, task)
            jobs.append(_Generation(given, length, max_new, seed, cut, options, _stops(task)))
        _warn_of_cuts(sum(job.cut for job in jobs), len(jobs), self.model.length)
        texts: dict[int, str] = {}
        by_kind = sorted(range(len(jobs)), key=lambda i: jobs[i].kind)
        for _, group in groupby(by_kind, key=lambda i: jobs[i].kind):
            numbers = list(group)
            texts |= zip(numbers, self._generate([jobs[i] for i in numbers]), strict=True)
            progress(len(texts) / len(jobs))
        return [texts[i] for i in range(len(jobs))]

    def _split(self, context: str, continuation: str) -> tuple[list[int], int]:
        """The tokens of context and continuation, and the number of given tokens.

        The given tokens are the common prefix of the encoded context and the encoded whole text. So
        a token that spans context and continuation is scored.
        """
        encode = self.model.tokenizer.encode
        if self.model.conditional:
            source = self._source(context)
            return [*source, *encode(continuation)], len(source)
        ids = encode(context + continuation)
        return ids, common_prefix(ids, encode(context))

    def _source(self, context: str) -> list[int]:
        """The tokens of a source, and EOS, as in training pairs."""
        eos = self.model.tokenizer.vocabulary.eos_id
        assert eos is not None  # the tokenizer of a model of pairs has an EOS
        return [*self.model.tokenizer.encode(context), eos]

    def _prompt(self, context: str, task: Mapping[str, Any]) -> tuple[tuple[int, ...], bool, int]:
        """The given tokens of a row, True if the context is cut,
        and the largest number of new tokens.
        """
        max_new = checked("max_gen_toks", task.get("max_gen_toks", self.options.max_gen_toks))
        conditional = self.model.conditional
        ids = self._source(context) if conditional else self.model.tokenizer.encode(context)
        length = self.model.length
        room = length - len(self._first) - min(max_new, length // 2)
        given = (*self._first, *ids[max(len(ids) - room, 0) :])
        return given, len(ids) > room, min(max_new, length - len(given))

    def _generate(self, jobs: Sequence["_Generation"]) -> list[str]:
        """Generates texts of equal row length and equal options."""
        length, mask_id = jobs[0].length, self.model.tokenizer.vocabulary.mask_id
        canvases = [[*job.given, *[mask_id] * (length - len(job.given))] for job in jobs]
        fixed = [len(job.given) for job in jobs]
        fill = FillRequest(canvases, len(self._first), fixed, ends=True, openings=length)
        sampling = SamplingParams.of(
            {
                **jobs[0].options,
                "seed": [job.seed for job in jobs],
                "batch": self.options.batch,
            }
        )
        results = Generator(self.model, fill, sampling).results()
        decode = self.model.tokenizer.decode
        return [
            job.before_stop(decode(result.ids[len(job.given) :][: job.max_new]))
            for job, result in zip(jobs, results, strict=True)
        ]


@dataclass(frozen=True)
class _Generation:
    """A text to generate."""

    given: tuple[int, ...]  # BOS or class token, and the context
    length: int  # tokens of its row
    max_new: int  # largest number of new tokens
    seed: int
    cut: bool  # True if the start of the context is dropped
    options: dict[str, Any]
    stops: tuple[str, ...]

    @property
    def kind(self) -> tuple[int, str]:
        """Row length and options; texts of one kind share batches."""
        return self.length, repr(sorted(self.options.items()))

    def before_stop(self, text: str) -> str:
        """The text before the first stop string."""
        return text[
            : min((at for stop in self.stops if (at := text.find(stop)) >= 0), default=None)
        ]


def _stops(task: Mapping[str, Any]) -> tuple[str, ...]:
    until = task.get("until") or ()
    return tuple(stop for stop in ([until] if isinstance(until, str) else until) if stop)


def _warn_of_cuts(cut: int, total: int, length: int) -> None:
    if cut:
        _log.warning(
            "%d of %d requests are longer than rows of %d tokens: the start of their contexts is cut",
            cut,
            total,
            length,
        )
