"""The model's predictions at masked positions, and the positions that speak against a label."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.extensions.play.page_requests import Guessing, Styling
from unmask.extensions.play.row_text import row_of, special_ids
from unmask.generation.edit import style_places
from unmask.generation.sampling_params import SamplingParams
from unmask.model import Model


def predict(model: Model, request: Guessing) -> Iterator[dict[str, Any]]:
    """The likeliest tokens at each position, and the probability of its current token."""
    if model.conditional:
        raise UnmaskError("a model of pairs cannot predict single tokens: choose another model")
    positions = sorted(set(request.places))
    if not 0 <= positions[0] <= positions[-1] < len(request.tokens):
        raise UnmaskError(
            f"places must lie in a text of {len(request.tokens)} tokens, "
            f"but are {positions[0]} to {positions[-1]}"
        )
    if request.t is not None and not 0 <= request.t <= 1:
        raise UnmaskError(f"t must lie in [0, 1], not {request.t}")
    row = row_of(model, request.tokens)
    probabilities = _log_x_theta(model, row, positions, request.t).exp()
    probabilities[:, sorted(special_ids(model))] = 0  # special tokens never occur in a text
    best = probabilities.topk(min(request.k, probabilities.shape[1]))
    guesses = []
    for index, position in enumerate(positions):
        current = request.tokens[position]
        pairs = zip(best.indices[index].tolist(), best.values[index].tolist(), strict=True)
        guesses.append(
            {
                "place": position,
                "p": None if current is None else float(probabilities[index, current]),
                "likely": [
                    {"id": token, "text": _text(model, row, position, token), "p": p}
                    for token, p in pairs
                ],
            }
        )
    yield {"guesses": guesses}


def against_label(model: Model, request: Styling) -> Iterator[dict[str, Any]]:
    """The positions of a row that speak most against a class label,
    without those that are masked.
    """
    params = SamplingParams(label=request.label or None)
    places = style_places(model, row_of(model, request.tokens), params)
    yield {"places": [each for each in places if request.tokens[each] is not None]}


@torch.inference_mode()
def _log_x_theta(
    model: Model, row: Sequence[int], positions: list[int], t: float | None
) -> Float[Tensor, "positions vocabulary"]:
    """log x_theta at the positions, all of which are masked first."""
    v = model.tokenizer.vocabulary
    lead = [] if v.bos_id is None else [v.bos_id]
    tail = [] if v.eos_id is None else [v.eos_id]
    z_t = torch.tensor([[*lead, *row, *tail]], device=model.device)
    if z_t.shape[1] > model.length:
        raise UnmaskError(
            f"the text has {z_t.shape[1]} tokens, but the model reads {model.length}: shorten it"
        )
    columns = torch.tensor(positions, device=model.device) + len(lead)
    z_t[0, columns] = v.mask_id
    if t is None:
        alpha_t = 1 - (z_t == v.mask_id).double().mean().cpu()
        t = float(model.method.schedule.inverse(alpha_t[None]).detach())
    times = torch.tensor([t], dtype=torch.float64)
    # a causal model computes one position per call
    per_call = len(positions) if model.method.capabilities.infill else 1
    denoiser = model.method.denoiser()
    parts = [denoiser(z_t, times, (torch.zeros_like(at), at)) for at in columns.split(per_call)]
    return torch.cat(parts).double().cpu()


def _text(model: Model, row: Sequence[int], position: int, token: int) -> str:
    """The text that a token adds to that of the token before it."""
    decode = model.tokenizer.decode
    before = [row[position - 1]] if position else []
    return decode([*before, token]).removeprefix(decode(before))
