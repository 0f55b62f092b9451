"""The end of a text before its words: for rows that are EOS from there on."""

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
    """Draws where a text ends, then its last token; the sampler `inner` writes the rest.

    Where all behind a text is EOS, p(EOS at i) is the probability that it is over there: one call tells
    the distribution of its length. A sampler that begins where the network is surest begins with those
    EOS instead, and goes on with them into the text. That the last token is no EOS tells the network
    that the text is no shorter, so that the texts of an exact `inner` have the model's own distribution.
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
        """The places from the end on: the end is drawn, or (deterministic) the median."""
        over = torch.zeros(state.z.shape, device=state.z.device)
        for part in state.parts(state.masked):
            view = state.look(part, state.now)
            over[view.rows, view.columns] = view.log_probabilities[:, eos_id].exp().float()
        drawn = (1 - state.uniforms("end")[:, :1]).to(over)
        chance = 0.5 if state.task.strategy == "deterministic" else drawn
        return state.masked & (over.cummax(1).values >= chance)


def _last(places: Places) -> Places:
    """The last place of each row that has one."""
    return places & (places.flip(1).cumsum(1).flip(1) == 1)
