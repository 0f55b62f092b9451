"""Classifier-free guidance and classifier guidance of methods that diffuse vectors."""

from dataclasses import dataclass
from typing import cast

from jaxtyping import Float
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.extensions.vectors.diffusion.gaussian import signal
from unmask.extensions.vectors.methods.vector_method import LatentDenoiser, VectorMethod, Vectors
from unmask.generation.guidance import GUIDANCES, Guidance, SoftClassifier, check_weight
from unmask.methods.method import Method
from unmask.methods.token_classifier import TokenClassifier


@dataclass(frozen=True)
class ClassifierGuidedVectors(LatentDenoiser):
    """Classifier guidance of vectors: the gradient of log p(y | text) in z_t moves the estimate."""

    classifier: SoftClassifier
    weight: float

    def __post_init__(self) -> None:
        check_weight(self.weight)

    @property
    def cost(self) -> int:
        """Network calls per row in each step."""
        return 1 if self.weight == 0 else 3

    def steer(
        self, estimate: Vectors, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors
    ) -> Vectors:
        if self.weight == 0:
            return estimate

        def log_p(prediction: Tensor) -> Tensor:
            return self.classifier.soft(self.log_tokens(prediction).exp())

        return self.moved(estimate, z, gamma, guess, log_p, self.weight)


@dataclass(frozen=True)
class ClassifierFreeVectors(LatentDenoiser):
    """Classifier-free guidance of vectors: the estimate moves away from that without the class token.

    Rows have the class token `label_id` at column `column`.
    """

    label_id: int
    null_id: int
    weight: float
    column: int = 0

    def __post_init__(self) -> None:
        check_weight(self.weight)

    @property
    def cost(self) -> int:
        """Network calls per row in each step."""
        return 2

    def steer(
        self, estimate: Vectors, z: Vectors, gamma: Float[Tensor, "rows"], guess: Vectors
    ) -> Vectors:
        label, null = self.codes[self.label_id], self.codes[self.null_id]
        alpha, _ = signal(gamma[:, None])
        z, guess = z.clone(), guess.clone()
        z[:, self.column] += alpha * (null - label)
        guess[:, self.column] = null
        free = self.estimate(self.predict(z, gamma, guess))
        return free + self.weight * (estimate - free)


@GUIDANCES.register("vectors")
class VectorGuidance(Guidance):
    """Guidance of the estimate of the code vectors."""

    @staticmethod
    def classifier_free(method: Method, label_id: int, null_id: int, weight: float) -> Denoiser:
        return ClassifierFreeVectors(cast(VectorMethod, method), label_id, null_id, weight)

    @staticmethod
    def by_classifier(method: Method, classifier: TokenClassifier, weight: float) -> Denoiser:
        return ClassifierGuidedVectors(cast(VectorMethod, method), classifier, weight)
