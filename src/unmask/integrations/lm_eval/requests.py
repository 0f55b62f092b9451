"""Log-likelihoods and texts for the requests of lm-evaluation-harness, without importing it."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from unmask.errors import UnmaskError
from unmask.evaluation.suites.translation import DECODING
from unmask.generation.generator import Generator
from unmask.generation.guidance import first_tokens
from unmask.generation.prompts import FillRequest
from unmask.generation.sampling_params import SHARPNESS, SamplingParams
from unmask.integrations.lm_eval.model_args import Options, decoding
from unmask.integrations.lm_eval.scoring import Scorer, ScoringRequest, shared, unseen, windows
from unmask.likelihood.bound import CERTIFICATES
from unmask.likelihood.estimate import Progress, checked
from unmask.model import Model
from unmask.randomness import child_seed

# Row lengths for generation are rounded up to multiples of it. Rows of equal length share a batch.
GRAIN = 32
UNDERSTOOD = {"until", "max_gen_toks", "do_sample", *SHARPNESS}
_log = logging.getLogger("unmask.integrations.lm_eval")


class RequestRunner:
    """Runs requests with a model. The result of a request does not depend on the others."""

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        v = model.tokenizer.vocabulary
        special = {v.bos_id, v.pad_id, *model.tokenizer.labels.values()} - {None, v.eos_id}
        self.scorer = Scorer(
            model.method,
            model.length,
            draws=options.draws,
            seed=options.seed,
            batch=checked("batch_size", options.batch),
            banned=sorted(i for i in special if i is not None),
            **options.how,
        )
        self._usual = DECODING[model.method.capabilities.causal]
        sampling = SamplingParams.of(decoding(self._usual, options.sampling, {}))
        self._first = first_tokens(model, sampling)
        canvas = [
            *self._first,
            v.mask_id,
        ]  # reports errors of the options before any request is run
        Generator(
            model, FillRequest([canvas], len(self._first), [len(self._first)], True, 1), sampling
        )
        # the last position of a row is reserved for EOS
        self._room = model.length - len(self._first) - (v.eos_id is not None)

    @property
    def about(self) -> dict[str, Any]:
        """Facts about the log-likelihoods: certificate and process, draws, length."""
        estimator = self.scorer.estimator
        return {
            "unmask_likelihood": f"{CERTIFICATES[estimator.certificate]}, {estimator.of}",
            "unmask_draws": self.scorer.draws,
            "unmask_length": self.model.length,
        }

    def loglikelihood(
        self, requests: Sequence[tuple[str, str]], progress: Progress = unseen
    ) -> list[tuple[float, bool]]:
        """log p(continuation | context), and True if greedy decoding writes the continuation."""
        asked, cut = [], 0
        for context, continuation in requests:
            ids, start = self._split(context, continuation)
            asked.append(list(windows(self._first, ids, start, self._room)))
            cut += len(ids) > self._room
        self._tell_of(cut, len(requests))
        questions = [question for parts in asked for question in parts]
        log_p = dict(zip(questions, self.scorer.log_p(questions, progress), strict=True))
        greedy = dict(zip(questions, self.scorer.greedy(questions), strict=True))
        return [
            (sum(log_p[part] for part in parts), all(greedy[part] for part in parts))
            for parts in asked
        ]

    def rolling(self, texts: Sequence[str], progress: Progress = unseen) -> list[float]:
        """log p of each text, summed over windows. BOS is given, and EOS is not scored."""
        if self.model.conditional:
            raise UnmaskError(
                "this model writes targets for sources and has no likelihood of a text without a source: "
                "give a task with contexts"
            )
        encode = self.model.tokenizer.encode
        asked = [list(windows(self._first, encode(text), 0, self._room)) for text in texts]
        questions = [question for parts in asked for question in parts]
        log_p = iter(self.scorer.log_p(questions, progress))
        return [sum(next(log_p) for _ in parts) for parts in asked]

    def generate_until(
        self, requests: Sequence[tuple[str, Mapping[str, Any]]], progress: Progress = unseen
    ) -> list[str]:
        """The continuation of each context, up to a stop string, EOS or max_gen_toks."""
        others = {name for _, asked in requests for name in asked} - UNDERSTOOD
        if others:
            _log.warning("generation options that unmask lacks are ignored: %s", ", ".join(others))
        often: Counter[str] = Counter()
        writings = []
        for context, asked in requests:
            given, cut, most = self._prompt(context, asked)
            length = min(-(-(len(given) + most) // GRAIN) * GRAIN, self.model.length)
            if self.model.conditional:  # training rows of pairs are filled with EOS to their end
                length = self.model.length
            question = ScoringRequest(given, length)
            # a repeated request gets another draw
            same = repr((question, sorted(asked.items())))
            seed = child_seed(question.seed(self.options.seed), often[same], "repeat")
            often[same] += 1
            options = decoding(self._usual, self.options.sampling, asked)
            writings.append(_Writing(given, length, most, seed, cut, options, _stops(asked)))
        self._tell_of(sum(writing.cut for writing in writings), len(writings))
        texts: dict[int, str] = {}
        alike = sorted(range(len(writings)), key=lambda i: writings[i].kind)
        for _, group in groupby(alike, key=lambda i: writings[i].kind):
            rows = list(group)
            texts |= zip(rows, self._write([writings[i] for i in rows]), strict=True)
            progress(len(texts) / len(writings))
        return [texts[i] for i in range(len(writings))]

    def _split(self, context: str, continuation: str) -> tuple[list[int], int]:
        """The tokens of context and continuation, and the number of tokens that are given.

        The given tokens are the common prefix of two encodings: of the context, and of the context with
        the continuation. A token that spans both texts belongs to the continuation.
        """
        encode = self.model.tokenizer.encode
        if self.model.conditional:
            source = self._source(context)
            return [*source, *encode(continuation)], len(source)
        ids = encode(context + continuation)
        return ids, shared(ids, encode(context))

    def _source(self, context: str) -> list[int]:
        """The tokens of a source, and EOS, as in training pairs."""
        eos = self.model.tokenizer.vocabulary.eos_id
        assert eos is not None  # the tokenizer of a model of pairs has an EOS
        return [*self.model.tokenizer.encode(context), eos]

    def _prompt(self, context: str, asked: Mapping[str, Any]) -> tuple[tuple[int, ...], bool, int]:
        """The given tokens of a row, True if the context is cut, and the largest number of new tokens."""
        most = checked("max_gen_toks", asked.get("max_gen_toks", self.options.max_gen_toks))
        conditional = self.model.conditional
        ids = self._source(context) if conditional else self.model.tokenizer.encode(context)
        length = self.model.length
        room = length - len(self._first) - min(most, length // 2)
        given = (*self._first, *ids[max(len(ids) - room, 0) :])
        return given, len(ids) > room, min(most, length - len(given))

    def _write(self, writings: Sequence["_Writing"]) -> list[str]:
        """Generates texts of equal row length and equal options."""
        length, mask_id = writings[0].length, self.model.tokenizer.vocabulary.mask_id
        canvases = [[*one.given, *[mask_id] * (length - len(one.given))] for one in writings]
        fixed = [len(one.given) for one in writings]
        job = FillRequest(canvases, len(self._first), fixed, ends=True, openings=length)
        sampling = SamplingParams.of(
            {
                **writings[0].options,
                "seed": [writing.seed for writing in writings],
                "batch": self.options.batch,
            }
        )
        results = Generator(self.model, job, sampling).results()
        decode = self.model.tokenizer.decode
        return [
            writing.until(decode(result.ids[len(writing.given) :][: writing.most]))
            for writing, result in zip(writings, results, strict=True)
        ]

    def _tell_of(self, cut: int, of: int) -> None:
        if cut:
            _log.warning(
                "%d of %d requests are longer than the model's %d tokens: the start of their "
                "contexts is cut",
                cut,
                of,
                self.model.length,
            )


@dataclass(frozen=True)
class _Writing:
    """A text to generate; `cut` is True if the start of its context is dropped."""

    given: tuple[int, ...]
    length: int  # tokens of its row
    most: int  # largest number of new tokens
    seed: int
    cut: bool
    options: dict[str, Any]
    stops: tuple[str, ...]

    @property
    def kind(self) -> tuple[int, str]:
        """Row length and options; texts with an equal kind share batches."""
        return self.length, repr(sorted(self.options.items()))

    def until(self, text: str) -> str:
        """The text before the first stop string."""
        return text[
            : min((at for stop in self.stops if (at := text.find(stop)) >= 0), default=None)
        ]


def _stops(asked: Mapping[str, Any]) -> tuple[str, ...]:
    until = asked.get("until") or ()
    return tuple(stop for stop in ([until] if isinstance(until, str) else until) if stop)
