"""Denoiser of masked diffusion with few input shapes, each one CUDA graph on a GPU."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.runtime.cuda_graphs import CudaGraph, CudaGraphs, doubled, rounded
from unmask.shapes import At, LogProbabilities, Tokens

MOST_ELEMENTS = 1 << 24  # most log-probabilities of a graph's output: 64 MiB


class GraphDenoiser:
    """log x_theta of a method, with the numbers of rows and positions padded to few sizes.

    So a new number of positions needs neither compilation nor a new CUDA graph. If the output
    does not fit into a graph, the graph holds the network alone.
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
        """The network's noise level at time t, on the CPU; None without time conditioning."""
        return self._method.condition(t, torch.device("cpu"))

    def answer(self, z_t: Tokens, condition: Tensor | None, at: At) -> LogProbabilities:
        """log x_theta as a function of device tensors, for use inside a CUDA graph."""
        read = [z_t] if condition is None else [z_t, condition]
        with self._method.arithmetic():
            return self._answers(*at, *read)

    def fits(self, places: int) -> bool:
        """True if the distributions of this number of positions fit into a graph."""
        return doubled(places) * self._method.vocabulary.size <= MOST_ELEMENTS

    def replay(self, key: Hashable, function: Callable[..., Tensor]) -> CudaGraph:
        """The CUDA graph of a function that calls `answer`; the last few graphs are kept."""
        return self._others(key, function)

    def _answers(
        self, rows: Tensor, columns: Tensor, z_t: Tokens, sigma: Tensor | None = None
    ) -> LogProbabilities:
        at = rows * z_t.shape[1] + columns
        return self._method.log_mean(self._method.backbone.features(z_t, sigma, at=at))
