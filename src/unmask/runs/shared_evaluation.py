"""Validation and sampling by several processes, with the same results as by one process."""

import json
from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

from unmask.likelihood.bound import Bound
from unmask.likelihood.draws import BLOCK
from unmask.likelihood.sums import Sums
from unmask.model import Model
from unmask.training.distributed.process_group import ProcessGroup

Shard = tuple[int, int]  # index of the shard, number of shards


def sharded_bound(group: ProcessGroup, rows: int, measure: Callable[[Shard], Bound]) -> Bound:
    """The bound of all rows. Each process measures a shard,
    and all processes get the same bound.
    """
    shards = min(group.world, -(-rows // BLOCK))
    mine = measure((group.rank, shards)) if group.rank < shards else None
    if group.world == 1 and mine is not None:
        return mine
    sums = None if mine is None else mine.sums
    texts = group.gather("" if sums is None else json.dumps(sums.to_dict()))
    return Bound.from_sums(
        reduce(add, (Sums.from_dict(json.loads(text)) for text in texts if text))
    )


def sharded_samples(
    group: ProcessGroup, model: Model, sources: Sequence[str] | None, seeds: Sequence[int]
) -> list[str]:
    """A text for each seed (and source). Each process generates some, and all get the same list."""
    mine = range(group.rank, len(seeds), group.world)
    own = [seeds[i] for i in mine]
    if sources is None:
        texts = [str(text) for text in model.generate(n=len(own), seed=own)] if own else []
    else:
        chosen = [sources[i] for i in mine]
        targets = model.generate(chosen, seed=own) if own else []
        texts = [f"{source} → {target}" for source, target in zip(chosen, targets, strict=True)]
    by_rank = [json.loads(part) for part in group.gather(json.dumps(texts))]
    return [by_rank[i % group.world][i // group.world] for i in range(len(seeds))]
