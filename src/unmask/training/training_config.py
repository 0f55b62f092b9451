"""Settings of the training loop with their defaults and ranges."""

from dataclasses import dataclass

from unmask.errors import UnmaskError

OPTIMIZERS = ("adamw", "muon")
DECAYS = ("constant", "cosine", "linear", "wsd")
PRECISIONS = ("auto", "fp32", "bf16")
DEVICES = ("auto", "cpu", "cuda", "mps")
STRATEGIES = ("plain", "ddp", "fsdp")
LARGEST_BATCH = 2**20  # rows


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop; the optimizer's defaults are the paper's."""

    steps: int = 1000
    batch: int = 32  # rows per optimizer step, over all micro-batches
    micro_batch: int = 0  # rows per backward pass; 0 = the whole batch

    optimizer: str = "adamw"  # adamw | muon (for the matrices of blocks, AdamW for the rest)
    lr: float = 3e-4  # of AdamW
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    muon_lr: float = 0.02  # of Muon; warm-up and decay scale it as they scale lr
    muon_momentum: float = 0.95
    warmup: int = 100  # steps
    decay: str = "constant"  # constant | cosine | linear | wsd (stable, then linear)
    decay_share: float = 0.2  # share of the steps in which wsd decays
    min_lr: float = 0.0  # learning rate at the end of cosine, linear and wsd
    clip: float = 1.0  # global gradient norm; 0 = off
    ema: float = 0.9999  # 0 = off

    precision: str = "fp32"  # fp32 | bf16 (autocast) | auto, the fastest that is native
    compile: bool = False
    cuda_graph: bool = True  # a GPU runs a step as one CUDA graph, if the method allows it
    checkpoint_activations: bool = False  # recompute blocks in the backward pass: less memory
    deterministic: bool = False  # the same bits in each run, also on a GPU and with compile; slower
    device: str = "auto"  # auto | cpu | cuda | mps

    validate_every: int = 200  # steps; 0 = only after the last step
    validation_rows: int = 256  # chosen by the seed; 0 = all
    validation_draws: int = 1  # noise draws per row
    patience: int = 0  # validations without improvement before stopping; 0 = off
    sample_every: int = 0  # steps; 0 = off
    save_every: int = 200  # steps
    keep: int = 2  # number of newest checkpoints to keep
    keep_best: int = 0  # number of checkpoints with the best bounds to keep
    keep_every: int = 0  # steps between checkpoints that are never deleted; 0 = off
    max_skips: int = 10  # non-finite steps in a row before a rollback; 0 = no rollback
    max_rollbacks: int = 3  # largest number of rollbacks of a run
    spike: float = 6.0  # standard deviations above the mean loss that count as a spike; 0 = off
    log_every: int = 10  # steps
    log_to: tuple[str, ...] = ()  # loggers by name: tensorboard, wandb

    def __post_init__(self) -> None:
        for field in ("steps", "batch", "validation_draws", "save_every", "keep", "log_every"):
            self._check(field, getattr(self, field) >= 1, "at least 1")
        for field in (
            *("warmup", "validate_every", "validation_rows", "patience", "sample_every"),
            *("keep_best", "keep_every", "max_skips", "max_rollbacks"),
        ):
            self._check(field, getattr(self, field) >= 0, "at least 0")
        for field in ("weight_decay", "clip", "spike"):
            self._check(field, 0 <= getattr(self, field) < float("inf"), "finite and at least 0")
        for field in ("lr", "eps", "muon_lr"):
            self._check(field, 0 < getattr(self, field) < float("inf"), "finite and above 0")
        self._check("batch", self.batch <= LARGEST_BATCH, f"at most {LARGEST_BATCH:,}")
        self._check("micro_batch", 0 <= self.micro_batch <= self.batch, f"0 to {self.batch}")
        self._check("min_lr", 0 <= self.min_lr <= self.lr, f"0 to lr = {self.lr}")
        for field in ("ema", "muon_momentum"):
            self._check(field, 0 <= getattr(self, field) < 1, "in [0, 1)")
        self._check("decay_share", 0 < self.decay_share <= 1, "in (0, 1]")
        self._check("betas", all(0 <= beta < 1 for beta in self.betas), "two numbers in [0, 1)")
        self._check("optimizer", self.optimizer in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}")
        self._check("decay", self.decay in DECAYS, f"one of {', '.join(DECAYS)}")
        self._check("precision", self.precision in PRECISIONS, f"one of {', '.join(PRECISIONS)}")
        self._check("device", self.device in DEVICES, f"one of {', '.join(DEVICES)}")
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

    def _check(self, field: str, holds: bool, allowed: str) -> None:
        if not holds:
            value = getattr(self, field)
            raise UnmaskError(f"training.{field} must be {allowed}, but is {value!r}")


@dataclass(frozen=True)
class LoraConfig:
    """Adapters that a run trains in place of the weights of `init_from`."""

    rank: int = 0  # 0 = no adapters: all weights are trained
    alpha: float = 16.0  # the adapters' outputs are multiplied by alpha / rank

    def __post_init__(self) -> None:
        if not 0 <= self.rank <= 2**14:
            raise UnmaskError(f"lora.rank must lie between 0 and {2**14:,}, but is {self.rank!r}")
        if not 0 < self.alpha < float("inf"):
            raise UnmaskError(f"lora.alpha must be finite and above 0, but is {self.alpha!r}")


@dataclass(frozen=True)
class DistributedConfig:
    """Distribution of a run over the processes that torchrun starts."""

    strategy: str = "plain"  # plain | ddp (weights replicated) | fsdp (weights sharded)
    timeout: float = 600.0  # seconds without a reply from a process after which the run ends

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise UnmaskError(
                f"distributed.strategy must be one of {', '.join(STRATEGIES)}, "
                f"but is {self.strategy!r}"
            )
        if not 1 <= self.timeout < float("inf"):
            raise UnmaskError(f"distributed.timeout must be 1 or more, but is {self.timeout!r}")
