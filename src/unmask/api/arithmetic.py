"""What training asks of a machine, counted from the shape of the work: operations, bytes and seconds.

Five constants are not counted but measured: `benchmarks/plan.py` fits them to rows of an H200 and holds the
rest of the rows against them.
"""

from dataclasses import dataclass

GIB = float(1 << 30)
CHUNK = float(1 << 29)  # bytes of logits held at a time

# fitted: see above
ATTENTION = 0.5868  # share of the matrix rate that attention's products reach; other products: all
TRAFFIC = 198.3  # bytes moved between products, a token, layer and unit of width, both ways
FIXED = 235.3  # bytes moved a parameter and pass: folding, casting, clipping, AdamW, averages
# bytes kept for the way back, a token and unit of width: by a layer, and once
KEPT, KEPT_ONCE = 30.15, 11.95

RECOMPUTED = 4.0  # bytes kept of a layer that is run again: its input, in float32
USABLE = 0.92  # assumed, of a GPU's memory; the rest is fragments, NCCL's buffers and CUDA itself


@dataclass(frozen=True)
class Machine:
    """One GPU of several and the network between them; rates by default as measured on an H200."""

    memory: float = 80.0  # GiB
    rate: float = 673.0  # TFLOP/s that large bf16 products sustain
    bandwidth: float = 4.25  # TB/s
    network: float = 200.0  # GB/s, the "bus bandwidth" that NCCL's own tests report


@dataclass(frozen=True)
class Work:
    """A network and its rows; `body` are the parameters of its blocks."""

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
        """Embedding, head and the few beside them."""
        return self.parameters - self.body

    @property
    def wanted(self) -> float:
        """The share of tokens whose logits the loss reads."""
        return 1.0 if self.causal else 0.5

    def operations(self) -> dict[str, float]:
        """Of a training step, a token: three times the forward pass (as benchmarks/operations.py)."""
        width, depth, seen = self.width, self.depth, self.length * (0.5 if self.causal else 1.0)
        spared = 18 * width**2 * (1 - self.wanted)  # of the last block, behind its attention
        return {
            "linear": 3 * (24 * depth * width**2 - spared),
            "attention": 3 * 4 * depth * seen * width,
            "head": 3 * 2 * width * self.vocabulary * self.wanted,
        }


def pass_seconds(work: Work, rows: int, machine: Machine, recompute: bool = False) -> float:
    """One forward and backward pass over `rows` on one GPU, with its share of everything else."""
    tokens, operations = rows * work.length, work.operations()
    blocks = operations["linear"] + operations["attention"] / ATTENTION
    traffic = TRAFFIC * work.width * work.depth
    again = 4 / 3 if recompute else 1.0
    products = (again * blocks + operations["head"]) / (machine.rate * 1e12)
    moved = again * traffic / (machine.bandwidth * 1e12)
    return tokens * (products + moved) + FIXED * work.parameters / (machine.bandwidth * 1e12)


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU at the moment that takes most."""

    weights: float
    gradients: float
    optimizer: float
    averages: float
    gathered: float  # of what is sharded, the part that is whole for now
    activations: float
    logits: float

    @property
    def total(self) -> float:
        return sum(vars(self).values())


def memory(
    work: Work, rows: int, strategy: str = "plain", gpus: int = 1, passes: int = 1,
    recompute: bool = False,
) -> Memory:  # fmt: skip
    """What a pass over `rows` holds, `passes` of which make a step."""
    parts = gpus if strategy == "fsdp" else 1
    whole, head = 4.0 * work.parameters, float(work.vocabulary * work.width)
    gathered = 0.0
    if (
        strategy == "fsdp"
    ):  # two blocks in bf16 with their gradients on the way; the rest, if elsewhere
        gathered = 16.0 * work.body / work.depth + (4.0 * work.rest if gpus > 1 else 0.0)
    tokens = rows * work.length
    layer = tokens * work.width * KEPT
    layers = tokens * work.width * RECOMPUTED * work.depth if recompute else layer * work.depth
    again = layer if recompute else 0.0  # a block run again, when the logits are gone
    chunk = min(CHUNK, 2.0 * work.wanted * tokens * work.vocabulary)
    first, last = 4 * head, whole / parts  # gradients when the way back begins, and when it ends
    if passes > 1 or strategy == "ddp":  # they wait for the next pass, or have their buckets
        first = last = whole + (last if strategy == "fsdp" else 0.0)
    # the moment that takes most: a block's gradients come as its activations go
    gradients, kept = max((first, layers + again), (last, layer), key=sum)
    return Memory(
        weights=whole / parts,
        gradients=gradients,
        optimizer=2 * whole / parts,
        averages=whole / parts if work.averaged else 0.0,
        gathered=gathered,
        activations=kept + tokens * work.width * KEPT_ONCE,
        logits=max(0.0, chunk - again) + 2 * head,  # and the head's weights in bf16
    )


def step_bytes(work: Work, strategy: str, gpus: int, passes: int) -> float:
    """What each GPU sends in a step."""
    share = (gpus - 1) / gpus
    if strategy == "fsdp":  # blocks in bf16 for each way of each pass, gradients once
        gathers = 2 * 2 * work.body + 4 * work.rest
        return share * (passes * gathers + 4.0 * work.parameters)
    return 2 * share * 4.0 * work.parameters  # there and back
