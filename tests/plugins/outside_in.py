"""A sampler with its own option: text grows from both ends towards the middle."""

from collections.abc import Iterator
from dataclasses import dataclass

from unmask.diffusion.denoiser import Denoiser
from unmask.options import check_options, option
from unmask.samplers import SAMPLERS, Canvas, Frame, Sampler, SamplerState, SamplingTask


@SAMPLERS.register("outside_in")
@dataclass(frozen=True)
class OutsideIn(Sampler):
    """Fills the first and the last open positions first, the middle last."""

    per_step: int = option(1, ge=1, le=4096, help="tokens revealed in each step")

    def __post_init__(self) -> None:
        check_options(self)

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        """Open place number i of n has its turn at 2i from the left, or 2(n - 1 - i)
        + 1 from the right.
        """
        state = SamplerState(denoiser, canvas, task)
        uniforms = state.uniforms("token")
        before = canvas.open.cumsum(1) - 1
        behind = canvas.open.sum(1, keepdim=True) - 1 - before
        turn = (2 * before).minimum(2 * behind + 1) // self.per_step
        while state.masked.any():
            places = state.masked & (turn == turn[state.masked].min())
            yield state.reveal(places, state.now, uniforms)
