"""A text to be edited: what of it is masked, and written again."""

from functools import cache
from typing import TYPE_CHECKING

import torch

from unmask.api.canvases import Edit, Job, editing, leave_one_out
from unmask.api.guidance import first_tokens
from unmask.api.running import Running
from unmask.api.sampling import Sampling
from unmask.errors import UnmaskError
from unmask.randomness import row_seeds

if TYPE_CHECKING:
    from unmask.api.model import Model


def edited(model: "Model", text: str, edit: Edit, sampling: Sampling) -> Job:
    """The text in `n` ways, each with its places masked."""
    ids = model.tokenizer.encode(text)
    if not ids:
        raise UnmaskError("the text is empty")
    first = first_tokens(model, sampling)
    if edit.remask_uncertain is not None:  # mistakes are told before the network is asked
        everything = [range(len(ids))] * sampling.n
        Running(model, editing(model.tokenizer, first, ids, everything, model.length), sampling)
    confidence = cache(lambda: _confidence(model, first, ids))
    seeds = row_seeds(sampling.seed, sampling.n)
    masked = [edit.places(ids, seed, confidence) for seed in seeds]
    return editing(model.tokenizer, first, ids, masked, model.length)


@torch.inference_mode()
def _confidence(model: "Model", first: list[int], ids: list[int]) -> torch.Tensor:
    """log p of each token given all others of its row, each masked once."""
    mask_id = model.tokenizer.vocabulary.mask_id
    job = editing(model.tokenizer, first, ids, [[]], model.length)
    parts = []
    for row in job.canvases:
        tokens = torch.tensor(row, device=model.device)
        columns = torch.arange(len(first), len(row) - 1, device=model.device)
        alone = torch.tensor(1 - 1 / len(row), dtype=torch.float64)
        t = float(model.method.schedule.inverse(alone[None]).detach())
        denoise = model.method.denoiser()
        parts += [leave_one_out(denoise, tokens, some, mask_id, t) for some in columns.split(64)]
    return torch.cat(parts).cpu()
