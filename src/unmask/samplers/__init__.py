"""Ways to unmask: each turns a canvas and a denoiser into frames of text."""

from unmask.samplers.analytic import Analytic
from unmask.samplers.ancestral import Ancestral, FirstHitting
from unmask.samplers.base import (
    SAMPLERS,
    STRATEGIES,
    TAIL,
    Canvas,
    Denoise,
    Frame,
    Plan,
    Sampler,
    last_frame,
)
from unmask.samplers.draft import Draft, View
from unmask.samplers.end_first import EndFirst
from unmask.samplers.gibbs import Gibbs
from unmask.samplers.grid import GRIDS, given_times, grid_times
from unmask.samplers.guidance import ClassifierFree, ClassifierGuided
from unmask.samplers.left_to_right import LeftToRight
from unmask.samplers.order import Confidence, Entropy, EntropyBound, Margin, Threshold
from unmask.samplers.revising import PredictorCorrector, Remask
from unmask.samplers.semi_autoregressive import SemiAutoregressive

__all__ = [
    "GRIDS",
    "SAMPLERS",
    "STRATEGIES",
    "TAIL",
    "Analytic",
    "Ancestral",
    "Canvas",
    "ClassifierFree",
    "ClassifierGuided",
    "Confidence",
    "Denoise",
    "Draft",
    "EndFirst",
    "Entropy",
    "EntropyBound",
    "FirstHitting",
    "Frame",
    "Gibbs",
    "LeftToRight",
    "Margin",
    "Plan",
    "PredictorCorrector",
    "Remask",
    "Sampler",
    "SemiAutoregressive",
    "Threshold",
    "View",
    "given_times",
    "grid_times",
    "last_frame",
]
