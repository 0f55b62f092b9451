"""The suite `likelihood`: negative log-likelihood of a text,
measured at once or in merged shards.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask import shipped
from unmask.errors import UnmaskError
from unmask.evaluation.suites.likelihood_parts import merged, parse_order, parse_shard
from unmask.evaluation.suites.likelihood_table import Baseline, cells, summary
from unmask.evaluation.suites.suite import SUITES, Progress, Suite
from unmask.options import changed_options, option

if TYPE_CHECKING:
    from unmask.data.rows.token_rows import Rows
    from unmask.likelihood.bound import Bound
    from unmask.likelihood.estimate import How
    from unmask.likelihood.measured_rows import TextStatistics
    from unmask.model import Model


@dataclass(frozen=True)
class LikelihoodOptions:
    """Options of the suite `likelihood`."""

    data: str | None = option(
        None,
        metavar="SOURCE",
        help="text: file, folder, hf:NAME, builtin:NAME, or -; by default the run's validation text",
    )
    draws: int = option(8, ge=1, help="noise draws per row; the error falls as 1/sqrt(N)")
    seed: int = option(0, help="seed of the draws")
    packing: str | None = option(
        None,
        metavar="MODE",
        help="packing: wrap, join, fit, pad or split; by default that of training",
    )
    batch: int = option(32, ge=1, help="rows of one batch")
    estimator: str | None = option(
        None,
        metavar="NAME",
        help="estimator: fixed_count (default), stratified, importance, uniform, or pseudo for a pseudo-likelihood",
    )
    steps: int | None = option(
        None,
        ge=0,
        metavar="T",
        help="T of the bound, 0 for continuous time; by default that of training",
    )
    order: str | None = option(
        None,
        metavar="ORDER",
        help="chain rule in this order: left_to_right, right_to_left, random, or positions such as 2,0,1",
    )
    orders: int | None = option(
        None, ge=1, metavar="K", help="any-order bound with K random orders per draw"
    )
    block: int | None = option(
        None,
        ge=0,
        metavar="N",
        help="tokens of a block, for block_diffusion, 0 for the whole row; by default that of training",
    )
    rule: str | None = option(
        None,
        metavar="SAMPLER",
        help="exact likelihood of the texts that this sampler writes, such as confidence or threshold:threshold=0.9",
    )
    temperature: float | None = option(None, gt=0, help="of the draws of --rule; 1 by default")
    shard: str | None = option(None, metavar="I/N", help="measure part I of N, counted from 0")
    merge: list[Path] | None = option(None, help="merge parts that --save wrote; without MODEL")

    def __post_init__(self) -> None:
        parse_order(self.order)
        parse_shard(self.shard)


@dataclass(frozen=True)
class LikelihoodRow:
    """A bound and its conditions: text, packing, length, tokenizer, precision, weights."""

    bound: "Bound"
    conditions: dict[str, Any]
    model: str | None = None  # name of the model, for merged parts
    statistics: "TextStatistics | None" = None  # None for parts of a text
    baseline: "Baseline | None" = None
    upper: "Bound | None" = None  # order-agnostic bound beside a pseudo-likelihood

    def to_dict(self) -> dict[str, Any]:
        """All figures, and the sums for merging parts."""
        sums = self.bound.sums.to_dict() if self.bound.sums else None
        name = {"model": self.model} if self.model else {}
        figures = {**self.conditions, **self.bound.to_dict()}
        if self.statistics is not None:
            figures |= {"words_per_token": self.statistics.words}
            figures |= {"unigram_nats": self.statistics.unigram_nats}
        if self.baseline is not None:
            figures |= self.baseline.to_dict()
        if self.upper is not None:
            names = ("nats", "error", "perplexity", "perplexity_error")
            figures |= {f"upper_{name}": self.upper.to_dict()[name] for name in names}
        return {**name, **figures, "conditions": self.conditions, "sums": sums}


@SUITES.register("likelihood")
class Likelihood(Suite):
    """Perplexity of a text, with Monte-Carlo error and certificate."""

    Options = LikelihoodOptions
    Row = LikelihoodRow
    tall = True
    examples = (
        "stories --data notes.txt --packing split --draws 16",
        "runs/demo --shard 0/2 --save first.json",
    )

    def rows(
        self, model: "Model", options: LikelihoodOptions, progress: Progress
    ) -> Iterator[LikelihoodRow]:
        from unmask.generation.sampler_spec import decoding_rule
        from unmask.likelihood.estimate import How
        from unmask.training.logs.progress import MeasureProgress

        how = How(
            estimator=options.estimator,
            steps=options.steps,
            order=parse_order(options.order),
            orders=options.orders,
            block=options.block,
            temperature=options.temperature,
        )
        if options.rule is not None:
            how["rule"] = decoding_rule(options.rule, model)
        bound = model.perplexity(
            source=options.data,
            draws=options.draws,
            seed=options.seed,
            packing=options.packing,
            **how,
            shard=parse_shard(options.shard),
            batch=options.batch,
            progress=MeasureProgress("measured", progress.say),
        )
        data = model.config.data
        conditions = {
            "data": source_name(model, options.data),
            "packing": options.packing or data.packing,
            "length": data.length,
            "tokenizer": f"{data.tokenizer.kind} {model.tokenizer.vocabulary.size}",
            "precision": model.precision,
            "weights": model.digest,
        }
        upper = _upper(model, options) if bound.certificate == "pseudo" else None
        if upper is None:
            say_unused(options, bound, progress)
        statistics = baseline = None
        if (rows := _rows_again(model, options)) is not None:
            from unmask.likelihood.measured_rows import text_statistics

            statistics = text_statistics(rows, model.tokenizer.decode)
            baseline = _twin(model, rows, options.batch) or _start(model, rows, options, how)
        yield LikelihoodRow(bound, conditions, None, statistics, baseline, upper)

    def summary(self, rows: Sequence[LikelihoodRow]) -> str:
        row = rows[0]
        return summary(row.bound, row.statistics, row.baseline, row.conditions["data"])

    def cells(self, row: LikelihoodRow) -> dict[str, str]:
        return {**cells(row.bound, row.upper), **{k: str(v) for k, v in row.conditions.items()}}

    def saved(
        self, source: str | None, options: LikelihoodOptions
    ) -> Iterator[LikelihoodRow] | None:
        if options.merge is None:
            return None
        if source is not None:
            raise UnmaskError("--merge reads saved parts only: leave MODEL out")
        for name in changed_options(options):
            if name != "merge":
                raise UnmaskError(f"--{name} does not go with --merge: leave it out")
        return _merged(options.merge)


def _merged(files: list[Path]) -> Iterator[LikelihoodRow]:
    bound, conditions, model = merged(files)
    yield LikelihoodRow(bound, conditions, model)


def _upper(model: "Model", options: LikelihoodOptions) -> "Bound | None":
    """The mean over token orders of the chain rule, an upper bound; None for a part of a text.

    The bound of a masked diffusion equals this mean, and needs fewer network calls.
    """
    if options.shard is not None:
        return None
    orders = None if model.method.capabilities.time_bound else 1
    return model.perplexity(
        source=options.data,
        draws=options.draws,
        seed=options.seed,
        packing=options.packing,
        orders=orders,
        batch=options.batch,
    )


def _rows_again(model: "Model", options: LikelihoodOptions) -> "Rows | None":
    """The rows of the measured text, which are in the cache.

    None for a part of a text, and for a source that cannot be read again at once.
    """
    from unmask.data.sources.open_source import scheme_of
    from unmask.likelihood.perplexity import rows_of

    own = model.config.data
    sources = [options.data] if options.data else [own.valid or own.portions[0].text]
    if options.shard is not None or any(
        scheme_of(source) for source in sources if not source.startswith("builtin:")
    ):
        return None
    try:
        return rows_of(model, options.data, options.packing)
    except UnmaskError:
        return None


def _start(model: "Model", rows: "Rows", options: LikelihoodOptions, how: "How") -> Baseline | None:
    """The shipped model that the training of `model` started from, on the same rows and noise.

    None without such a model, and if it has another tokenizer or another method.
    """
    from unmask.likelihood.estimate import likelihood
    from unmask.methods.method import METHODS
    from unmask.model import load

    name = model.config.init_from
    if name not in shipped.names():
        return None
    start = load(name, model.device.type, model.precision)
    same_text = start.tokenizer.fingerprint == model.tokenizer.fingerprint
    if not same_text or METHODS.name_of(start.method) != METHODS.name_of(model.method):
        return None
    with start.method.arithmetic():
        bound = likelihood(
            start.method,
            rows,
            draws=options.draws,
            seed=options.seed,
            batch=options.batch,
            **how,
        )
    return Baseline("start", name, bound.nats)


def _twin(model: "Model", rows: "Rows", batch: int) -> Baseline | None:
    """The autoregressive model that was trained like this shipped model.

    It measures the same rows in one pass without noise. None if there is no twin.
    """
    from unmask.formats.read import read_bundle
    from unmask.likelihood.estimate import likelihood
    from unmask.model import load

    if model.method.capabilities.causal or model.conditional:
        return None
    for name in shipped.names():
        other = shipped.twin(name)
        if other and model.digest == read_bundle(name).digest:
            twin = load(other, model.device.type, model.precision)
            with twin.method.arithmetic():
                nats = likelihood(twin.method, rows, draws=1, seed=0, batch=batch).nats
            return Baseline("twin", other, nats)
    return None


def source_name(model: "Model", data: str | None) -> str:
    """The name of the measured text: the source, or the run's validation text."""
    own = model.config.data
    return data or own.valid or f"{own.trained_on}, {own.holdout:.0%} held out"


def say_unused(options: Any, bound: "Bound", progress: Progress) -> None:
    """Prints a remark if --draws or --seed was given for a figure without noise."""
    random_order = getattr(options, "order", None) == "random"  # drawn from the seed
    given = [name for name in ("draws", "seed") if name in changed_options(options)]
    unused = [f"--{name}" for name in given if not (random_order and name == "seed")]
    if bound.certificate in ("exact", "decoding", "pseudo") and unused:
        verb = "have" if len(unused) > 1 else "has"
        progress.say(f"{' and '.join(unused)} {verb} no effect: this figure has no noise")
