"""Ways to unmask: each turns a canvas and a denoiser into frames of text."""

from unmask.samplers.ancestral import Ancestral
from unmask.samplers.base import SAMPLERS, Canvas, Frame, Plan, Sampler, last_frame
from unmask.samplers.left_to_right import LeftToRight
from unmask.samplers.semi_autoregressive import SemiAutoregressive

__all__ = [
    "SAMPLERS",
    "Ancestral",
    "Canvas",
    "Frame",
    "LeftToRight",
    "Plan",
    "Sampler",
    "SemiAutoregressive",
    "last_frame",
]
