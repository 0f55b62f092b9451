"""What a sampler works on: a canvas of fixed and open tokens, a plan, and frames of the text forming."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from unmask.diffusion.denoiser import Denoiser
from unmask.registry import Registry
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.token_sampler import Plan


class Sampler(ABC):
    """Fills a canvas frame by frame; knows diffusion and a callable, never a method or a network."""

    exact: ClassVar[bool] = False  # does it reproduce the model's own distribution?
    revises: ClassVar[bool] = False  # does it change what it has written?
    rewrites: ClassVar[bool] = False  # does it change finished text, where it may?

    @abstractmethod
    def generate(self, denoise: Denoiser, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """Frames of the canvas filling up; the last has no open place."""


SAMPLERS: Registry[Sampler] = Registry("sampler")
