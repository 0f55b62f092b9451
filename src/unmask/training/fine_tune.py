"""Fine-tuning of a sequence classifier: epochs over labelled sentences, with early stopping."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.data.rows.sentence_rows import ALIGNED, SentenceRows
from unmask.errors import UnmaskError
from unmask.methods.sequence_classifier import SequenceClassifier
from unmask.options import check_options, option
from unmask.runtime.cuda_graphs import CudaGraph
from unmask.runtime.device import autocast, emulation, to_device
from unmask.shapes import Tokens, Valid
from unmask.training.optimizer import NamedAdamW, clip_gradients, learning_rate
from unmask.training.training_config import TrainingConfig

_GRAPH_ALIGNED = 32  # a graph is captured for each length, so they are multiples of this


@dataclass(frozen=True)
class FineTuning:
    """Settings of fine-tuning; the defaults are those of GLUE in the MDLM paper."""

    lr: float = option(2e-5, gt=0, help="learning rate of AdamW")
    epochs: int = option(3, ge=1, help="passes over the training examples")
    batch: int = option(16, ge=1, help="examples of an optimizer step")
    warmup: float = option(0.0, ge=0, lt=1, help="share of the steps with a growing learning rate")
    weight_decay: float = option(0.0, ge=0, help="weight decay of matrices")
    clip: float = option(1.0, ge=0, help="largest norm of a gradient; 0 is no limit")
    patience: int = option(0, ge=0, help="epochs without a better score before the end; 0 is off")
    precision: str = option("fp32", help="fp32, or bf16 for the matrix products")
    cuda_graph: bool = option(True, help="a GPU runs a step as one CUDA graph")
    seed: int = option(0, help="seed of the new head, the order of examples and the dropout")

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Fitted:
    """Course of a fine-tuning."""

    losses: tuple[float, ...]  # mean training loss of each epoch
    scores: tuple[float, ...]  # score after each epoch, if a score was given
    steps: int

    @property
    def best(self) -> int:
        """Number of the epoch with the best score; the last epoch without scores."""
        if not self.scores:
            return len(self.losses) - 1
        return max(range(len(self.scores)), key=self.scores.__getitem__)


def fit(
    method: SequenceClassifier,
    rows: SentenceRows,
    targets: Sequence[int] | Sequence[float],
    settings: FineTuning,
    score: Callable[[], float] | None = None,
) -> Fitted:
    """Trains a classifier on labelled rows.

    The learning rate decays linearly to 0. A row's batch and dropout are functions of the seed.

    Args:
        method: The classifier, on its device.
        rows: The training rows.
        targets: Class or number of each row.
        settings: The settings.
        score: Measures the classifier after each epoch; higher is better. The weights of the best
            epoch are restored at the end.

    Returns:
        Losses and scores of the epochs.
    """
    wanted = checked_targets(method, targets, len(rows))
    if settings.patience and score is None:
        raise UnmaskError("patience counts epochs without a better score: give a score")
    device = method.device
    rows, wanted = rows.to(device), wanted.to(device)
    generator = torch.Generator().manual_seed(settings.seed)
    per_epoch = math.ceil(len(rows) / settings.batch)
    config = _training_config(settings, per_epoch * settings.epochs)
    optimizer = NamedAdamW(method, config)
    losses: list[Tensor] = []
    scores: list[float] = []
    best: dict[str, Tensor] = {}
    never = torch.zeros((), device=device)
    step = 0

    def take_step(
        x: Tokens, valid: Valid | None, answers: Tensor, keys: Tensor, lr: float | Tensor
    ) -> Tensor:
        """Updates the weights by a batch; returns the sum of its losses."""
        method.backbone.dropout_keys = keys
        with autocast(device, settings.precision):
            logits = method.logits(x, valid)
        loss = method.loss(logits, answers)
        loss.mean().backward()
        if settings.clip:
            clip_gradients(method, settings.clip)
        optimizer.step(lr, never)
        return loss.detach().sum()

    graph = settings.cuda_graph and device.type == "cuda"
    aligned = _GRAPH_ALIGNED if graph else ALIGNED
    update = _GraphSteps(take_step) if graph else take_step
    try:
        with emulation(device, settings.precision):
            for _ in range(settings.epochs):
                method.train()
                order = torch.randperm(len(rows), generator=generator)
                keys = torch.randint(
                    -(2**31), 2**31, (len(rows), 2), dtype=torch.int32, generator=generator
                ).to(device)
                numbers, order = order.tolist(), order.to(device)
                total = torch.zeros((), device=device)
                for start in range(0, len(rows), settings.batch):
                    here = slice(start, start + settings.batch)
                    x, valid = rows.batch(numbers[here], order[here], aligned)
                    lr = learning_rate(step, config)
                    total += update(x, valid, wanted[order[here]], keys[here], lr)
                    step += 1
                method.backbone.dropout_keys = None
                method.eval()
                losses.append(total / len(rows))
                if score is None:
                    continue
                scores.append(score())
                if scores[-1] == max(scores) and scores.count(scores[-1]) == 1:
                    best = {name: tensor.clone() for name, tensor in method.state_dict().items()}
                if settings.patience and len(scores) - 1 - _first_best(scores) >= settings.patience:
                    break
    finally:  # an interrupted model stays usable
        method.backbone.dropout_keys = None
        method.eval()
    if best:
        method.load_state_dict(best)
    means = torch.stack(losses).tolist()
    if not all(map(math.isfinite, means)):
        raise UnmaskError(f"the training loss is not finite: lower lr, which is {settings.lr}")
    return Fitted(tuple(means), tuple(scores), step)


class _GraphSteps:
    """An optimizer step as a CUDA graph for each shape of a batch."""

    def __init__(self, take_step: Callable[..., Tensor]) -> None:
        def step(*inputs: Tensor) -> Tensor:
            *batch, lr = inputs
            return take_step(*batch, lr[0])[None]

        self._graph = CudaGraph(step)

    def __call__(
        self, x: Tokens, valid: Valid | None, answers: Tensor, keys: Tensor, lr: float
    ) -> Tensor:
        """Updates the weights by a batch; returns the sum of its losses."""
        real = torch.ones_like(x, dtype=torch.bool) if valid is None else valid
        rate = to_device(torch.tensor([lr]), x.device)
        inputs = (x, real, answers, keys, rate)
        return self._graph(inputs, [len(each) for each in inputs], 1)[0]


@torch.no_grad()
def predict(
    method: SequenceClassifier, rows: SentenceRows, batch: int = 64, precision: str = "fp32"
) -> Float[Tensor, "rows outputs"]:
    """Logits of all rows.

    Args:
        method: The classifier.
        rows: The rows.
        batch: Rows of a forward pass.
        precision: Precision of the matrix products.

    Returns:
        The outputs of the head in float32, on the CPU.
    """
    training = method.training
    method.eval()
    rows = rows.to(method.device)
    with emulation(method.device, precision), autocast(method.device, precision):
        found = [method.logits(x, valid).float() for _, x, valid in rows.batches(batch)]
    method.train(training)
    return torch.cat(found).cpu()


def checked_targets(
    method: SequenceClassifier, targets: Sequence[int] | Sequence[float], rows: int
) -> Tensor:
    """The targets as a tensor; an error if their number is wrong or one is out of range."""
    if len(targets) != rows:
        raise UnmaskError(f"{rows:,} sentences have {len(targets):,} labels: give one for each")
    if method.regression:
        wanted = torch.tensor([float(target) for target in targets])
        if not bool(wanted.isfinite().all()):
            raise UnmaskError("a score is infinite or not a number: remove its sentence")
        return wanted
    for number, target in enumerate(targets):
        if int(target) != target or not 0 <= target < method.outputs:
            raise UnmaskError(
                f"label {target} of sentence {number + 1} is outside 0 … {method.outputs - 1}: "
                f"the head has {method.outputs} classes"
            )
    return torch.tensor([int(target) for target in targets])


def _first_best(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=scores.__getitem__)


def _training_config(settings: FineTuning, steps: int) -> TrainingConfig:
    """Optimizer settings of a fine-tuning of some steps."""
    return replace(
        TrainingConfig(),
        steps=steps,
        batch=settings.batch,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        clip=settings.clip,
        warmup=round(settings.warmup * steps),
        decay="linear",
        ema=0.0,
    )
