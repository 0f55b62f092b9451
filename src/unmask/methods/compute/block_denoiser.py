"""Denoisers of block diffusion, with an exact cache of the text before a block."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from unmask.backbones.layers.attention_rules import BlockRule, full_rule
from unmask.backbones.layers.state import KVState, ReadKVState
from unmask.methods.compute.graph_denoiser import GraphDenoiser
from unmask.shapes import At, LogProbabilities, Tokens


class CachedBlocks:
    """log x_theta of a block given cached keys and values of the text before it.

    A finished block is stored in the first call for the next one: both are one pass of the network,
    in which the finished block does not see the next.
    """

    def __init__(self, method: Any, rows: int, capacity: int, block: int) -> None:
        self.method, self.block = method, block
        self._state = method.backbone.new_state(rows, capacity)
        self._new: list[Tensor] = []  # finished tokens that are not stored yet

    def append(self, tokens: Tokens) -> None:
        """Adds the next tokens of all rows, whole blocks that no longer change.

        Args:
            tokens: Token ids.
        """
        if tokens.shape[1]:
            self._new.append(tokens)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        """Drops all rows but some.

        Args:
            rows: The rows that stay, in their new order.
        """
        self._state.keep(rows)
        self._new = [tokens[rows] for tokens in self._new]

    def of_rows(self, rows: Int[Tensor, "read"]) -> "SomeRows":
        """The denoiser of some rows.

        Args:
            rows: The rows.

        Returns:
            A denoiser that reads their part of the cache.
        """
        return SomeRows(self, rows)

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        tokens = torch.cat([*self._new, self.whole(z_t)], 1)
        return self._log_mean(self._stored(tokens)[:, -self.block :], at)

    def read(self, z_t: Tokens, rows: Int[Tensor, "read"], at: At) -> LogProbabilities:
        """log x_theta of a block of some rows.

        Args:
            z_t: The tokens of the block in these rows.
            rows: The rows.
            at: Rows, counted among these, and columns of the tokens to predict.

        Returns:
            The distributions.
        """
        if self._new:
            self._stored(torch.cat(self._new, 1), 0)
        state = ReadKVState(self._state, rows)
        with self.method.arithmetic():
            features = self.method.backbone.features
            h = features(self.whole(z_t), rule=full_rule, state=state)
        return self._log_mean(h, at)

    def whole(self, z_t: Tokens) -> Tokens:
        """A block of the trained size: masks follow a text that ends before its block does."""
        return F.pad(z_t, (0, self.block - z_t.shape[1]), value=self.method.vocabulary.mask_id)

    def _stored(self, tokens: Tokens, unfinished: int | None = None) -> Tensor:
        """Features of tokens; all but the last `unfinished`, by default a block, stay in the cache."""
        state: KVState = self._state
        end = state.length + tokens.shape[1] - (self.block if unfinished is None else unfinished)
        alone = tokens.shape[1] <= self.block and state.length % self.block == 0
        rule = full_rule if alone else BlockRule(self.block)
        with self.method.arithmetic():
            h = self.method.backbone.features(tokens, rule=rule, state=state)
        state.crop(end)
        self._new = []
        return h

    def _log_mean(self, h: Tensor, at: At) -> LogProbabilities:
        with self.method.arithmetic():
            return self.method.log_mean(h[at])


@dataclass(frozen=True)
class SomeRows:
    """A denoiser of some rows of cached blocks."""

    blocks: CachedBlocks
    rows: Int[Tensor, "rows"]

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        return self.blocks.read(z_t, self.rows, at)

    def of_rows(self, rows: Int[Tensor, "read"]) -> "SomeRows":
        """The denoiser of some of these rows.

        Args:
            rows: Their indices among these rows.

        Returns:
            The denoiser.
        """
        return SomeRows(self.blocks, self.rows[rows])


@dataclass(frozen=True)
class PlainBlocks:
    """log x_theta of whole rows, and contexts for blocks."""

    method: Any

    def __call__(self, z_t: Tokens, t: Float[Tensor, "rows"], at: At) -> LogProbabilities:
        return self.method.log_x_theta(z_t, t, at)

    @property
    def block(self) -> int:
        """The smallest block size of training; 0 for whole rows."""
        return self.method.smallest

    def context(self, rows: int, capacity: int, block: int) -> CachedBlocks:
        """An empty context.

        Args:
            rows: Rows of the batch.
            capacity: Most tokens of a row.
            block: Tokens of a block.

        Returns:
            The context, without tokens.
        """
        return CachedBlocks(self.method, rows, capacity, block)


class GraphBlocks(GraphDenoiser):
    """The same with CUDA graphs for whole rows."""

    block = PlainBlocks.block
    context = PlainBlocks.context

    @property
    def method(self) -> Any:
        """The method."""
        return self._method
