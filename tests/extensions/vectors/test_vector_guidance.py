"""Guidance of methods of vectors."""

import pytest
import torch
from builders import small_method
from labelled_models import train_labelled

import unmask
from unmask.extensions.vectors.diffusion.gaussian import signal
from unmask.extensions.vectors.vector_guidance import ClassifierFreeVectors

LABEL, NONE = 2, 4  # ids of a class and of no class


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> unmask.Model:
    timed = {"backbone.time_conditioning": "true", "backbone.gate": "1"}
    small = {"method": "plaid", "backbone.depth": "1", "training.steps": "60"}
    return train_labelled(tmp_path_factory.mktemp("vectors"), {**timed, **small})


def letters_a(model: unmask.Model, **options) -> float:
    """The share of a's among the letters that a model of vectors generates."""
    results = model.fill("[MASK:8]", n=60, batch=60, steps=12, **options)
    letters = [letter for result in results for letter in str(result) if letter in "ab"]
    return letters.count("a") / len(letters)


def test_classifier_free_guidance_of_vectors_moves_from_one_estimate_to_the_other():
    method = small_method("plaid", 6)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 4, method.codes.shape[1], generator=generator).double()
    gamma = torch.tensor([-1.0, 2.0], dtype=torch.float64)
    alpha, _ = signal(gamma[:, None])

    def estimated(first: int) -> tuple[torch.Tensor, ...]:
        """The estimate of a row with this class token, and its inputs."""
        code = method.codes.detach().double()[first]
        z, guess = noise.clone(), torch.zeros_like(noise)
        z[:, 0] += alpha * code
        guess[:, 0] = code
        return method.estimate(method.predict(z, gamma, guess)), z, gamma, guess

    with torch.no_grad():
        given, free = estimated(LABEL), estimated(NONE)
        for weight in (0.0, 1.0, 3.0):
            found = ClassifierFreeVectors(method, LABEL, NONE, weight).steer(*given)
            wanted = free[0] + weight * (given[0] - free[0])
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_gradients_of_a_classifier_guide_vectors(vectors, labelled):
    free = letters_a(vectors)
    assert letters_a(vectors, label="a", guide=labelled, guidance=0) == free
    towards, away = (letters_a(vectors, label=label, guide=labelled, guidance=8) for label in "ab")
    assert away + 0.1 < free < towards - 0.1
