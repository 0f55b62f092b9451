"""Rows of ids."""

import torch

import unmask


def some_tokens(model: unmask.Model, rows: int = 3, length: int = 9) -> torch.Tensor:
    size = model.tokenizer.vocabulary.size
    return torch.randint(size, (rows, length), generator=torch.Generator().manual_seed(0))
