"""Estimates of the operations, memory and seconds of a training step.

They follow from the shapes of network and batch, and from five fitted constants.
`benchmarks/speed/plan.py` fits the constants to some measurements on an H200 and
checks them on the rest.
"""

from dataclasses import dataclass

from unmask.config.components import outline
from unmask.config.run_config import RunConfig
from unmask.data.tokenizers.tokenizer import TOKENIZERS
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

GIB = float(1 << 30)
CHUNK = float(1 << 29)  # bytes of logits held at a time

# The five fitted constants.
# share of the GPU's matrix rate that attention reaches; other products reach all of it
ATTENTION = 0.5868
# bytes moved between matrix products in both passes, per token, layer and unit of width
TRAFFIC = 198.3
FIXED = 235.3  # bytes moved per parameter and pass: folding, casting, clipping, AdamW, EMA
# bytes kept for the backward pass, per token and unit of width: in each layer, and once
KEPT, KEPT_ONCE = 30.15, 11.95

RECOMPUTED = 4.0  # bytes kept of a recomputed layer: its input, in float32
USABLE = 0.92  # assumed share of a GPU's memory; fragments, NCCL's buffers and CUDA take the rest


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU at its peak."""

    weights: float
    gradients: float
    optimizer: float
    averages: float  # the EMA weights
    gathered: float  # parameters that FSDP has gathered from all GPUs
    activations: float
    logits: float

    @property
    def total(self) -> float:
        return sum(vars(self).values())


@dataclass(frozen=True)
class Work:
    """The shape of a network and its rows; `body` is the number of parameters of its blocks."""

    width: int
    depth: int
    length: int
    vocabulary: int
    parameters: int
    body: int
    averaged: bool = True
    causal: bool = False

    @property
    def rest(self) -> int:
        """The number of parameters outside the blocks: embedding, head and a few more."""
        return self.parameters - self.body

    @property
    def logit_share(self) -> float:
        """The share of tokens whose logits the loss reads: all, or the masked half on average."""
        return 1.0 if self.causal else 0.5

    def operations(self) -> dict[str, float]:
        """Floating-point operations per token of a training step,
        counted as three forward passes.
        """
        width, depth, attended = self.width, self.depth, self.length * (0.5 if self.causal else 1.0)
        # the last block computes only tokens with logits after its attention
        spared = 18 * width**2 * (1 - self.logit_share)
        return {
            "linear": 3 * (24 * depth * width**2 - spared),
            "attention": 3 * 4 * depth * attended * width,
            "head": 3 * 2 * width * self.vocabulary * self.logit_share,
        }


def memory(
    work: Work, rows: int, strategy: str = "plain", gpus: int = 1, passes: int = 1,
    recompute: bool = False,
) -> Memory:  # fmt: skip
    """The peak memory of a pass over `rows` rows; `passes` passes make a step."""
    parts = gpus if strategy == "fsdp" else 1
    whole, head = 4.0 * work.parameters, float(work.vocabulary * work.width)
    gathered = 0.0
    if strategy == "fsdp":  # two blocks in bf16 and their gradients; the rest on several GPUs
        gathered = 16.0 * work.body / work.depth + (4.0 * work.rest if gpus > 1 else 0.0)
    tokens = rows * work.length
    layer = tokens * work.width * KEPT
    layers = tokens * work.width * RECOMPUTED * work.depth if recompute else layer * work.depth
    recomputed = layer if recompute else 0.0  # one block; the logits are freed by then
    chunk = min(CHUNK, 2.0 * work.logit_share * tokens * work.vocabulary)
    first, last = 4 * head, whole / parts  # gradients at the start and end of the backward pass
    if passes > 1 or strategy == "ddp":  # gradients are accumulated, or are in DDP's buckets
        first = last = whole + (last if strategy == "fsdp" else 0.0)
    # The backward pass adds gradients and frees activations: the peak is at its start or its end.
    gradients, kept = max((first, layers + recomputed), (last, layer), key=sum)
    return Memory(
        weights=whole / parts,
        gradients=gradients,
        optimizer=2 * whole / parts,
        averages=whole / parts if work.averaged else 0.0,
        gathered=gathered,
        activations=kept + tokens * work.width * KEPT_ONCE,
        logits=max(0.0, chunk - recomputed) + 2 * head,  # with the head's weights in bf16
    )


@dataclass(frozen=True)
class Machine:
    """One GPU and the network between GPUs; the default rates are those of an H200."""

    memory: float = 80.0  # GiB
    rate: float = 673.0  # TFLOP/s of large bf16 products
    bandwidth: float = 4.25  # TB/s of GPU memory
    network: float = 200.0  # GB/s, the "bus bandwidth" of NCCL's tests


def pass_seconds(work: Work, rows: int, machine: Machine, recompute: bool = False) -> float:
    """Seconds of a forward and backward pass over `rows` rows on one GPU, optimizer included."""
    tokens, operations = rows * work.length, work.operations()
    blocks = operations["linear"] + operations["attention"] / ATTENTION
    traffic = TRAFFIC * work.width * work.depth
    factor = 4 / 3 if recompute else 1.0  # four forward passes instead of three
    products = (factor * blocks + operations["head"]) / (machine.rate * 1e12)
    moved = factor * traffic / (machine.bandwidth * 1e12)
    return tokens * (products + moved) + FIXED * work.parameters / (machine.bandwidth * 1e12)


def step_bytes(work: Work, strategy: str, gpus: int, passes: int) -> float:
    """Bytes that each GPU sends in a step."""
    share = (gpus - 1) / gpus
    if strategy == "fsdp":  # blocks in bf16, forward and backward, each pass; gradients once
        gathers = 2 * 2 * work.body + 4 * work.rest
        return share * (passes * gathers + 4.0 * work.parameters)
    return 2 * share * 4.0 * work.parameters  # all-reduce: reduce-scatter and all-gather


@dataclass(frozen=True)
class Option:
    """A strategy with its largest micro-batch that fits, or with 1 row if none fits."""

    strategy: str
    recompute: bool
    micro_batch: int
    passes: int
    memory: Memory
    fits: bool
    compute: float  # seconds per step
    communication: float  # seconds per step

    @property
    def least(self) -> float:
        """Seconds per step if all communication overlaps with computation."""
        return max(self.compute, self.communication)

    @property
    def most(self) -> float:
        """Seconds per step if no communication overlaps with computation."""
        return self.compute + self.communication


@dataclass(frozen=True)
class Plan:
    """The strategies for a configuration, with their memory and time."""

    work: Work
    machine: Machine
    gpus: int
    batch: int
    steps: int
    options: list[Option]

    @property
    def best(self) -> Option | None:
        """The option that fits with the fewest seconds without overlap; None if nothing fits."""
        fitting = [option for option in self.options if option.fits]
        return min(fitting, key=lambda option: option.most, default=None)

    @property
    def tokens(self) -> int:
        """The tokens of the whole run."""
        return self.steps * self.batch * self.work.length


def plan(
    config: RunConfig, gpus: int, machine: Machine | None = None, vocabulary: int | None = None
) -> Plan:
    """Memory and time of a configuration on `gpus` GPUs, in bf16 and compiled."""
    machine = machine or Machine()
    training = config.training
    if vocabulary is not None and vocabulary < 2:
        raise UnmaskError(f"--vocabulary must be 2 or more, not {vocabulary}")
    if gpus < 1:
        raise UnmaskError(f"--gpus must be 1 or more, not {gpus}")
    if training.batch % gpus:
        raise UnmaskError(
            f"training.batch {training.batch} does not split over {gpus} GPUs: choose a multiple"
        )
    work = work_of(config, _vocabulary(config) if vocabulary is None else vocabulary)
    strategies = ["ddp", "fsdp"] if gpus > 1 else ["plain"]
    options = [
        _option(work, machine, gpus, training.batch // gpus, strategy, recompute)
        for recompute in (False, True)
        for strategy in strategies
    ]
    return Plan(work, machine, gpus, training.batch, training.steps, options)


def work_of(config: RunConfig, vocabulary: int) -> Work:
    """The shape of a configuration; parameters are counted on the meta device."""
    shape = config.backbone.config
    if not all(hasattr(shape, name) for name in ("width", "depth", "heads")):
        raise UnmaskError(
            f"a plan covers transformers only, and backbone {config.backbone.name} is none: "
            "set backbone dit or causal"
        )
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
        causal=method.capabilities.causal,
    )


def _vocabulary(config: RunConfig) -> int:
    tokenizer = config.data.tokenizer
    known = TOKENIZERS[tokenizer.kind].planned_size(tokenizer)
    if known is None:
        raise UnmaskError(
            "the vocabulary of this tokenizer is unknown before training: give --vocabulary"
        )
    return known


def _option(
    work: Work, machine: Machine, gpus: int, rows: int, strategy: str, recompute: bool
) -> Option:
    """A strategy with the largest micro-batch that fits; micro-batches divide a GPU's rows."""
    limit = USABLE * machine.memory * GIB
    for micro in sorted((n for n in range(1, rows + 1) if rows % n == 0), reverse=True):
        passes = rows // micro
        peak = memory(work, micro, strategy, gpus, passes, recompute)
        if peak.total <= limit:
            break
    compute = passes * pass_seconds(work, micro, machine, recompute)
    sent = step_bytes(work, strategy, gpus, passes) / (machine.network * 1e9)
    fits = peak.total <= limit
    return Option(strategy, recompute, micro, passes, peak, fits, compute, sent)
