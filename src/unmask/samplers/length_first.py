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

    def generate(self, denoise: Denoiser, canvas: Canvas, plan: SamplingTask) -> Iterator[Frame]:
        assert plan.eos_id is not None
        draft = SamplerState(denoise, canvas, plan)
        draft.fill(self._over(draft, plan.eos_id), plan.eos_id)
        yield draft.frame()
        words = replace(plan, banned=tuple(sorted({*plan.banned, plan.eos_id})), eos_id=None)
        draft.plan = words
        if draft.masked.any():
            yield draft.reveal(_last(draft.masked), draft.now, draft.uniforms("token"))
        rest = Canvas(draft.z.clone(), canvas.mask_id)
        for frame in shown(self.inner.generate(denoise, rest, words), words):
            confidence = torch.where(rest.open, frame.confidence, draft.confidence)
            yield replace(frame, calls=draft.calls + frame.calls, confidence=confidence)

    def _over(self, draft: SamplerState, eos_id: int) -> Places:
        """The places from the end on: the end is drawn, or (deterministic) the median."""
        over = torch.zeros(draft.z.shape, device=draft.z.device)
        for part in draft.parts(draft.masked):
            view = draft.look(part, draft.now)
            over[view.rows, view.columns] = view.log_probabilities[:, eos_id].exp().float()
        drawn = (1 - draft.uniforms("end")[:, :1]).to(over)
        chance = 0.5 if draft.plan.strategy == "deterministic" else drawn
        return draft.masked & (over.cummax(1).values >= chance)


def _last(places: Places) -> Places:
    """The last place of each row that has one."""
    return places & (places.flip(1).cumsum(1).flip(1) == 1)
