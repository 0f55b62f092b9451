"""Length-first sampling: draws the end of a text before its tokens, for rows padded with EOS."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from unmask.diffusion.denoiser import Denoiser
from unmask.samplers.core.canvas import Canvas, Frame, shown
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import Sampler
from unmask.shapes import Places


@dataclass(frozen=True)
class LengthFirst(Sampler):
    """Draws the end of a text, then its last token; the sampler `inner` writes the rest.

    If rows hold EOS behind their text, p(EOS at i) is the probability that the text ends before
    i. So one call gives the distribution of the length. A confidence sampler alone would write
    these EOS first, and then more of them inside the text. The last token, which is not EOS,
    fixes the length for the network. So with an exact `inner`, texts have the model's own
    distribution.
    """

    inner: Sampler

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        assert task.eos_id is not None
        state = SamplerState(denoiser, canvas, task)
        state.fill(self._over(state, task.eos_id), task.eos_id)
        yield state.frame()
        words = replace(task, banned=tuple(sorted({*task.banned, task.eos_id})), eos_id=None)
        state.task = words
        if state.masked.any():
            yield state.reveal(_last(state.masked), state.now, state.uniforms("token"))
        rest = Canvas(state.z.clone(), canvas.mask_id)
        for frame in shown(self.inner.generate(denoiser, rest, words), words):
            confidence = torch.where(rest.open, frame.confidence, state.confidence)
            yield replace(frame, calls=state.calls + frame.calls, confidence=confidence)

    def _over(self, state: SamplerState, eos_id: int) -> Places:
        """True from the end of a text on. The end is drawn; the strategy deterministic takes its median."""
        over = torch.zeros(state.z.shape, device=state.z.device)
        for part in state.parts(state.masked):
            view = state.look(part, state.now)
            over[view.rows, view.columns] = view.log_probabilities[:, eos_id].exp().float()
        drawn = (1 - state.uniforms("end")[:, :1]).to(over)
        chance = 0.5 if state.task.strategy == "deterministic" else drawn
        return state.masked & (over.cummax(1).values >= chance)


def _last(places: Places) -> Places:
    """True at the last of the positions of each row."""
    return places & (places.flip(1).cumsum(1).flip(1) == 1)
