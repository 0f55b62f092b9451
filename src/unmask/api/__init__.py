"""What a user calls: train, load, a model's generate, fill, edit and perplexity, and compare."""

from unmask.api.comparing import compare
from unmask.api.judging import load_judge
from unmask.api.loading import load
from unmask.api.model import Model
from unmask.api.rows import Row
from unmask.api.running import Result
from unmask.api.runs import train
from unmask.api.sampling import Sampling

__all__ = ["Model", "Result", "Row", "Sampling", "compare", "load", "load_judge", "train"]
