"""Semi-autoregressive sampling of texts longer than the model's rows, in sliding windows."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.core.canvas import Canvas, Frame
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.core.window import Window, end_texts, window_seeds
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import Tokens


@SAMPLERS.register("semi_autoregressive")
@dataclass(frozen=True)
class SemiAutoregressive(Sampler):
    """Texts of any length in windows of the model's length; each window continues the one before.

    Training rows may begin and end with special tokens. A window then begins with the first `lead`
    tokens of its row and ends with the id `end`. A row ends at EOS.
    """

    causal = windowed = True
    window: int = option(1024, help="tokens of a window, with its special tokens")
    stride: int = option(0, help="new tokens of a window; 0 is half of the window")
    inner: Sampler = field(default_factory=Ancestral)
    lead: int = 0
    end: int | None = None

    def __post_init__(self) -> None:
        if self.window < 2 or self.body < 1:
            raise UnmaskError(
                f"window {self.window} is too short for special tokens and text: choose a longer one"
            )
        if not 0 <= self.stride <= self.body:
            raise UnmaskError(f"stride must lie in 0..{self.body}, not {self.stride}")

    @property
    def body(self) -> int:
        """Number of tokens of a window without its special tokens."""
        return self.window - self.lead - (self.end is not None)

    def unwrapped(self) -> Sampler:
        return self.inner.unwrapped()

    @property
    def one_path(self) -> bool:
        return self.inner.one_path

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Frames of the text. The window moves by `stride` when it is full;
        its older tokens stay fixed.
        """
        state = SamplerState(denoiser, canvas, task)
        length = canvas.tokens.shape[1]
        stride = self.stride or max(self.body // 2, 1)
        last = max(length - self.body, self.lead)
        starts = [*range(self.lead, last, stride), last]
        for number, start in enumerate(starts):
            span = slice(start, min(start + self.body, length))
            writing = state.masked[:, span].any(1)
            if writing.any():
                rows = writing.nonzero()[:, 0]
                part = self._window_tokens(state.z[rows], span)
                seeds = window_seeds(state, rows, number, "window")
                window = Window(rows, span, self.lead)
                yield from window.fill(state, self.inner, state.denoiser, part, seeds)
            if end_texts(state):
                yield state.frame()

    def _window_tokens(self, z: Tokens, span: slice) -> Int[Tensor, "rows window"]:
        """The tokens of a window between its special tokens."""
        end = [] if self.end is None else [torch.full_like(z[:, :1], self.end)]
        return torch.cat([z[:, : self.lead], z[:, span], *end], 1)
