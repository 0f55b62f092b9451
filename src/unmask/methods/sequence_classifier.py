"""Classification and regression of whole sequences, by a new head on any network."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.backbones.layers.dropout import dropout
from unmask.diffusion.denoiser import Denoiser
from unmask.diffusion.time_sampler import RowNoise
from unmask.errors import UnmaskError, unknown
from unmask.methods.method import METHODS, Capabilities, Losses, Method
from unmask.options import Checked, option
from unmask.shapes import Batch, Tensors, Tokens, Valid

POOLINGS = ("cls", "mean", "last")
MOST_CLASSES = 100_000
_SITE = 1_000_000  # dropout site of the head, after those of every network


def as_classifier(method: Method) -> "SequenceClassifier | None":
    """The method if it is a sequence classifier, else None."""
    return method if isinstance(method, SequenceClassifier) else None


def pooled(
    h: Float[Tensor, "rows length width"], valid: Valid | None, pooling: str
) -> Float[Tensor, "rows width"]:
    """One vector for each row.

    Args:
        h: Features of all tokens.
        valid: True at tokens that are not padding, on the device of `h`; None without padding.
        pooling: `cls` takes the first token, `last` the last one, `mean` the mean over all tokens.

    Returns:
        The vectors. A row of padding alone has zeros with `mean`.

    Example:
        >>> pooled(torch.tensor([[[1.0], [3.0]]]), None, "mean")
        tensor([[2.]])
    """
    if pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS)
    if valid is None:
        return h.mean(1) if pooling == "mean" else h[:, 0 if pooling == "cls" else -1]
    if pooling == "mean":
        real = valid[..., None].to(h.dtype)
        return (h * real).sum(1) / real.sum(1).clamp(min=1)
    places = torch.arange(h.shape[1], device=h.device)
    if pooling == "cls":  # the first valid token: padding may precede a text
        at = torch.where(valid, places, h.shape[1] - 1).amin(1)
    else:
        at = torch.where(valid, places, 0).amax(1)
    return h[torch.arange(len(h), device=h.device), at]


@METHODS.register("sequence_classifier")
class SequenceClassifier(Method):
    """p(class | text), or a number for each text: a new head on the pooled features of any network."""

    certificate = "exact"
    noise_schedule = "none"
    class_weights: Tensor
    capabilities = Capabilities(any_network=True, generate=False, infill=False, per_row=True)

    @dataclass(frozen=True)
    class Config(Checked):
        # outputs of the head; 1 is regression, 0 takes the class labels of the data
        classes: int = option(0, ge=0, le=MOST_CLASSES)
        names: tuple[str, ...] = ()  # names of the classes; () takes the class labels of the data
        pooling: str = option("mean", among=POOLINGS)  # cls (the first token) | mean | last
        pooler: bool = False  # a tanh layer before the classes, as in BERT
        dropout: float = option(0.1, ge=0, lt=1)  # before the classes
        frozen: bool = False  # True trains the head only
        # weight of each class in the loss; () is 1 for all
        class_weights: tuple[float, ...] = option((), ge=0, lt=math.inf)
        # EOS tokens between two sentences; RoBERTa and MPNet have 2
        separators: int = option(1, ge=1, le=8)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.names and len(self.names) != self.classes:
                raise UnmaskError(
                    f"names has {len(self.names)} names for {self.classes} classes: "
                    "give one for each class"
                )

    def __init__(self, config: Config, *parts: Any) -> None:
        super().__init__(config, *parts)
        self.outputs: int = config.classes or len(self.vocabulary.label_ids)
        if not self.outputs:
            raise UnmaskError(
                "a sequence classifier needs classes: set data.label_field, or method.classes"
            )
        if config.class_weights and len(config.class_weights) != self.outputs:
            raise UnmaskError(
                f"class_weights has {len(config.class_weights)} numbers for {self.outputs} classes: "
                "give one for each class"
            )
        weights = torch.tensor(config.class_weights)
        self.register_buffer("class_weights", weights, persistent=False)
        self.backbone.replace_head(self.outputs)
        width = self.backbone.width
        self.pooler = nn.Linear(width, width) if config.pooler else None
        if self.pooler is not None:
            nn.init.normal_(self.pooler.weight, std=0.02)
            nn.init.zeros_(self.pooler.bias)
        if config.frozen:
            self.backbone.requires_grad_(False)
            self.backbone.head.requires_grad_(True)

    @property
    def regression(self) -> bool:
        """True if the head predicts a number and not a class."""
        return bool(self.config.classes == 1)

    def logits(
        self, x: Tokens, valid: Bool[Tensor, "rows length"] | None = None
    ) -> Float[Tensor, "rows outputs"]:
        """Logits of the classes, or the predicted number, of each row.

        Args:
            x: Token ids on the device. A pair of sentences has EOS between them.
            valid: True at tokens that are not padding, on the device; None without padding.

        Returns:
            The outputs of the head.
        """
        h = self.backbone.hidden(
            x, self._condition(x), valid=valid, segments=self._segments(x, valid)
        )
        h = pooled(h, valid, self.config.pooling)
        if self.pooler is not None:
            h = self.pooler(h).tanh()
        h = dropout(h[:, None], self.config.dropout, self.backbone.keys(x), _SITE)[:, 0]
        return self.backbone.head(h)

    def loss(self, logits: Float[Tensor, "rows outputs"], targets: Tensor) -> Float[Tensor, "rows"]:
        """Loss of each row: cross-entropy, or the squared error of a regression.

        Args:
            logits: Outputs of the head.
            targets: The class of each row, or its number.

        Returns:
            The losses, each times the weight of its class.
        """
        if self.regression:
            return (logits.float()[:, 0] - targets.float()) ** 2
        losses = F.cross_entropy(logits.float(), targets, reduction="none")
        return losses * self.class_weights[targets] if len(self.class_weights) else losses

    def tensors_of(
        self, batch: Batch, noise: RowNoise | None, full_bound: bool = False
    ) -> dict[str, Tensor]:
        """Rows that begin with their class token. The network reads BOS, or MASK, in its place."""
        v = self.vocabulary
        if len(v.label_ids) != self.outputs:
            raise UnmaskError(
                f"the head has {self.outputs} classes and the data {len(v.label_ids)}: "
                "set data.label_field, and method.classes 0"
            )
        chosen = batch.x[:, :1] == torch.tensor(v.label_ids)  # [rows, classes]
        labelled, text = chosen.any(1), batch.x.clone()
        first = v.mask_id if v.bos_id is None else v.bos_id
        text[:, 0] = torch.where(labelled, first, text[:, 0])
        tensors = {"x": text, "class": chosen.int().argmax(1), "labelled": labelled}
        return tensors if batch.padding is None else tensors | {"valid": batch.valid}

    def loss_of(self, tensors: Tensors) -> Losses:
        """-log p(class | text), at the first position. A row without a class costs nothing."""
        x = tensors["x"]
        nats = self.loss(self.logits(x, tensors.get("valid")), tensors["class"])
        if "labelled" in tensors:
            nats = torch.where(tensors["labelled"], nats, 0.0)
        by_token = F.pad(nats.detach()[:, None], (0, x.shape[1] - 1))
        return Losses(nats.sum(), {"class": by_token})

    def denoiser(self) -> Denoiser:
        raise UnmaskError("a sequence classifier writes no text: use classify or embed")

    def _condition(self, x: Tokens) -> Float[Tensor, "rows"] | None:
        """Noise level 0 for networks with time conditioning: the text has no masks."""
        return torch.zeros(len(x), device=x.device) if self.backbone.time_conditioning else None

    def _segments(self, x: Tokens, valid: Valid | None) -> Int[Tensor, "rows length"] | None:
        """1 after the first EOS of a row, in the second sentence of a pair; 0 before."""
        if self.vocabulary.eos_id is None:
            return None
        ends = x == self.vocabulary.eos_id
        ends = ends if valid is None else ends & valid
        return (ends.cumsum(1) - ends.long()).clamp(max=1)
