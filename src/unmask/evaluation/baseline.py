"""What a model must beat: token frequencies alone."""

import math

import torch

from unmask.evaluation.likelihood import TokenRows


def unigram_nats(train: TokenRows, valid: TokenRows, vocabulary: int) -> float:
    """Nats per token of validation text under the training text's token frequencies (add-one)."""
    counts = _counts(train, vocabulary) + 1
    log_frequencies = (counts / counts.sum()).log()
    seen = _counts(valid, vocabulary)
    return -math.fsum((seen * log_frequencies).tolist()) / float(seen.sum())


def _counts(rows: TokenRows, vocabulary: int, block: int = 4096) -> torch.Tensor:
    counts = torch.zeros(vocabulary, dtype=torch.float64)
    for start in range(0, len(rows), block):
        x, valid = rows[range(start, min(start + block, len(rows)))]
        counts += torch.bincount(x[valid], minlength=vocabulary)
    return counts
