"""How well a model predicts texts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from unmask.data.load import load_data, rows_from
from unmask.data.rows.token_rows import Rows
from unmask.errors import UnmaskError
from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import How, choose_estimator, likelihood

if TYPE_CHECKING:
    from unmask.api.model import Model

Texts = (
    Sequence[str | tuple[str, str]] | str | None
)  # texts, pairs, a data source, or the model's own
Source = Sequence[str] | str | None


def predicted(
    model: "Model",
    data: Texts,
    packing: str | None,
    how: How,
    *,
    draws: int,
    seed: int,
    shard: tuple[int, int],
    batch: int,
) -> Bound:
    """The bound of a model on texts, as `Model.perplexity` says."""
    method = model.method
    choose_estimator(method, batch, **how)  # mistakes are told before any text is read
    rows = rows_of(model, data, packing)
    rows.count_unknown(model.tokenizer.unknown_id)
    with method.arithmetic():
        return likelihood(method, rows, draws=draws, seed=seed, batch=batch, shard=shard, **how)


def rows_of(model: "Model", data: Texts = None, packing: str | None = None) -> Rows:
    """Texts (each by itself) or a source (packed as the training text was) as the model's rows."""
    if packing is None:
        as_trained = data is None or isinstance(data, str) or model.conditional
        packing = model.config.data.packing if as_trained else "split"
    config = replace(model.config.data, packing=packing)
    if data is None:
        try:
            return load_data(config, model.tokenizer).valid
        except UnmaskError as error:
            raise UnmaskError(
                f"{error}; the model's own text cannot be read: name one by --data FILE"
            ) from None
    return rows_from(data, model.tokenizer, config)
