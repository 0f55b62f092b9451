"""Rows cut short at random, so that a model of long rows knows short texts too."""

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from unmask.data.loader import Loader
from unmask.randomness import RowStream

SHORTEST = 3  # BOS, a token and EOS


class ShortRows:
    """A loader of which a share of the rows ends, with EOS, at a uniformly drawn length."""

    def __init__(self, loader: Loader, share: float, eos_id: int) -> None:
        self.loader, self.share, self.eos_id = loader, share, eos_id

    def batch(
        self, step: int, part: range
    ) -> tuple[Int64[Tensor, "part length"], Bool[Tensor, "part length"]]:
        """The rows as a step sees them: what is cut is a function of (seed, step, row)."""
        x, valid = self.loader.batch(step, part)
        ends = self._ends(step, part)
        rows = (ends < valid.sum(1)).nonzero()[:, 0]
        x[rows, ends[rows] - 1] = self.eos_id
        return x, valid & (torch.arange(x.shape[1]) < ends[:, None])

    def given(self, step: int, part: range) -> Bool[Tensor, "part length"] | None:
        """Rows of text are predicted whole."""
        return self.loader.given(step, part)

    def count(self, step: int, part: range) -> int:
        """How many tokens of those rows the mean loss is per."""
        whole = self.loader.rows.counted(self.loader.indices(step, part))
        return int(torch.minimum(whole, self._ends(step, part)).sum())

    def _ends(self, step: int, part: range) -> Int64[Tensor, "part"]:
        """Where rows end; the row length where nothing is cut."""
        length = self.loader.rows.length
        u = RowStream(self.loader.seed, step, part, self.loader.size).uniform("short rows", 2)
        ends = SHORTEST + (u[:, 1] * (length - SHORTEST)).long()
        return torch.where(u[:, 0] < self.share, ends, length)
