"""Semi-autoregressive sampling of texts longer than the model's rows, in sliding windows."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.diffusion.denoiser import Denoiser
from unmask.errors import UnmaskError
from unmask.options import option
from unmask.randomness import child_seed
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.core.canvas import Canvas, Frame, shown
from unmask.samplers.core.sampler_state import SamplerState
from unmask.samplers.core.token_sampler import Allow, Process, SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.shapes import At, Tokens


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
                yield from self._window(state, span, writing, number)
            if task.eos_id is not None:
                ended = (canvas.open & (state.z == task.eos_id)).any(1) & state.masked.any(1)
                if ended.any():
                    state.fill(state.masked & ended[:, None], task.eos_id)
                    yield state.frame()

    def _window(
        self, state: SamplerState, span: slice, writing: Bool[Tensor, "rows"], number: int
    ) -> Iterator[Frame]:
        """The frames of one window, for the rows that have masks in it."""
        rows = writing.nonzero()[:, 0]
        seeds = [child_seed(state.task.seeds[row], number, "window") for row in rows.tolist()]
        task = state.task.rows(seeds)
        whole = _WholeRows(state.z, rows, span, self.lead)
        if task.allow is not None:
            task = replace(task, allow=whole.allow(task.allow))
        task = replace(task, processors=tuple(map(whole.process, task.processors)))
        text = slice(self.lead, self.lead + span.stop - span.start)
        part = Canvas(self._window_tokens(state.z[rows], span), state.canvas.mask_id)
        calls_before, cpu_rows = state.calls.clone(), rows.cpu()
        for frame in shown(self.inner.generate(state.denoiser, part, task), task):
            state.z[rows, span] = frame.tokens[:, text]
            state.confidence[rows, span] = frame.confidence[:, text]
            state.calls[cpu_rows] = calls_before[cpu_rows] + frame.calls
            state.t[cpu_rows] = frame.t
            settled = None
            if frame.settled is not None:
                settled = torch.ones_like(state.masked)
                settled[rows, span] = frame.settled[:, text]
            yield state.frame(settled)

    def _window_tokens(self, z: Tokens, span: slice) -> Int[Tensor, "rows window"]:
        """The tokens of a window between its special tokens."""
        end = [] if self.end is None else [torch.full_like(z[:, :1], self.end)]
        return torch.cat([z[:, : self.lead], z[:, span], *end], 1)


@dataclass(frozen=True)
class _WholeRows:
    """Passes whole rows to a constraint or logits processor, while a sampler fills a window."""

    z: Tokens
    rows: Int[Tensor, "writing"]
    span: slice
    lead: int

    def allow(self, allow: Allow) -> Allow:
        return lambda z, at: allow(*self._whole(z, at))

    def process(self, process: Process) -> Process:
        return lambda log_probabilities, z, at: process(log_probabilities, *self._whole(z, at))

    def _whole(self, z: Int[Tensor, "rows window"], at: At) -> tuple[Tokens, At]:
        """The whole rows with the window's tokens, and the positions in these rows."""
        rows, columns = at
        whole = self.z[self.rows]
        whole[:, self.span] = z[:, self.lead : self.lead + self.span.stop - self.span.start]
        return whole, (rows, columns - self.lead + self.span.start)
