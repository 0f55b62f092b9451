"""Denoiser of masked diffusion with few input shapes, each one CUDA graph on a GPU."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.runtime.cuda_graphs import CudaGraph, CudaGraphs, doubled, rounded
from unmask.shapes import At, LogProbabilities, Tokens

MOST_ELEMENTS = 1 << 24  # most log-probabilities of a graph's output: 64 MiB


class GraphDenoiser:
    """log x_theta of a method, with the numbers of rows and positions padded to few sizes.

    Calls with different numbers of positions thus share CUDA graphs and compiled code. If the
    log-probabilities do not fit into a graph, the graph contains the network without its head.
    """

    def __init__(self, method: Any) -> None:
        self.edition = method.edition
        self._method = method
        self._log_x_theta_graph = CudaGraph(self._log_x_theta)
        self._features = partial(method.backbone.features, rule=method.rule)
        self._features_graph = CudaGraph(self._features)
        self._sampler_graphs = CudaGraphs()

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        sigma = self._method.condition(t, z_t.device)
        inputs = [z_t] if sigma is None else [z_t, sigma]
        sizes = [rounded(len(z_t))] * len(inputs)
        with self._method.arithmetic():
            if self.fits(len(at[0])):
                padded = doubled(len(at[0]))
                return self._log_x_theta_graph([*at, *inputs], [padded, padded, *sizes], len(at[0]))
            h = self._features_graph(inputs, sizes, len(z_t))
            return self._method.log_mean(h[at])

    def condition(self, t: Float[Tensor, "rows"]) -> Float[Tensor, "rows"] | None:
        """The network's noise level at time t, on the CPU; None without time conditioning."""
        return self._method.condition(t, torch.device("cpu"))

    def log_x_theta(self, z_t: Tokens, condition: Tensor | None, at: At) -> LogProbabilities:
        """log x_theta as a function of device tensors, for use inside a CUDA graph."""
        inputs = [z_t] if condition is None else [z_t, condition]
        with self._method.arithmetic():
            return self._log_x_theta(*at, *inputs)

    def fits(self, positions: int) -> bool:
        """True if the log-probabilities of this number of positions fit into a graph."""
        return doubled(positions) * self._method.vocabulary.size <= MOST_ELEMENTS

    def graph(self, key: Hashable, function: Callable[..., Tensor]) -> CudaGraph:
        """The CUDA graph of a function that calls `log_x_theta`; the last few graphs are kept."""
        return self._sampler_graphs(key, function)

    def _log_x_theta(
        self, rows: Tensor, columns: Tensor, z_t: Tokens, sigma: Tensor | None = None
    ) -> LogProbabilities:
        at = rows * z_t.shape[1] + columns
        return self._method.log_mean(self._features(z_t, sigma, at=at))
