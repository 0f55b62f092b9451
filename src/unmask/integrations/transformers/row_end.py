"""Rows that continue behind the given tokens, for callers that generate a row in blocks."""

from typing import NamedTuple

import torch
from torch import Tensor

from unmask.errors import UnmaskError


class Rows(NamedTuple):
    """The inputs of a network."""

    tokens: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor | None


def continued(rows: Rows, length: int | None, mask_id: int) -> Rows:
    """The rows, continued by masks up to a length.

    A network learns that a text ends at the end of its row. If a caller gives the row up to the
    block that it generates now, the network would end the text there. Masks stand for any text.

    Args:
        rows: Tokens [rows, length], and a mask and positions of the same shape or None.
        length: Length of the continued rows; None or a smaller one leaves them as they are.
        mask_id: The id of MASK. Masks are attended, also those that the attention mask leaves out.

    Returns:
        The continued rows.
    """
    tokens, attention_mask, position_ids = rows
    more = 0 if length is None else length - tokens.shape[1]
    if more <= 0:
        return rows
    masks = tokens.new_full((len(tokens), more), mask_id)
    tokens = torch.cat([tokens, masks], 1)
    if attention_mask is not None:
        seen = torch.cat([attention_mask.bool(), torch.ones_like(masks, dtype=torch.bool)], 1)
        attention_mask = seen | (tokens == mask_id)
    if position_ids is not None:
        after = position_ids[..., -1:] + torch.arange(1, more + 1, device=position_ids.device)
        position_ids = torch.cat([position_ids, after], -1)
    return Rows(tokens, attention_mask, position_ids)


def checked_length(length: int | None) -> int | None:
    """The field `row_length` of a configuration; an error unless it is a positive number or None."""
    if length is not None and (type(length) is not int or length < 1):
        raise UnmaskError(f"row_length must be 1 or more, or null, not {length!r}")
    return length
