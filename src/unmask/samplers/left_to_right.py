"""One token at a time, in reading order."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from unmask.samplers.base import SAMPLERS, Canvas, Denoise, Frame, Places, Plan, Sampler
from unmask.samplers.draft import Draft


@SAMPLERS.register("left_to_right")
@dataclass(frozen=True)
class LeftToRight(Sampler):
    """One token at a time in reading order: the only order of an autoregressive model (KV cache)."""

    exact = True

    def generate(self, denoise: Denoise, canvas: Canvas, plan: Plan) -> Iterator[Frame]:
        """A row that has drawn EOS is done: what would follow is EOS too, and costs nothing."""
        draft = Draft(denoise, canvas, plan)
        uniforms = draft.uniforms("token")
        for column in canvas.open.any(0).nonzero()[:, 0].tolist():
            places = only_column(draft.masked, column)
            if not places.any():
                continue
            draft.write(draft.look(places, draft.now, everyone=True), uniforms)
            if plan.eos_id is not None:
                ended = (places & (draft.z == plan.eos_id)).any(1)
                draft.fill(draft.masked & ended[:, None], plan.eos_id)
            yield draft.frame()


def only_column(places: Places, column: int) -> Places:
    """The places of one column."""
    here = torch.zeros_like(places)
    here[:, column] = places[:, column]
    return here
