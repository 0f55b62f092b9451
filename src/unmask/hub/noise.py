"""Which noise a loss inside transformers sees: a function of (seed, step, row), as in our trainer."""

import torch

from unmask.randomness import RowStream


class NoiseStream:
    """Counts the losses that were asked for; `seed` and `step` may be set, to see the same noise again."""

    def __init__(self, seed: int) -> None:
        self.seed, self.step = seed, 0
        self._measured = 0

    def begin_evaluation(self) -> None:
        """Evaluations see the same noise each time, and leave that of training alone."""
        self._measured = 0

    def draw(self, rows: int, training: bool) -> RowStream:
        """The randomness of the next loss: this process's rows of the batch that all processes share."""
        rank, world = 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        step = self.step if training else self._measured
        if training:
            self.step += 1
        else:
            self._measured += 1
        return RowStream(self.seed, step, range(rank * rows, (rank + 1) * rows), world * rows)
