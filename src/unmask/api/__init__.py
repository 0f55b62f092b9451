"""What a user calls: train, load, and a model's generate, fill and perplexity."""

from unmask.api.model import Model, Result
from unmask.api.runs import load, train

__all__ = ["Model", "Result", "load", "train"]
