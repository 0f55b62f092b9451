"""The denoiser of a diffusion method at few shapes, each of them one graph on a GPU."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.runtime.cuda_graphs import CudaGraph, CudaGraphs, doubled, rounded
from unmask.shapes import At, LogProbabilities, Tokens

MOST_ELEMENTS = 1 << 24  # log-probabilities that a graph gives out: 64 MiB


class GraphDenoiser:
    """log x_theta as the method itself says it, with rows and places padded up to few sizes.

    The questions of a sampler all go through here, so that a count that varies neither compiles nor
    captures anew; where they are many, the network alone is replayed.
    """

    def __init__(self, method: Any) -> None:
        self.edition = method.edition
        self._method = method
        self._answer = CudaGraph(self._answers)
        self._features = CudaGraph(method.backbone.features)
        self._others = CudaGraphs()

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        sigma = self._method.condition(t, z_t.device)
        read = [z_t] if sigma is None else [z_t, sigma]
        sizes = [rounded(len(z_t))] * len(read)
        with self._method.arithmetic():
            if self.fits(len(at[0])):
                places = doubled(len(at[0]))
                return self._answer([*at, *read], [places, places, *sizes], len(at[0]))
            h = self._features(read, sizes, len(z_t))
            return self._method.log_mean(h[at])

    def condition(self, t: Float[Tensor, "rows"]) -> Float[Tensor, "rows"] | None:
        """What the network reads of the time, on the CPU."""
        return self._method.condition(t, torch.device("cpu"))

    def answer(self, z_t: Tokens, condition: Tensor | None, at: At) -> LogProbabilities:
        """log x_theta, a function of tensors on the device."""
        read = [z_t] if condition is None else [z_t, condition]
        with self._method.arithmetic():
            return self._answers(*at, *read)

    def fits(self, places: int) -> bool:
        """Do so many distributions fit into a graph?"""
        return doubled(places) * self._method.vocabulary.size <= MOST_ELEMENTS

    def replay(self, key: Hashable, function: Callable[..., Tensor]) -> CudaGraph:
        """A function around `answer` at few shapes; the last few are kept for the next text."""
        return self._others(key, function)

    def _answers(
        self, rows: Tensor, columns: Tensor, z_t: Tokens, sigma: Tensor | None = None
    ) -> LogProbabilities:
        at = rows * z_t.shape[1] + columns
        return self._method.log_mean(self._method.backbone.features(z_t, sigma, at=at))
