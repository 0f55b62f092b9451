"""What a sampler works on: a canvas of fixed and open tokens, a plan, and frames of the text forming."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from unmask.diffusion.denoiser import Denoiser
from unmask.registry import Registry
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.token_sampler import SamplingTask


class Sampler(ABC):
    """Fills a canvas frame by frame; knows diffusion and a callable, never a method or a network."""

    exact: ClassVar[bool] = False  # its texts have the model's own distribution
    revises: ClassVar[bool] = False  # it changes tokens that it has written
    rewrites: ClassVar[bool] = False  # it changes finished text, where it may
    causal: ClassVar[bool] = False  # it suits methods that write from left to right too
    latent: ClassVar[bool] = False  # it suits methods that diffuse vectors, and no others
    windowed: ClassVar[bool] = False  # it writes texts of any length, window by window

    @abstractmethod
    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the canvas filling up; the last has no open place."""

    def unwrapped(self) -> "Sampler":
        """The sampler that fills a window: this one, unless it is a wrapper."""
        return self


SAMPLERS: Registry[Sampler] = Registry("sampler")
