"""Interface of the samplers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from unmask.diffusion.denoiser import Denoiser
from unmask.registry import Registry
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.token_sampler import SamplingTask


class Sampler(ABC):
    """Fills a canvas frame by frame with a denoiser; independent of methods and networks."""

    exact: ClassVar[bool] = False  # True if its texts have the model's own distribution
    revises: ClassVar[bool] = False  # True if it changes tokens that it has written
    rewrites: ClassVar[bool] = False  # True if it changes revisable tokens of the canvas
    causal: ClassVar[bool] = False  # True if it suits methods that generate from left to right
    states: ClassVar[str] = "masks"  # it suits the methods with these states, and no others
    token_schedule: ClassVar[bool] = False  # True if it needs a noise schedule of each token
    blocks: ClassVar[bool] = False  # True if it needs a model of block diffusion
    windowed: ClassVar[bool] = False  # True if it generates texts of any length, in windows

    @abstractmethod
    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Fills a canvas.

        Args:
            denoiser: log x_theta at chosen positions.
            canvas: Fixed tokens and masks.
            task: Seeds and settings of the draws.

        Returns:
            Frames of the text after each step. The last frame has no masks.
        """

    @property
    def one_path(self) -> bool:
        """True if the tokens that are written decide where the next ones are written, and no chance."""
        return False

    @property
    def trained_for(self) -> str:
        """Digest of the model that the sampler was trained for; empty for any model."""
        return ""

    def unwrapped(self) -> "Sampler":
        """The sampler that fills a window.

        Returns:
            The inner sampler of a wrapper, or this sampler.
        """
        return self


SAMPLERS: Registry[Sampler] = Registry("sampler")
