"""What a user calls: train, load, and a model's generate, fill and perplexity."""

from unmask.api.model import Model
from unmask.api.running import Result
from unmask.api.runs import load, train
from unmask.api.sampling import Sampling

__all__ = ["Model", "Result", "Sampling", "load", "train"]
