"""Custom sampler: one class that writes every second token first, then the others.

python examples/custom_sampler.py [MODEL]
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import unmask
from unmask.diffusion.denoiser import Denoiser
from unmask.samplers import SAMPLERS, Canvas, Frame, Sampler, SamplerState, SamplingTask


@SAMPLERS.register("every_second")
@dataclass(frozen=True)
class EverySecond(Sampler):
    """Writes open positions of even number in one step, then the others."""

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        state = SamplerState(denoiser, canvas, task)
        uniforms = state.uniforms("token")
        number = canvas.open.cumsum(1) - 1  # of each open position, [rows, length]
        for first in (0, 1):
            yield state.reveal(state.masked & (number % 2 == first), state.now, uniforms)


model = unmask.load(sys.argv[1] if len(sys.argv) > 1 else "stories")
for name in ("every_second", "ancestral"):
    result = model.generate("Once upon a time", sampler=name, length=32, seed=0)[0]
    print(f"{name}, {result.calls} calls: {result}")
