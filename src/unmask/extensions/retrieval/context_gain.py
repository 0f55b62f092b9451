"""The suite `retrieval`: bits per byte of held-out paragraphs,
with and without retrieved passages.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unmask.errors import UnmaskError
from unmask.evaluation.suites.suite import SUITES, Progress, Suite, column
from unmask.options import option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from unmask.data.rows.token_rows import Rows
    from unmask.model import Model

_EVERY = 10  # of ten paragraphs one is held out, and nine are passages


@dataclass(frozen=True)
class RetrievalOptions:
    """Options of the suite `retrieval`."""

    data: str = option(
        "builtin:pydoc", metavar="SOURCE", help="text; every tenth paragraph is held out"
    )
    retrieve: str | None = option(
        None, metavar="SOURCE", help="text of the passages; by default the other paragraphs of data"
    )
    paragraphs: int = option(64, ge=2, help="held-out paragraphs")
    prompt: int = option(16, ge=1, help="given tokens of a paragraph, which are the query")
    target: int = option(64, ge=1, help="predicted tokens behind the prompt")
    context: int = option(160, ge=2, help="most tokens of the passages")
    passages: int = option(8, ge=1, help="most passages of a context")
    draws: int = option(4, ge=1, help="noise draws per paragraph")
    seed: int = option(0, help="seed of the noise and of the choice of paragraphs")
    batch: int = option(32, ge=1, help="rows of one batch")


@dataclass(frozen=True)
class RetrievalRow:
    """Bits per byte of the targets with one kind of context, and the gain over no context.

    The interval is a bootstrap over paragraphs. All kinds of context have the same noise.
    """

    context: str
    bits_per_byte: float = column(format=".4f")
    gain: float | None = column(None, format="+.4f")
    low: float | None = column(None, title="95% from", format="+.4f")
    high: float | None = column(None, title="to", format="+.4f")
    tokens: float = column(0.0, title="context tokens", format=".0f")
    paragraphs: int = 0


@SUITES.register("retrieval")
class Retrieval(Suite):
    """Gain of retrieved passages, in bits per byte."""

    Options = RetrievalOptions
    Row = RetrievalRow
    examples = (
        "wiki --data notes.txt --paragraphs 32",
        "stories --data new.txt --retrieve old.txt",
    )

    def rows(
        self, model: "Model", options: RetrievalOptions, progress: Progress
    ) -> Iterator[RetrievalRow]:
        import numpy as np

        from unmask.extensions.retrieval.bm25 import Retriever
        from unmask.methods.method import METHODS, methods_that

        model.refuse_pairs("it reads a source and no passages; measure it with 'unmask evaluate'")
        if not model.method.capabilities.score or not model.method.capabilities.generate:
            able = methods_that(lambda can: can.score and can.generate)
            raise UnmaskError(
                f"the method {METHODS.name_of(model.method)} has no likelihood: give a model of method {able}"
            )
        room = model.length - 1 - options.context
        if options.prompt + options.target > room:
            raise UnmaskError(
                f"context, prompt and target have {options.context + options.prompt + options.target} "
                f"tokens, and the model reads {model.length - 1}: give a smaller --context or --target"
            )
        held, others = held_out(model, options)
        retriever = Retriever(others)
        dice = random.Random(options.seed)
        kinds: dict[str, Callable[[str], Sequence[str]]] = {
            "none": lambda query: (),
            "random passages": lambda query: dice.sample(
                retriever.passages, min(options.passages, len(retriever.passages))
            ),
            "retrieved passages": lambda query: retriever.search(query, options.passages),
        }
        progress.expect(list(kinds))
        base = None
        for name, search in kinds.items():
            table, sizes, tokens = _rows(model, held, search, options)
            bits = _bits(model, table, options)
            base = bits if base is None else base
            gain, low, high = (None,) * 3 if name == "none" else _gain(base - bits, sizes)
            per_byte, mean = float(bits.sum() / sizes.sum()), float(np.mean(tokens))
            yield RetrievalRow(name, per_byte, gain, low, high, mean, len(held))

    def notes(self, rows: Sequence[RetrievalRow]) -> list[str]:
        return ["gain: bits per byte less than without context; the interval is over paragraphs"]


def held_out(model: "Model", options: RetrievalOptions) -> tuple[list[list[int]], list[str]]:
    """The ids of held-out paragraphs, cut to prompt and target, and the passages to search."""
    from unmask.extensions.retrieval.bm25 import read_passages

    def paragraphs(source: str) -> list[str]:
        # a paragraph of several places would be its own passage
        found = dict.fromkeys(map(str.strip, read_passages(source)))
        return [text for text in found if text]

    found = paragraphs(options.data)
    candidates = found if options.retrieve is not None else found[::_EVERY]
    others = paragraphs(options.retrieve) if options.retrieve is not None else []
    others = others or [text for number, text in enumerate(found) if number % _EVERY]
    chosen = set(others)
    length = options.prompt + options.target
    rows: list[list[int]] = []
    for text in random.Random(options.seed).sample(candidates, len(candidates)):
        ids = model.tokenizer.encode(text)
        if len(ids) >= length and text not in chosen:
            rows.append(ids[:length])
        if len(rows) == options.paragraphs:
            return rows, others
    raise UnmaskError(
        f"{options.data} has {len(rows)} held-out paragraphs of {length} tokens, and "
        f"{options.paragraphs} are needed: give fewer --paragraphs, a smaller --target, or more text"
    )


def _rows(
    model: "Model",
    held: Sequence[Sequence[int]],
    search: Callable[[str], Sequence[str]],
    options: RetrievalOptions,
) -> "tuple[Rows, NDArray[np.float64], list[int]]":
    """Rows of first tokens, passages, prompt and target; bytes of targets, tokens of contexts."""
    import numpy as np

    from unmask.data.rows.row_counts import Totals
    from unmask.data.rows.token_rows import Layout, Rows
    from unmask.generation.guidance import first_tokens
    from unmask.generation.prompts import context_ids
    from unmask.generation.sampling_params import SamplingParams

    tokenizer, first = model.tokenizer, first_tokens(model, SamplingParams())
    contexts = [
        context_ids(tokenizer, search(tokenizer.decode(ids[: options.prompt])), options.context)
        for ids in held
    ]
    pad = tokenizer.vocabulary.mask_id  # no text holds it
    length = len(first) + options.context + len(held[0])
    table = np.full((len(held), 2 + length), pad, np.int64)
    table[:, :2] = length, length - options.target  # tokens, and given ones among them
    for row, context, ids in zip(table, contexts, held, strict=True):
        whole = [*first, *context, *ids]
        row[-len(whole) :] = (
            whole  # targets have the same positions, so that they have the same noise
        )
    sizes = [len(tokenizer.decode(ids[options.prompt :]).encode()) for ids in held]
    totals = Totals(len(held), options.target * len(held), sum(sizes), sum(sizes))
    rows = Rows(table, totals, Layout(paired=True, ignored=pad))
    return rows, np.array(sizes, np.float64), list(map(len, contexts))


def _bits(model: "Model", rows: "Rows", options: RetrievalOptions) -> "NDArray[np.float64]":
    """The bits of each target, averaged over draws."""
    import torch

    from unmask.likelihood.estimate import nats_by_row

    with model.method.arithmetic():
        terms = nats_by_row(
            model.method, rows, draws=options.draws, seed=options.seed, batch=options.batch
        )
    bits: NDArray[np.float64] = torch.stack(list(terms.values())).sum(0).mean(0).numpy()
    return bits / math.log(2)


def _gain(bits: "NDArray[np.float64]", sizes: "NDArray[np.float64]") -> tuple[float, float, float]:
    """The saved bits per byte with a 95% interval over paragraphs."""
    from unmask.evaluation.metrics.bootstrap import ratio

    figure = ratio(bits, sizes)
    return figure.value, figure.low, figure.high
