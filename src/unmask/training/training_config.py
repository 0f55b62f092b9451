"""Settings of the training loop with their defaults and ranges."""

import math
from dataclasses import dataclass

from unmask.errors import UnmaskError
from unmask.options import check_options, option

OPTIMIZER_NAMES = ("adamw", "muon")
DECAYS = ("constant", "cosine", "linear", "wsd")
PRECISIONS = ("auto", "fp32", "bf16")
DEVICES = ("auto", "cpu", "cuda", "mps")
STRATEGIES = ("plain", "ddp", "fsdp")
LARGEST_BATCH = 2**20  # rows


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop; the optimizer's defaults are the paper's."""

    steps: int = option(1000, ge=1)
    # of training steps, after which the run ends and a decay is complete; 0 = only steps count
    seconds: float = option(0.0, ge=0, lt=math.inf)
    # rows per optimizer step, over all micro-batches
    batch: int = option(32, ge=1, le=LARGEST_BATCH)
    micro_batch: int = option(0, ge=0)  # rows per backward pass; 0 = the whole batch

    # adamw | muon (for the matrices of blocks, AdamW for the rest)
    optimizer: str = option("adamw", among=OPTIMIZER_NAMES)
    lr: float = option(3e-4, gt=0, lt=math.inf)  # of AdamW
    betas: tuple[float, float] = option((0.9, 0.999), ge=0, lt=1)
    eps: float = option(1e-8, gt=0, lt=math.inf)
    weight_decay: float = option(0.0, ge=0, lt=math.inf)
    # of Muon; warm-up and decay scale it as they scale lr
    muon_lr: float = option(0.02, gt=0, lt=math.inf)
    muon_momentum: float = option(0.95, ge=0, lt=1)
    warmup: int = option(100, ge=0)  # steps
    # constant | cosine | linear | wsd (stable, then linear)
    decay: str = option("constant", among=DECAYS)
    decay_share: float = option(0.2, gt=0, le=1)  # share of the steps in which wsd decays
    min_lr: float = option(0.0, ge=0)  # learning rate at the end of cosine, linear and wsd
    clip: float = option(1.0, ge=0, lt=math.inf)  # global gradient norm; 0 = off
    ema: float = option(0.9999, ge=0, lt=1)  # 0 = off

    # fp32 | bf16 (autocast) | auto, the fastest that is native
    precision: str = option("fp32", among=PRECISIONS)
    # none | int4: loss and gradient of the weights that --precision int4 stores
    round_weights: str = option("none", among=("none", "int4"))
    compile: bool = False
    cuda_graph: bool = True  # a GPU runs a step as one CUDA graph, if the method allows it
    checkpoint_activations: bool = False  # recompute blocks in the backward pass: less memory
    deterministic: bool = False  # the same bits in each run, also on a GPU and with compile; slower
    device: str = option("auto", among=DEVICES)  # auto | cpu | cuda | mps

    validate_every: int = option(200, ge=0)  # steps; 0 = only after the last step
    validation_rows: int = option(256, ge=0)  # chosen by the seed; 0 = all
    validation_draws: int = option(1, ge=1)  # noise draws per row
    patience: int = option(0, ge=0)  # validations without improvement before stopping; 0 = off
    sample_every: int = option(0, ge=0)  # steps; 0 = off
    save_every: int = option(200, ge=1)  # steps
    # number of newest checkpoints to keep; 0 = one during the run, and none that could be resumed after it
    keep: int = option(2, ge=0)
    keep_best: int = option(0, ge=0)  # number of checkpoints with the best bounds to keep
    keep_every: int = option(0, ge=0)  # steps between checkpoints that are never deleted; 0 = off
    # non-finite steps in a row before a rollback; 0 = no rollback
    max_skips: int = option(10, ge=0)
    max_rollbacks: int = option(3, ge=0)  # largest number of rollbacks of a run
    # standard deviations above the mean loss that count as a spike; 0 = off
    spike: float = option(6.0, ge=0, lt=math.inf)
    log_every: int = option(10, ge=1)  # steps
    log_to: tuple[str, ...] = ()  # loggers by name: tensorboard, wandb

    def __post_init__(self) -> None:
        check_options(self, "training.")
        if self.micro_batch > self.batch:
            raise UnmaskError(
                f"training.micro_batch must be {self.batch} at most, not {self.micro_batch}"
            )
        if self.min_lr > self.lr:
            raise UnmaskError(f"training.min_lr must be {self.lr} at most, not {self.min_lr}")
        if self.patience and not self.validate_every:
            raise UnmaskError("training.patience counts validations: set training.validate_every")

    @property
    def note(self) -> str:
        """A line about a weight decay that forgets within a twentieth of the run; else empty."""
        rate = self.muon_lr if self.optimizer == "muon" else self.lr
        forgotten = self.steps * rate * self.weight_decay  # the run in units of the memory
        if forgotten <= 20:
            return ""
        return (
            f"training.weight_decay {self.weight_decay:g} forgets a gradient after "
            f"{self.steps / forgotten:,.0f} steps, 1/{forgotten:.0f} of the run: "
            f"{5 / (rate * self.steps):.1g} keeps it for a fifth"
        )


@dataclass(frozen=True)
class LoraConfig:
    """Adapters that a run trains in place of the weights of `init_from`."""

    rank: int = option(0, ge=0, le=2**14)  # 0 = no adapters: all weights are trained
    # the adapters' outputs are multiplied by alpha / rank
    alpha: float = option(16.0, gt=0, lt=math.inf)

    def __post_init__(self) -> None:
        check_options(self, "lora.")


@dataclass(frozen=True)
class DistributedConfig:
    """Distribution of a run over the processes that torchrun starts."""

    # plain | ddp (weights replicated) | fsdp (weights sharded)
    strategy: str = option("plain", among=STRATEGIES)
    # seconds without a reply from a process after which the run ends
    timeout: float = option(600.0, ge=1, lt=math.inf)

    def __post_init__(self) -> None:
        check_options(self, "distributed.")
