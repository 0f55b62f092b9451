"""Some rows of a set of rows, the first ones or a random sample, for a shorter validation."""

import hashlib

import numpy as np
import torch

from unmask.data.rows.token_rows import Rows


class FirstRows:
    """The first `count` rows, or all if it is 0. Bytes and characters are estimated from tokens.

    With a seed the rows are a random sample in the order of the text.
    """

    def __init__(self, rows: Rows, count: int, seed: int | None = None) -> None:
        self._rows = rows
        self._count = min(count or len(rows), len(rows))
        self._places = np.arange(self._count)
        if seed is not None and self._count < len(rows):
            drawn = np.random.default_rng(seed).choice(len(rows), self._count, replace=False)
            self._places = np.sort(drawn)
        self.tokens = int(rows.counted(self._places).sum())
        self.text_estimated = self._count < len(rows)
        self.left_out = rows.left_out
        share = self.tokens / rows.tokens  # the estimate: text in proportion to tokens
        self.bytes = round(rows.bytes * share)
        self.characters = round(rows.characters * share)

    def __len__(self) -> int:
        return self._count

    @property
    def amount(self) -> str:
        """The number of rows as text, such as 32 of 54 rows."""
        total = f"{len(self._rows):,} rows"
        return total if self._count == len(self._rows) else f"{self._count:,} of {total}"

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        return self._rows[self._places[rows]]

    def given(self, rows: range) -> torch.Tensor | None:
        return self._rows.given(self._places[rows])

    def counted(self, rows: range) -> torch.Tensor:
        return self._rows.counted(self._places[rows])

    def fingerprint(self) -> str:
        """A hash of everything that a bound depends on: tokens, masks, counts and bytes."""
        found = hashlib.blake2b(
            repr((len(self), self.bytes, self.characters)).encode(), digest_size=16
        )
        for start in range(0, len(self), 1024):
            part = range(start, min(start + 1024, len(self)))
            x, valid = self[part]
            for values in (x, valid, self.given(part), self.counted(part)):
                if values is not None:
                    found.update(values.contiguous().numpy().tobytes())
        return found.hexdigest()
