"""Targets for the sources of a data set, scored by BLEU against their references."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

from unmask.data.load import pairs_from
from unmask.errors import UnmaskError
from unmask.evaluation.metrics.bleu import Bleu, bleu, defined
from unmask.generation.sampling_params import params_to_generate
from unmask.model import Model

DECODING = {  # unless given: of methods that fill any place, and of causal ones
    False: {"sampler": "confidence", "strategy": "deterministic"},
    True: {"sampler": "left_to_right", "strategy": "deterministic"},
}


@dataclass(frozen=True)
class Translation:
    """What a model wrote for sources, and its score; a source may have several references."""

    sources: list[str]
    hypotheses: list[str]
    references: list[list[str]]
    bleu: Bleu | None  # which is not defined if no reference has four words
    exact: int  # targets that are a reference, word for word
    too_long: int  # sources that leave no room for a target: nothing was written for them
    unended: int  # targets that reached the end of the row before their own
    calls: float  # of the network, for a target
    decoding: dict[str, Any]  # the options that it was written with

    def to_dict(self) -> dict[str, Any]:
        """All figures, for a log."""
        names = ("exact", "too_long", "unended", "calls", "decoding")
        score = {"score": None, "texts": len(self.sources)}
        score = self.bleu.to_dict() if self.bleu else score
        return {**score, **{name: getattr(self, name) for name in names}}


def translate(
    model: Model, data: str | None = None, *, sources: int | None = None, **options: Any
) -> Translation:
    """Writes a target for each source of a data source, or (None) of the validation pairs.

    `sources` takes the first so many only. Options are those of `Model.generate`; without any the
    likeliest tokens are taken, the surest places first, once it is settled where a target ends.
    """
    if not model.conditional:
        raise UnmaskError(
            "this model was trained on text, not on pairs: data.source_field and data.target_field "
            "make one that translates"
        )
    if options.get("n") not in (None, 1):
        raise UnmaskError("BLEU is of one target for each source: leave n out")
    if sources is not None and sources < 1:
        raise UnmaskError(f"sources must be 1 or more, not {sources}")
    found: dict[str, list[str]] = {}
    for pair in pairs_from(data, model.config.data):
        found.setdefault(pair.source, []).append(str(pair))
    references = dict(islice(found.items(), sources))
    scored = defined(list(references.values()))  # what is missing is told before all is written
    _, length = params_to_generate(model.defaults, {}, options.get("length"))
    room = length if isinstance(length, int) else model.length
    fitting = [source for source in references if _fits(model, source, room)]
    ending = {"ending": "first"} if model.method.capabilities.any_order else {}
    decoding = {**DECODING[model.method.capabilities.causal], **ending, **options}
    results = model.generate(fitting, **decoding)
    written = dict(zip(fitting, results, strict=True))
    eos = model.tokenizer.vocabulary.eos_id
    hypotheses = [str(written[source]) if source in written else "" for source in references]
    wanted = list(references.values())
    matches = zip(hypotheses, wanted, strict=True)
    return Translation(
        sources=list(references),
        hypotheses=hypotheses,
        references=wanted,
        bleu=bleu(hypotheses, wanted) if scored else None,
        exact=sum(text.split() in map(str.split, own) for text, own in matches),
        too_long=len(references) - len(fitting),
        unended=sum(eos not in result.ids for result in results),
        calls=sum(result.calls for result in results) / max(len(results), 1),
        decoding={name: value for name, value in decoding.items() if name != "batch"},
    )


def _fits(model: Model, source: str, room: int) -> bool:
    """Whether BOS, the source, EOS and one token of a target go into a row."""
    return len(model.tokenizer.encode(source)) + 3 <= room
