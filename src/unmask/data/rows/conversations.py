"""Rows of chats: the answers of the assistant are predicted, all other tokens are given."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from unmask.data.documents.messages import messages_of
from unmask.data.rows.best_fit import best_fit
from unmask.data.rows.encode import PackingJob, blocks, whole
from unmask.data.rows.row_counts import Table
from unmask.data.tokenizers.chat_format import chat_format
from unmask.data.tokenizers.tokenizer import Ids


def chats(
    job: PackingJob,
    *,
    packed: bool = False,
) -> Iterator[Table]:
    """One chat per row, or several whole ones if `packed`; a longer chat is cut.

    A row has the numbers of its valid and its given tokens, and its tokens with marks: twice the id,
    and 1 more at a token that is predicted. A chat without an answer within the row is left out.
    """
    form, v = chat_format(job.tokenizer), job.tokenizer.vocabulary
    pad_id = next(id for id in (v.pad_id, *form.ends, 0) if id is not None)
    for block in blocks(islice(whole(job.documents), job.place.pieces, None)):
        parts: list[Ids] = []
        for piece in block:
            ids, predicted = form.marked(messages_of(piece.text))
            job.totals.cut += len(ids) > job.length
            marked = (2 * np.array(ids, np.int64) + np.array(predicted, np.int64))[: job.length]
            if not (marked % 2).any():
                job.totals.left_out += 1
                continue
            parts.append(marked)
            job.totals.add_text(job.tokenizer.decode(marked[marked % 2 == 1] // 2))
        job.place.pieces += len(block)
        bins = [[number] for number in range(len(parts))]
        if packed:
            bins = best_fit([len(part) for part in parts], job.length)
        table = np.full((len(bins), 2 + job.length), 2 * pad_id, np.int64)
        for row, members in zip(table, bins, strict=True):
            content = np.concatenate([parts[member] for member in members])
            row[0], row[1] = len(content), (content % 2 == 0).sum()
            row[2 : 2 + len(content)] = content
        yield table
