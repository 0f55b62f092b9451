"""Length-first sampling: draws the end of a text before its tokens, for rows padded with EOS."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from unmask.diffusion.categorical import draw
from unmask.diffusion.denoiser import Denoiser, LengthDenoiser
from unmask.samplers.core.canvas import Canvas, Frame, shown
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import Sampler
from unmask.shapes import Places, last_of


@dataclass(frozen=True)
class LengthFirst(Sampler):
    """Draws the end of a text, then its last token; the sampler `inner` writes the rest.

    If rows hold EOS behind their text, p(EOS at i) is the probability that the text ends before
    i. So one call gives the distribution of the length. A confidence sampler alone would write
    these EOS first, and then more of them inside the text. A last token other than EOS shows the
    network where the text ends. So with an exact `inner`, texts have the model's own distribution.
    """

    inner: Sampler

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        assert task.eos_id is not None
        state = SamplerState(denoiser, canvas, task)
        state.fill(self._after_end(state, task.eos_id), task.eos_id)
        yield state.frame()
        text_task = replace(task, banned=tuple(sorted({*task.banned, task.eos_id})), eos_id=None)
        state.task = text_task
        if state.masked.any():
            yield state.reveal(last_of(state.masked), state.now, state.uniforms("token"))
        rest = Canvas(state.z.clone(), canvas.mask_id)
        for frame in shown(self.inner.generate(denoiser, rest, text_task), text_task):
            confidence = torch.where(rest.open, frame.confidence, state.confidence)
            yield replace(frame, calls=state.calls + frame.calls, confidence=confidence)

    def _after_end(self, state: SamplerState, eos_id: int) -> Places:
        """True from the end of a text on; the end is drawn,
        or its median if the strategy is deterministic.
        """
        p_ended = torch.zeros(state.z.shape, device=state.z.device)
        for part in state.parts(state.masked):
            view = state.look(part, state.now)
            p_ended[view.rows, view.columns] = view.log_probabilities[:, eos_id].exp().float()
        drawn = (1 - state.uniforms("end")[:, :1]).to(p_ended)
        quantile = 0.5 if state.task.strategy == "deterministic" else drawn
        return state.masked & (p_ended.cummax(1).values >= quantile)


@dataclass(frozen=True)
class PredictedLength(Sampler):
    """Takes the length of a target from the length head; the sampler `inner` writes the tokens.

    The length is drawn, or the likeliest if the strategy is deterministic.
    """

    inner: Sampler

    def generate(self, denoiser: Denoiser, canvas: Canvas, task: SamplingTask) -> Iterator[Frame]:
        assert isinstance(denoiser, LengthDenoiser) and task.eos_id is not None
        state, is_open = SamplerState(denoiser, canvas, task), canvas.open
        log_p = denoiser.log_lengths(canvas.tokens)
        place = torch.arange(log_p.shape[1], device=log_p.device)
        fits = place <= is_open.sum(1, keepdim=True)
        log_p = log_p.masked_fill(~fits, -torch.inf).log_softmax(-1)
        # number of tokens before EOS
        greedy = task.strategy == "deterministic"
        size = log_p.argmax(1) if greedy else draw(log_p, state.uniforms("end")[:, 0].contiguous())
        state.fill(is_open & (is_open.cumsum(1) > size[:, None]), task.eos_id)
        yield state.frame()
        text_task = replace(task, banned=tuple(sorted({*task.banned, task.eos_id})), eos_id=None)
        rest, shorter = Canvas(state.z.clone(), canvas.mask_id), denoiser.up_to(int(size.max()) + 1)
        yield from shown(self.inner.generate(shorter, rest, text_task), text_task)
