"""Text longer than the model: a sliding window whose older part is kept as a prefix."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from unmask.errors import UnmaskError
from unmask.randomness import child_seed
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.base import SAMPLERS, Canvas, Denoise, Frame, Plan, Sampler


@SAMPLERS.register("semi_autoregressive")
@dataclass(frozen=True)
class SemiAutoregressive(Sampler):
    """Windows of the model's length for text of any length, each continuing the one before."""

    window: int = 1024
    stride: int = 0  # new tokens a window; 0 is half of it
    inner: Sampler = field(default_factory=Ancestral)

    def __post_init__(self) -> None:
        if self.window < 2:
            raise UnmaskError(f"window must be 2 or more, not {self.window}")
        if not 0 <= self.stride <= self.window:
            raise UnmaskError(f"stride must lie in 0..{self.window}, not {self.stride}")

    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """Fills the first window, then moves on by `stride` with the rest as fixed prefix."""
        z = canvas.tokens.clone()
        length, stride = z.shape[1], self.stride or self.window // 2
        calls = torch.zeros(len(z), dtype=torch.long)
        starts = range(0, max(length - self.window, 0) + stride, stride)
        for number, start in enumerate(starts):
            view = slice(min(start, max(length - self.window, 0)), start + self.window)
            part = Canvas(z[:, view].clone(), canvas.mask_id)
            seeds = [child_seed(seed, number) for seed in plan.seeds]
            done = calls
            for frame in self.inner.generate(denoise, part, plan.rows(seeds)):
                z[:, view] = frame.tokens
                calls = done + frame.calls
                changed = torch.zeros_like(canvas.open)
                changed[:, view] = frame.changed
                yield Frame(z.clone(), changed, calls)
