"""The model's predictions at masked places."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.model import Model
from unmask.play.page_requests import Guessing
from unmask.play.row_text import row_of, special_ids


def guessing(model: Model, question: Guessing) -> Iterator[dict[str, Any]]:
    """The likeliest tokens of each place, and the probability of its present token."""
    if model.conditional:
        raise UnmaskError("a model of pairs predicts no single words: choose another model")
    places = sorted(set(question.places))
    if not 0 <= places[0] <= places[-1] < len(question.tokens):
        raise UnmaskError(
            f"places must lie in a text of {len(question.tokens)} tokens, "
            f"but are {places[0]} to {places[-1]}"
        )
    if question.t is not None and not 0 <= question.t <= 1:
        raise UnmaskError(f"t must lie in [0, 1], not {question.t}")
    row = row_of(model, question.tokens)
    probabilities = _ask(model, row, places, question.t).exp()
    probabilities[:, sorted(special_ids(model))] = 0  # special tokens never occur in a text
    best = probabilities.topk(min(question.k, probabilities.shape[1]))
    guesses = []
    for index, place in enumerate(places):
        here = question.tokens[place]
        pairs = zip(best.indices[index].tolist(), best.values[index].tolist(), strict=True)
        guesses.append(
            {
                "place": place,
                "p": None if here is None else float(probabilities[index, here]),
                "likely": [
                    {"id": token, "text": _text(model, row, place, token), "p": p}
                    for token, p in pairs
                ],
            }
        )
    yield {"guesses": guesses}


@torch.inference_mode()
def _ask(
    model: Model, row: Sequence[int], places: list[int], t: float | None
) -> Float[Tensor, "places vocabulary"]:
    """log x_theta at the places, all of them masked."""
    v = model.tokenizer.vocabulary
    lead = [] if v.bos_id is None else [v.bos_id]
    tail = [] if v.eos_id is None else [v.eos_id]
    z_t = torch.tensor([[*lead, *row, *tail]], device=model.device)
    if z_t.shape[1] > model.length:
        raise UnmaskError(
            f"the text has {z_t.shape[1]} tokens, but the model reads {model.length}: shorten it"
        )
    columns = torch.tensor(places, device=model.device) + len(lead)
    z_t[0, columns] = v.mask_id
    if t is None:
        alpha_t = 1 - (z_t == v.mask_id).double().mean().cpu()
        t = float(model.method.schedule.inverse(alpha_t[None]).detach())
    times = torch.tensor([t], dtype=torch.float64)
    # a causal model computes one place at a time
    together = len(places) if model.method.capabilities.infill else 1
    denoiser = model.method.denoiser()
    parts = [denoiser(z_t, times, (torch.zeros_like(at), at)) for at in columns.split(together)]
    return torch.cat(parts).double().cpu()


def _text(model: Model, row: Sequence[int], place: int, token: int) -> str:
    """The text that a token would add after the token before it."""
    decode = model.tokenizer.decode
    before = [row[place - 1]] if place else []
    return decode([*before, token]).removeprefix(decode(before))
