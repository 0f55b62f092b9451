"""Samplers: each fills a canvas with tokens from a denoiser, frame by frame."""

from unmask.samplers.analytic import Analytic
from unmask.samplers.ancestral import Ancestral, FirstHitting, Spread
from unmask.samplers.blocks import Blocks
from unmask.samplers.confidence import Confidence, Entropy, EntropyBound, Margin, Threshold
from unmask.samplers.core.canvas import Canvas, Frame, last_frame
from unmask.samplers.core.sampler_state import SamplerState, View
from unmask.samplers.core.time_grid import GRIDS, given_times, grid_times
from unmask.samplers.core.token_sampler import STRATEGIES, TAIL, SamplingTask
from unmask.samplers.gibbs import Gibbs
from unmask.samplers.left_to_right import LeftToRight
from unmask.samplers.length_first import LengthFirst
from unmask.samplers.refine import Refine
from unmask.samplers.remasking import PredictorCorrector, Remask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.samplers.semi_autoregressive import SemiAutoregressive

__all__ = [
    "GRIDS",
    "SAMPLERS",
    "STRATEGIES",
    "TAIL",
    "Analytic",
    "Ancestral",
    "Blocks",
    "Canvas",
    "Confidence",
    "Entropy",
    "EntropyBound",
    "FirstHitting",
    "Frame",
    "Gibbs",
    "LeftToRight",
    "LengthFirst",
    "Margin",
    "PredictorCorrector",
    "Refine",
    "Remask",
    "Sampler",
    "SamplerState",
    "SamplingTask",
    "SemiAutoregressive",
    "Spread",
    "Threshold",
    "View",
    "given_times",
    "grid_times",
    "last_frame",
]
