"""A model whose network calls go through the batcher."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.backbones.layers.attention import Call
from unmask.backbones.layers.state import State
from unmask.errors import UnmaskError
from unmask.methods.masked_diffusion import MaskedDiffusion
from unmask.methods.method import Method
from unmask.model import Model
from unmask.serve.execution.batcher import Batcher, BatchItem, Ticket, most_tokens
from unmask.serve.execution.row_parts import joined, row_parts
from unmask.shapes import At, LogProbabilities, Tokens


def batched_model(model: Model, batcher: Batcher, ticket: Ticket) -> Model:
    """A copy of the model for one job; samplers, constraints and likelihoods run in its thread.

    The backbone's `features`, the network call of every method, goes through the batcher.
    On a CPU `log_x_theta` does too: alone, a head reads its whole matrix for one or two tokens.

    Args:
        model: the loaded model.
        batcher: computes network calls of several jobs in one pass.
        ticket: the job's ticket.
    """
    method = copy.copy(model.method)
    backbone = copy.copy(method.backbone)
    vars(backbone)["features"] = partial(_features, model.method, batcher, ticket)
    vars(method)["_modules"] = {**vars(method)["_modules"], "backbone": backbone}
    if model.method.capabilities.shared_head and model.device.type == "cpu":
        vars(method)["log_x_theta"] = partial(
            _log_x_theta, cast(MaskedDiffusion, model.method), batcher, ticket
        )
    # CUDA graphs of one request would bypass the batcher
    method.serving = replace(method.serving, fixed=False)
    return replace(model, method=method)


def _features(
    method: Method,
    batcher: Batcher,
    ticket: Ticket,
    tokens: Tensor,
    condition: Tensor | None = None,
    *,
    positions: Tensor | None = None,
    state: State | None = None,
    **others: Any,
) -> Tensor:
    """The backbone's features, batched with other jobs if the call has no further arguments."""
    _check_no_gradients()
    plain = tokens.ndim == 2 and all(value is None for value in others.values())
    call = Call(tokens, condition, positions, state) if plain else None
    others |= {"positions": positions, "state": state}
    alone = partial(method.backbone.features, tokens, condition, **others)
    if call is None:
        return batcher.result(BatchItem(ticket, method, tokens.numel(), None, alone))
    return _in_parts(method, batcher, ticket, call, alone)


def _log_x_theta(
    method: MaskedDiffusion,
    batcher: Batcher,
    ticket: Ticket,
    z_t: Tokens,
    t: Float[Tensor, "rows"],
    at: At,
) -> LogProbabilities:
    """log x_theta, batched with other jobs; network and head compute in the same pass."""
    _check_no_gradients()
    rows, columns = at
    flat = rows * z_t.shape[1] + columns
    call = Call(z_t, method.condition(t, z_t.device), at=flat, rule=method.rule)
    return _in_parts(method, batcher, ticket, call, partial(method.log_x_theta, z_t, t, at))


def _in_parts(
    method: Method, batcher: Batcher, ticket: Ticket, call: Call, alone: Callable[[], Tensor]
) -> Tensor:
    """The results of a call, one pass after the other, so that other jobs have passes in between."""
    parts = list(row_parts(call, most_tokens(method)))
    results = [
        batcher.result(BatchItem(ticket, method, part.call.inputs.numel(), part.call, alone))
        for part in parts
    ]
    return joined(parts, results)


def _check_no_gradients() -> None:
    if torch.is_grad_enabled():
        raise UnmaskError("batched requests have no gradients: generate without a guide")
