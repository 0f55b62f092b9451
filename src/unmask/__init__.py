"""Masked diffusion language models: train, measure, sample, infill."""

import os as _os
from typing import TYPE_CHECKING

from unmask.errors import UnmaskError
from unmask.imports import lazy_exports as _lazy_exports
from unmask.version import __version__
from unmask.vocabulary import Vocabulary

if TYPE_CHECKING:
    from unmask.config.run_config import RunConfig
    from unmask.evaluation.suites.sample_quality import compare
    from unmask.evaluation.suites.suite import evaluate
    from unmask.generation.generator import Result
    from unmask.generation.sampling_params import SamplingParams
    from unmask.likelihood.bound import Bound
    from unmask.model import Model, load
    from unmask.runs.train import train
    from unmask.samplers.core.canvas import Frame

# for torch, if it is loaded later: its threads busy-wait by default, so one busy core beside them slows all of them
_os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__all__ = [
    "Bound",
    "Frame",
    "Model",
    "Result",
    "RunConfig",
    "SamplingParams",
    "UnmaskError",
    "Vocabulary",
    "__version__",
    "compare",
    "evaluate",
    "load",
    "train",
]

_HOMES = {
    "Bound": "unmask.likelihood.bound",
    "Frame": "unmask.samplers.core.canvas",
    "Model": "unmask.model",
    "Result": "unmask.generation.generator",
    "RunConfig": "unmask.config.run_config",
    "SamplingParams": "unmask.generation.sampling_params",
    "compare": "unmask.evaluation.suites.sample_quality",
    "evaluate": "unmask.evaluation.suites.suite",
    "load": "unmask.model",
    "train": "unmask.runs.train",
}
__getattr__, __dir__ = _lazy_exports(__name__, _HOMES)
