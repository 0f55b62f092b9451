"""The suite `translation`: targets that a model of pairs generates, scored by BLEU and chrF."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import SUITES, Progress, Suite
from unmask.evaluation.suites.text_likelihood import source_name
from unmask.files.storage import check_place
from unmask.options import option

if TYPE_CHECKING:
    from unmask.extensions.pairs.bleu import Bleu
    from unmask.model import Model


@dataclass(frozen=True)
class TranslationOptions:
    """Options of the suite `translation`."""

    data: str | None = option(
        None, metavar="SOURCE", help="pairs; by default the model's validation pairs"
    )
    sources: int | None = option(None, ge=1, help="the first N sources only; by default all")
    decoding: str | None = option(
        None,
        metavar="NAME",
        help="sampler, as NAME:field=value,…; by default confidence, or left_to_right if causal",
    )
    ending: Literal["first", "free"] | None = option(
        None,
        metavar="NAME",
        help="first fixes a target's length before its tokens (default of diffusion), free does not",
    )
    seed: int | None = option(None, help="seed; equal seeds give equal targets (0)")
    batch: int = option(64, ge=1, help="targets of one batch")
    hypotheses: Path | None = option(
        None, group="output", help="file for the targets, one a line, one for each different source"
    )

    def __post_init__(self) -> None:
        if self.hypotheses is not None:
            check_place(self.hypotheses)


@dataclass(frozen=True)
class Translation:
    """Generated targets of sources and their score; a source may have several references."""

    sources: list[str]
    hypotheses: list[str]
    references: list[list[str]]
    bleu: "Bleu | None"  # None if no reference has four words
    chrf: float  # F-score of character n-grams, from 0 to 100
    exact: int  # targets that equal a reference, word for word
    too_long: int  # sources that leave no room for a target; their target is empty
    unended: int  # targets without an EOS before the end of the row
    calls: float  # network calls per target
    seconds: float  # per target, in batches
    decoding: dict[str, Any]  # options of `generate`
    data: str  # name of the pairs
    fields: str  # names of the source and target fields

    def to_dict(self) -> dict[str, Any]:
        """All figures as a dictionary."""
        names = ("data", "fields", "chrf", "exact", "too_long", "unended", "calls", "seconds")
        score = {"score": None, "texts": len(self.sources)}
        score = self.bleu.to_dict() if self.bleu else score
        return {**score, **{name: getattr(self, name) for name in (*names, "decoding")}}


@SUITES.register("translation")
class TranslationSuite(Suite):
    """BLEU and chrF of the targets that a model of pairs generates."""

    Options = TranslationOptions
    Row = Translation
    tall = True
    examples = (
        'runs/multi30k --data "multi30k/test_2016_flickr.{de,en}"',
        "runs/multi30k --sources 200 --hypotheses targets.txt",
    )

    def rows(
        self, model: "Model", options: TranslationOptions, progress: Progress
    ) -> Iterator[Translation]:
        chosen = {"sampler": options.decoding, "ending": options.ending, "seed": options.seed}
        given = {name: value for name, value in chosen.items() if value is not None}
        found = translate(
            model, options.data, sources=options.sources, batch=options.batch, **given
        )
        if options.hypotheses is not None:
            lines = (" ".join(text.split()) + "\n" for text in found.hypotheses)
            options.hypotheses.write_text("".join(lines), encoding="utf-8")
        yield found

    def cells(self, row: Translation) -> dict[str, str]:
        score = row.bleu
        too_long = f"{row.too_long:,} sources, whose targets are scored as empty"
        unended = f"{row.unended:,} targets, cut at the end of the row"
        undefined = "not defined: no reference has four words"
        return {
            "BLEU": f"{score.score:.2f}  95% in {score.interval}" if score else undefined,
            "chrF": f"{row.chrf:.2f}",
            "exact": f"{row.exact:,} targets are a reference, word for word",
            "sources": f"{len(row.sources):,}",
            "references": f"{sum(map(len, row.references)):,}",
            "network calls": f"{row.calls:.1f} a target",
            "seconds": f"{row.seconds:.4f} a target",
            "too long": too_long if row.too_long else "",
            "not ended": unended if row.unended else "",
            "signature": score.signature if score else "",
            "data": row.data,
            "fields": row.fields,
            "decoding": _described(row.decoding),
        }


def _described(decoding: dict[str, Any]) -> str:
    """The options of `generate` in words."""
    ending = {"first": "length first", "free": "length free"}
    names = {"sampler": "", "strategy": "", "ending": ""}
    return ", ".join(
        f"{names.get(name, f'{name} ')}{ending.get(str(value), str(value))}"
        for name, value in decoding.items()
    )


def translate(
    model: "Model", data: str | None = None, *, sources: int | None = None, **options: Any
) -> Translation:
    """Generates a target for each source and scores the targets by BLEU and chrF.

    Args:
        model: A model of pairs.
        data: Data source of pairs; by default the model's validation pairs.
        sources: Number of sources, from the first on; by default all.
        options: Options of `Model.generate`. The default is greedy: a target's length is fixed
            first, then the likeliest tokens are taken in order of confidence.

    Returns:
        Targets, references and scores.
    """
    from unmask.data.load import pairs_from
    from unmask.extensions.pairs.bleu import bleu, chrf, defined
    from unmask.generation.sampler_spec import DECODING
    from unmask.generation.sampling_params import params_to_generate

    if not model.conditional:
        raise UnmaskError(
            "this model was trained on text, not on pairs: train one with data.source_field and "
            "data.target_field"
        )
    if options.get("n") not in (None, 1):
        raise UnmaskError("BLEU scores one target for each source: leave n out")
    if sources is not None and sources < 1:
        raise UnmaskError(f"sources must be 1 or more, not {sources}")
    targets: dict[str, list[str]] = {}  # of each source
    for pair in pairs_from(data, model.config.data):
        targets.setdefault(pair.source, []).append(str(pair))
    references = dict(islice(targets.items(), sources))
    # before generation, so that a missing package is an error at once
    scored = defined(list(references.values()))
    _, length = params_to_generate(model.defaults, {}, options.get("length"))
    room = length if isinstance(length, int) else model.length
    fitting = [source for source in references if _fits(model, source, room)]
    decides = model.method.capabilities.any_order and not model.method.backbone.predicts_length
    ending = {"ending": "first"} if decides else {}
    decoding = {**DECODING[model.method.capabilities.causal], **ending, **options}
    started = time.perf_counter()
    results = model.generate(fitting, **decoding)
    seconds = time.perf_counter() - started
    by_source = dict(zip(fitting, results, strict=True))
    eos = model.tokenizer.vocabulary.eos_id
    hypotheses = [str(by_source[source]) if source in by_source else "" for source in references]
    wanted = list(references.values())
    matches = zip(hypotheses, wanted, strict=True)
    return Translation(
        sources=list(references),
        hypotheses=hypotheses,
        references=wanted,
        bleu=bleu(hypotheses, wanted) if scored else None,
        chrf=chrf(hypotheses, wanted),
        exact=sum(text.split() in map(str.split, own) for text, own in matches),
        too_long=len(references) - len(fitting),
        unended=sum(eos not in result.ids for result in results),
        calls=sum(result.calls for result in results) / max(len(results), 1),
        seconds=seconds / max(len(results), 1),
        decoding={name: value for name, value in decoding.items() if name != "batch"},
        data=source_name(model, data),
        fields=f"{model.config.data.source_field} to {model.config.data.target_field}",
    )


def _fits(model: "Model", source: str, room: int) -> bool:
    """True if the network reads BOS, the source and EOS,
    and one token of a target fits into a row.
    """
    given, longest = len(model.tokenizer.encode(source)) + 2, model.method.backbone.longest_source
    return given < room and (longest is None or given <= longest)
