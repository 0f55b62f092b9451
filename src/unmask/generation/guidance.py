"""Classifier-free guidance and classifier guidance, as wrappers of a denoiser for every sampler.

x_theta becomes x_theta(v) p(y | v)^weight, normalised at each position. Classifier-free guidance computes
p(y | v) with the model itself, from its predictions with and without the class token. Classifier guidance
computes it with another network, to first order.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.bundle import Bundle
from unmask.diffusion.denoiser import Denoiser
from unmask.errors import UnmaskError, unknown
from unmask.generation.sampling_params import SamplingParams
from unmask.methods.method import METHODS, Method, methods_that
from unmask.methods.token_classifier import TokenClassifier
from unmask.registry import Registry
from unmask.shapes import At, LogProbabilities, Tokens

LARGEST_WEIGHT = 1000.0


@runtime_checkable
class Classifier(Protocol):
    """A noise-aware classifier log p(y | z_t) with its gradient in the tokens."""

    def slopes(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        """Gradient of log p(y | z_t) with respect to the one-hot tokens at chosen positions."""


@runtime_checkable
class SoftClassifier(Protocol):
    """A classifier of texts whose tokens are uncertain."""

    def soft(self, probabilities: Float[Tensor, "rows length vocabulary"]) -> Float[Tensor, "rows"]:
        """log p(y) of each row, differentiable in the probabilities of its tokens."""


@dataclass(frozen=True)
class ClassifierFree:
    """x_theta(class)^weight x_theta(null)^(1 - weight): weight 1 samples the class, 0 text of any class.

    Rows have the class token at column `column`, or `null_id` for no class.
    """

    denoiser: Denoiser
    null_id: int
    weight: float
    column: int = 0

    def __post_init__(self) -> None:
        check_weight(self.weight)

    @property
    def cost(self) -> int:
        """Network calls per row in each denoiser call."""
        return 1 if self.weight in (0, 1) else 2

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        if self.weight == 1:
            return self.denoiser(z_t, t, at)
        null = z_t.clone()
        null[:, self.column] = self.null_id
        if self.weight == 0:
            return self.denoiser(null, t, at)
        rows, columns = at
        both = (torch.cat([rows, rows + len(z_t)]), columns.repeat(2))
        conditional, free = self.denoiser(torch.cat([z_t, null]), t.repeat(2), both).chunk(2)
        # MASK and other tokens of probability 0 keep it: -inf - -inf would be NaN
        impossible = conditional.isneginf() | free.isneginf()
        guided = free + self.weight * (conditional - free)
        return guided.masked_fill(impossible, -math.inf).log_softmax(-1)


@dataclass(frozen=True)
class ClassifierGuided:
    """x_theta(v) p(y | z_t with v)^weight, with the classifier to first order around z_t."""

    denoiser: Denoiser
    classifier: Classifier
    weight: float

    def __post_init__(self) -> None:
        check_weight(self.weight)

    @property
    def cost(self) -> int:
        """Network calls per row in each denoiser call."""
        return 1 if self.weight == 0 else 2

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        log_x_theta = self.denoiser(z_t, t, at)
        if self.weight == 0:
            return log_x_theta
        # log p(y | z_t) and the slope of the present token do not depend on v: log_softmax drops them
        slopes = self.classifier.slopes(z_t, t, at).to(log_x_theta)
        return (log_x_theta + self.weight * slopes).log_softmax(-1)


class Guidance(ABC):
    """Guidance of the methods with the same states between noise and text."""

    @staticmethod
    @abstractmethod
    def classifier_free(method: Method, label_id: int, null_id: int, weight: float) -> Denoiser:
        """The denoiser of a method whose rows begin with the class token `label_id`.

        Args:
            method: the method.
            label_id: the class token.
            null_id: the token that stands for no class.
            weight: exponent of p(y | text).
        """

    @staticmethod
    @abstractmethod
    def by_classifier(method: Method, classifier: TokenClassifier, weight: float) -> Denoiser:
        """The denoiser of a method with the gradient of a classifier.

        Args:
            method: the method.
            classifier: log p(y | text).
            weight: exponent of p(y | text).
        """


GUIDANCES: Registry[Guidance] = Registry("guidance")  # by the states of the methods


@GUIDANCES.register("masks")
class MaskGuidance(Guidance):
    """Guidance of the log-probabilities of masked tokens."""

    @staticmethod
    def classifier_free(method: Method, label_id: int, null_id: int, weight: float) -> Denoiser:
        return ClassifierFree(method.denoiser(), null_id, weight)

    @staticmethod
    def by_classifier(method: Method, classifier: TokenClassifier, weight: float) -> Denoiser:
        return ClassifierGuided(method.denoiser(), classifier, weight)


def check_weight(weight: float) -> None:
    """Raises an error for a weight of guidance that is out of range."""
    if not 0 <= weight <= LARGEST_WEIGHT:
        raise UnmaskError(
            f"guidance must be 0 or more, and {LARGEST_WEIGHT:g} at most, not {weight}"
        )


def first_tokens(bundle: Bundle, sampling: SamplingParams) -> list[int]:
    """The first token of rows, if any: BOS without a label or with a guide, else the class token."""
    label_id, bos = _label_id(bundle, sampling), bundle.tokenizer.vocabulary.bos_id
    first = bos if label_id is None or sampling.guide is not None else label_id
    return [] if first is None else [first]


def guided(bundle: Bundle, sampling: SamplingParams) -> Denoiser:
    """The model's denoiser, guided towards the class label of the options."""
    method, label_id = bundle.method, _label_id(bundle, sampling)
    weight, null_id = float(sampling.guidance), bundle.tokenizer.vocabulary.bos_id
    if label_id is None or (sampling.guide is None and weight == 1):
        return method.denoiser()
    if method.capabilities.states not in GUIDANCES:
        able = methods_that(lambda can: can.generate and can.states in GUIDANCES)
        raise UnmaskError(
            f"the method {METHODS.name_of(method)} takes no guidance: give a model of method {able}"
        )
    kind = GUIDANCES[method.capabilities.states]
    if sampling.guide is None:
        assert null_id is not None
        return kind.classifier_free(method, label_id, null_id, weight)
    labels = bundle.tokenizer.labels.values()
    classifier = TokenClassifier(sampling.guide.method, label_id, labels)
    return kind.by_classifier(method, classifier, weight)


def _label_id(bundle: Bundle, sampling: SamplingParams) -> int | None:
    """The id of the class token of the options, or None without a label."""
    label, guide = sampling.label, sampling.guide
    if label is None:
        if guide is not None or sampling.guidance != 1:
            raise UnmaskError("guidance needs a label: give label, or leave guidance and guide out")
        return None
    labels = bundle.tokenizer.labels
    if not labels:
        raise UnmaskError(
            "label is unknown to this model, trained without labels: train it with data.label_field"
        )
    if label not in labels:
        raise unknown("label", label, labels)
    if guide is not None and guide.tokenizer.fingerprint != bundle.tokenizer.fingerprint:
        raise UnmaskError(
            "the guide has another tokenizer than the model: give a guide trained with the model's"
        )
    if guide is not None and guide.device != bundle.device:
        raise UnmaskError(
            f"the guide is on {guide.device} and the model on {bundle.device}: load both on one device"
        )
    return labels[label]
