"""Embeddings of texts: one vector for each text, by any network."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from unmask.bundle import Bundle
from unmask.data.rows.sentence_rows import SentenceRows, sentence_rows
from unmask.errors import unknown
from unmask.methods.sequence_classifier import POOLINGS, pooled


def embedding_rows(bundle: Bundle, texts: Sequence[str], length: int | None = None) -> SentenceRows:
    """Rows BOS text EOS of texts; a text that is longer than the network's rows is cut.

    Args:
        bundle: The model.
        texts: The texts.
        length: Most tokens of a row; by default the length of the model's rows.

    Returns:
        The rows.
    """
    wanted = bundle.length if length is None else length
    longest = min(wanted, bundle.method.backbone.longest or bundle.length)
    return sentence_rows(texts, bundle.tokenizer, longest)


@torch.inference_mode()
def embed_rows(
    bundle: Bundle,
    rows: SentenceRows,
    pooling: str = "mean",
    batch: int = 32,
    normalize: bool = False,
) -> NDArray[np.float32]:
    """A vector for each row.

    Args:
        bundle: The model.
        rows: The rows.
        pooling: `mean` over tokens, `cls` for the first token, `last` for the last one.
        batch: Rows of a forward pass.
        normalize: True scales each vector to length 1.

    Returns:
        Vectors [rows, width] in float32.
    """
    if pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS)
    method = bundle.method
    backbone, device = method.backbone, method.device
    found: list[Tensor] = []
    with method.arithmetic():
        for _, x, valid in rows.to(device).batches(batch):
            level = torch.zeros(len(x), device=device) if backbone.time_conditioning else None
            h = pooled(
                backbone.hidden(method.clean_inputs(x), level, valid=valid).float(), valid, pooling
            )
            found.append(F.normalize(h, dim=-1) if normalize else h)
    return torch.cat(found).cpu().numpy()
