"""What a user calls: train, load, a model's generate, fill, edit and perplexity, and compare."""

from typing import TYPE_CHECKING

from unmask.imports import lazy_exports

if TYPE_CHECKING:
    from unmask.api.comparing import compare
    from unmask.api.judging import load_judge
    from unmask.api.loading import load
    from unmask.api.model import Model
    from unmask.api.rows import Row
    from unmask.api.running import Result
    from unmask.api.runs import train
    from unmask.api.sampling import Sampling

__all__ = ["Model", "Result", "Row", "Sampling", "compare", "load", "load_judge", "train"]

# whoever loads a model need not wait for what trains and compares them
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Model": "unmask.api.model",
        "Result": "unmask.api.running",
        "Row": "unmask.api.rows",
        "Sampling": "unmask.api.sampling",
        "compare": "unmask.api.comparing",
        "load": "unmask.api.loading",
        "load_judge": "unmask.api.judging",
        "train": "unmask.api.runs",
    },
)
