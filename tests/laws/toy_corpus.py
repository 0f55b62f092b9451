"""A toy language whose every sequence is in the corpus as often as it is likely:
its mean is the truth.

So the entropy is what the exact denoiser costs on this corpus, not only on average over corpora.
"""

import torch
from kit import Language

ROWS = 64


def listed(size: int = 3, length: int = 3, rows: int = ROWS) -> tuple[Language, torch.Tensor]:
    """A language of probabilities n / rows, and the rows, in random order."""
    drawn = Language.random(size, length).table
    counts = 1 + (drawn * (rows - len(drawn))).floor().long()
    counts[counts.argmax()] += rows - counts.sum()
    language = Language(size, length, counts.double() / rows)
    x = language.sequences.repeat_interleave(counts, 0)
    return language, x[torch.randperm(rows, generator=torch.Generator().manual_seed(1))]


class Corpus:
    """Rows of tokens; `lengths` are the valid ones of each, all unless given."""

    def __init__(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> None:
        self.x = x
        whole = torch.full((len(x),), x.shape[1])
        self.valid = torch.arange(x.shape[1]) < (whole if lengths is None else lengths)[:, None]
        self.bytes = self.characters = int(self.valid.sum())

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        part = slice(rows.start, rows.stop)
        return self.x[part], self.valid[part]
