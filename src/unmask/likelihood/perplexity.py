"""The likelihood of texts, of a data source, or of a model's own validation text."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

from unmask.bundle import Bundle
from unmask.data.data_config import WINDOWS
from unmask.data.load import load_data, rows_from
from unmask.data.rows.token_rows import Rows
from unmask.errors import UnmaskError, UnmaskWarning
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import How, choose_estimator, likelihood
from unmask.methods.method import METHODS, methods_that

Texts = (
    Sequence[str | tuple[str, str]] | str | None
)  # texts, pairs, a data source, or the model's own
Source = Sequence[str] | str | None


def perplexity(
    bundle: Bundle,
    data: Texts,
    packing: str | None,
    how: How,
    *,
    draws: int,
    seed: int,
    shard: tuple[int, int],
    batch: int,
    progress: Callable[[float], None] | None = None,
) -> Bound:
    """The bound of a model on texts; `Model.perplexity` documents the arguments."""
    method = bundle.method
    if not method.capabilities.score:
        able = methods_that(lambda can: can.score and can.generate)
        raise UnmaskError(
            f"the method {METHODS.name_of(method)} has no likelihood: give a model of method {able}"
        )
    choose_estimator(method, batch, **how)  # raises an error before any text is read
    rows = rows_of(bundle, data, packing)
    rows.count_unknown(bundle.tokenizer.unknown_id)
    with method.arithmetic():
        return likelihood(
            method,
            rows,
            draws=draws,
            seed=seed,
            batch=batch,
            shard=shard,
            progress=progress,
            **how,
        )


def rows_of(bundle: Bundle, data: Texts = None, packing: str | None = None) -> Rows:
    """The rows of texts or of a data source.

    By default a source is packed as in training, and each text has rows of its own.
    """
    if packing is None:
        as_trained = data is None or isinstance(data, str) or bundle.conditional
        trained = bundle.config.data.packing
        packing = trained if as_trained or trained == WINDOWS else "split"
    config = replace(bundle.config.data, packing=packing)
    if data is None:
        try:
            rows = load_data(config, bundle.tokenizer).valid
        except UnmaskError as error:
            raise UnmaskError(
                f"{error}; the model's own validation text cannot be read: give a text with --data FILE"
            ) from None
        wanted = config.held_out_digest if packing == bundle.config.data.packing else ""
        if wanted and rows.digest != wanted:
            text = config.valid or config.trained_on
            warnings.warn(
                f"{text} has changed since the training: the model may have trained on rows that this "
                "measures; give another text with --data FILE",
                UnmaskWarning,
                stacklevel=2,
            )
        return rows
    return rows_from(data, bundle.tokenizer, config)
