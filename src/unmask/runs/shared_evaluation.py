"""Validation and sampling spread over processes, with the results of a single process."""

import json
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

from unmask.likelihood.bound import Bound
from unmask.likelihood.estimate import BLOCK
from unmask.likelihood.sums import Sums
from unmask.model import Model
from unmask.training.distributed.process_group import ProcessGroup

Shard = tuple[int, int]


def measured_together(group: ProcessGroup, rows: int, measure: Callable[[Shard], Bound]) -> Bound:
    """The bound of all rows, the same in every process; each process measures a shard of them."""
    shards = min(group.world, -(-rows // BLOCK))
    mine = measure((group.rank, shards)) if group.rank < shards else None
    if group.world == 1 and mine is not None:
        return mine
    sums = None if mine is None else mine.sums
    texts = group.gather("" if sums is None else json.dumps(sums.to_dict()))
    return Bound.from_sums(
        reduce(add, (Sums.from_dict(json.loads(text)) for text in texts if text))
    )


def written_together(
    group: ProcessGroup, model: Model, sources: Sequence[str] | None, seeds: Sequence[int]
) -> list[str]:
    """A text for each seed (and source), the same list in every process; each generates some."""
    mine = range(group.rank, len(seeds), group.world)
    own = [seeds[i] for i in mine]
    if sources is None:
        texts = [str(text) for text in model.generate(n=len(own), seed=own)] if own else []
    else:
        chosen = [sources[i] for i in mine]
        answers = model.generate(chosen, seed=own) if own else []
        texts = [f"{source} → {text}" for source, text in zip(chosen, answers, strict=True)]
    gathered = [json.loads(part) for part in group.gather(json.dumps(texts))]
    return [gathered[i % group.world][i // group.world] for i in range(len(seeds))]
