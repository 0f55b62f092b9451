"""How a recipe would train on so many GPUs: what fits, how long it takes, and what to set."""

from dataclasses import dataclass

from unmask.api.arithmetic import (
    GIB,
    USABLE,
    Machine,
    Memory,
    Work,
    memory,
    pass_seconds,
    step_bytes,
)
from unmask.api.build import outline
from unmask.config.run import RunConfig
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

_KNOWN = {"gpt2": 50_258, "bert-base-uncased": 30_522}  # with MASK
_FIXED = {"bytes": 260, "text8": 28}


@dataclass(frozen=True)
class Option:
    """One way to spread the work: the largest micro-batch that fits, or the smallest that does not."""

    strategy: str
    recompute: bool
    micro_batch: int
    passes: int
    memory: Memory
    fits: bool
    compute: float  # seconds a step
    communication: float

    @property
    def least(self) -> float:
        """Seconds a step if all communication hides behind the computation."""
        return max(self.compute, self.communication)

    @property
    def most(self) -> float:
        """Seconds a step if none of it does."""
        return self.compute + self.communication


@dataclass(frozen=True)
class Plan:
    """All the ways, the best first among those that fit."""

    work: Work
    machine: Machine
    gpus: int
    batch: int
    steps: int
    options: list[Option]

    @property
    def best(self) -> Option | None:
        """The fastest that fits, if all communication shows; None if nothing fits."""
        fitting = [option for option in self.options if option.fits]
        return min(fitting, key=lambda option: option.most, default=None)

    @property
    def tokens(self) -> int:
        """Of the whole run."""
        return self.steps * self.batch * self.work.length


def plan(
    config: RunConfig, gpus: int, machine: Machine | None = None, vocabulary: int | None = None
) -> Plan:
    """What a configuration needs on `gpus` GPUs, in bf16 and compiled."""
    machine = machine or Machine()
    training = config.training
    if gpus < 1:
        raise UnmaskError(f"--gpus must be 1 or more, not {gpus}")
    if training.batch % gpus:
        raise UnmaskError(
            f"training.batch {training.batch} does not split over {gpus} GPUs: choose a multiple"
        )
    work = work_of(config, vocabulary or _vocabulary(config))
    ways = ["ddp", "fsdp"] if gpus > 1 else ["plain"]
    options = [
        _option(work, machine, gpus, training.batch // gpus, strategy, recompute)
        for recompute in (False, True)
        for strategy in ways
    ]
    return Plan(work, machine, gpus, training.batch, training.steps, options)


def work_of(config: RunConfig, vocabulary: int) -> Work:
    """The shape of a configuration; its parameters are counted on a network without memory."""
    shape = config.backbone.config
    if not all(hasattr(shape, name) for name in ("width", "depth")):
        raise UnmaskError(f"backbone {config.backbone.name} has no width and depth to plan with")
    method = outline(config, Vocabulary(vocabulary, vocabulary - 1))
    blocks = getattr(method.backbone, "blocks", ())
    return Work(
        width=shape.width,
        depth=shape.depth,
        length=config.data.length,
        vocabulary=vocabulary,
        parameters=sum(p.numel() for p in method.parameters()),
        body=sum(p.numel() for block in blocks for p in block.parameters()),
        averaged=config.training.ema > 0,
        causal=method.order == "left_to_right",
    )


def _vocabulary(config: RunConfig) -> int:
    tokenizer = config.data.tokenizer
    if tokenizer.kind == "bpe":
        return tokenizer.size
    known = _KNOWN.get(tokenizer.path) if tokenizer.kind == "hf" else _FIXED.get(tokenizer.kind)
    if known is None:
        raise UnmaskError("the vocabulary of this tokenizer is not known here: give --vocabulary")
    return known


def _option(
    work: Work, machine: Machine, gpus: int, rows: int, strategy: str, recompute: bool
) -> Option:
    """The largest divisor of a GPU's rows that fits."""
    limit = USABLE * machine.memory * GIB
    for micro in sorted((n for n in range(1, rows + 1) if rows % n == 0), reverse=True):
        passes = rows // micro
        held = memory(work, micro, strategy, gpus, passes, recompute)
        if held.total <= limit:
            break
    compute = passes * pass_seconds(work, micro, machine, recompute)
    sent = step_bytes(work, strategy, gpus, passes) / (machine.network * 1e9)
    fits = held.total <= limit
    return Option(strategy, recompute, micro, passes, held, fits, compute, sent)
