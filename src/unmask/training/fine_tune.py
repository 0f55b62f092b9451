"""Fine-tuning of a sequence classifier: epochs over labelled sentences, with early stopping."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.backbones.layers.dropout import Keys
from unmask.data.rows.sentence_rows import ALIGNED, SentenceRows
from unmask.errors import UnmaskError
from unmask.methods.sequence_classifier import SequenceClassifier
from unmask.options import Checked, option
from unmask.runtime.device import autocast, emulation
from unmask.training.distributed.process_group import ProcessGroup
from unmask.training.distributed.single_process import SingleProcess
from unmask.training.graph_step import GraphStep
from unmask.training.optimizer import NamedAdamW, learning_rate
from unmask.training.step import OptimizerStep
from unmask.training.training_config import TrainingConfig

_GRAPH_ALIGNED = 32  # a graph is captured for each length, so they are multiples of this


@dataclass(frozen=True)
class FineTuning(Checked):
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
    examples = _Examples(method, rows, targets, settings)
    if settings.patience and score is None:
        raise UnmaskError("patience counts epochs without a better score: give a score")
    config = _training_config(settings, examples.steps * settings.epochs)
    one = SingleProcess(ProcessGroup(), method.device, settings.precision)
    step = OptimizerStep(method, NamedAdamW(method, config), one, settings.clip)
    graph = GraphStep(step, method.loss_of) if examples.graphed else None
    epochs = _Epochs(method, score, settings.patience)
    number = 0
    try:
        with emulation(method.device, settings.precision):
            for _ in range(settings.epochs):
                method.train()
                total = torch.zeros((), device=method.device)
                for tensors, keys in examples.epoch():
                    lr, size = learning_rate(number, config), len(keys)
                    result = graph.run(tensors, keys, size, lr) if graph else None
                    if result is None:
                        loss = step.add(partial(method.loss_of, tensors), keys, size)
                        result = step.finish(loss, lr)
                    total += result[0] * size
                    number += 1
                method.eval()
                if epochs.end(total / len(rows)):
                    break
    finally:  # an interrupted model stays usable
        method.eval()
    losses = epochs.losses_of_best()
    if not all(map(math.isfinite, losses)):
        raise UnmaskError(f"the training loss is not finite: lower lr, which is {settings.lr}")
    return Fitted(losses, tuple(epochs.scores), number)


class _Examples:
    """Labelled rows in batches, with the dropout keys of each row."""

    def __init__(
        self,
        method: SequenceClassifier,
        rows: SentenceRows,
        targets: Sequence[int] | Sequence[float],
        settings: FineTuning,
    ) -> None:
        device = method.device
        self.targets = checked_targets(method, targets, len(rows)).to(device)
        self.rows, self.batch = rows.to(device), settings.batch
        self.graphed = settings.cuda_graph and device.type == "cuda"
        self.steps = math.ceil(len(rows) / settings.batch)  # of an epoch
        self._generator = torch.Generator().manual_seed(settings.seed)

    def epoch(self) -> Iterator[tuple[dict[str, Tensor], Keys]]:
        """Tensors and dropout keys of the batches of one epoch, in a new order."""
        count, device = len(self.rows), self.targets.device
        order = torch.randperm(count, generator=self._generator)
        keys = torch.randint(
            -(2**31), 2**31, (count, 2), dtype=torch.int32, generator=self._generator
        ).to(device)
        numbers, order = order.tolist(), order.to(device)
        for start in range(0, count, self.batch):
            here = slice(start, start + self.batch)
            aligned = _GRAPH_ALIGNED if self.graphed else ALIGNED
            x, valid = self.rows.batch(numbers[here], order[here], aligned)
            if valid is None and self.graphed:
                valid = torch.ones_like(x, dtype=torch.bool)
            tensors = {"x": x, "class": self.targets[order[here]]}
            yield tensors | ({} if valid is None else {"valid": valid}), keys[here]


class _Epochs:
    """Losses and scores of the epochs so far, and the weights of the best one."""

    def __init__(
        self, method: SequenceClassifier, score: Callable[[], float] | None, patience: int
    ) -> None:
        self.method, self.score, self.patience = method, score, patience
        self.losses: list[Tensor] = []
        self.scores: list[float] = []
        self._best: dict[str, Tensor] = {}

    def end(self, loss: Tensor) -> bool:
        """Ends an epoch of this mean loss with its score; True if patience ends the training."""
        self.losses.append(loss)
        if self.score is None:
            return False
        self.scores.append(self.score())
        best = _first_best(self.scores)
        if best == len(self.scores) - 1:
            self._best = {name: x.clone() for name, x in self.method.state_dict().items()}
        return 0 < self.patience <= len(self.scores) - 1 - best

    def losses_of_best(self) -> tuple[float, ...]:
        """Restores the weights of the best epoch, and returns the losses of all."""
        if self._best:
            self.method.load_state_dict(self._best)
        return tuple(torch.stack(self.losses).tolist())


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
