"""Masked diffusion language models: train, measure, sample, infill."""

from typing import TYPE_CHECKING

from unmask.errors import UnmaskError
from unmask.hub.arrival import meet as _meet_transformers
from unmask.imports import lazy_exports as _lazy_exports
from unmask.vocabulary import Vocabulary

if TYPE_CHECKING:
    from unmask.api import Model, Result, Sampling, compare, load, train
    from unmask.config import RunConfig
    from unmask.likelihood.bound import Bound
    from unmask.samplers.core.canvas import Frame

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "Frame",
    "Model",
    "Result",
    "RunConfig",
    "Sampling",
    "UnmaskError",
    "Vocabulary",
    "__version__",
    "compare",
    "load",
    "train",
]

_HOMES = {
    "Bound": "unmask.likelihood.bound",
    "Frame": "unmask.samplers.core.canvas",
    "Model": "unmask.api",
    "Result": "unmask.api",
    "RunConfig": "unmask.config",
    "Sampling": "unmask.api",
    "compare": "unmask.api",
    "load": "unmask.api",
    "train": "unmask.api",
}
__getattr__, __dir__ = _lazy_exports(__name__, _HOMES)

_meet_transformers()
