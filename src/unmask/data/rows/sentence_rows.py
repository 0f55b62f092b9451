"""Rows of single sentences and of pairs of sentences, for classification and embeddings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unmask.data.tokenizers.tokenizer import Ids, Tokenizer
from unmask.errors import UnmaskError
from unmask.shapes import Tokens, Valid

Sentence = str | tuple[str, str]
_CHUNK = 4096  # texts that the tokenizer encodes at a time
ALIGNED = 8  # a batch is padded to a multiple of this length


@dataclass(frozen=True)
class SentenceRows:
    """Rows of different lengths in one padded table, on the CPU or on a device."""

    x: Tokens  # token ids [rows, longest]
    lengths: Tensor  # tokens of each row, on the device of `x`
    sizes: tuple[int, ...]  # the same numbers on the host, so that batches need no synchronization
    cut: int = 0  # rows that were longer than the limit

    def __len__(self) -> int:
        return len(self.sizes)

    def to(self, device: torch.device) -> "SentenceRows":
        """The rows on a device.

        Args:
            device: The device.

        Returns:
            Rows with the same content.
        """
        return SentenceRows(self.x.to(device), self.lengths.to(device), self.sizes, self.cut)

    def batch(
        self, numbers: Sequence[int], at: Tensor, aligned: int = ALIGNED
    ) -> tuple[Tokens, Valid | None]:
        """Some rows, padded to the longest of them.

        Args:
            numbers: Numbers of the rows, on the host.
            at: The same numbers, on the device of the rows.
            aligned: The length is a multiple of it, or that of the longest row of all.

        Returns:
            Token ids, and True at tokens that are not padding; None if no row has padding.
        """
        sizes = [self.sizes[number] for number in numbers]
        longest = min(-(-max(sizes) // aligned) * aligned, self.x.shape[1])
        x = self.x[at, :longest]
        if min(sizes) == longest:
            return x, None
        return x, torch.arange(longest, device=x.device) < self.lengths[at][:, None]

    def batches(self, rows: int) -> Iterator[tuple[range, Tokens, Valid | None]]:
        """All rows in order, in batches.

        Args:
            rows: Rows of a batch.

        Returns:
            Row numbers, token ids and valid tokens of each batch.
        """
        for start in range(0, len(self), rows):
            numbers = range(start, min(start + rows, len(self)))
            at = torch.arange(numbers.start, numbers.stop, device=self.x.device)
            yield numbers, *self.batch(numbers, at)


def sentence_rows(
    sentences: Sequence[Sentence], tokenizer: Tokenizer, length: int, separators: int = 1
) -> SentenceRows:
    """Encodes sentences as BOS a EOS, and pairs as BOS a EOS b EOS.

    A row that is too long loses tokens at the end of its longer sentence first, as with
    `truncation="longest_first"` of transformers.

    Args:
        sentences: Texts, or pairs of texts.
        tokenizer: The tokenizer of the network.
        length: Most tokens of a row, special tokens included.
        separators: EOS tokens between the sentences of a pair.

    Returns:
        The rows in the order of the sentences.
    """
    if not sentences:
        raise UnmaskError("there are no sentences: give at least one")
    v = tokenizer.vocabulary
    begin = [] if v.bos_id is None else [v.bos_id]
    end = [] if v.eos_id is None else [v.eos_id]
    rows: list[Ids] = []
    cut = 0
    for start in range(0, len(sentences), _CHUNK):
        chunk = [
            _sides(each, start + i) for i, each in enumerate(sentences[start : start + _CHUNK])
        ]
        found = iter(tokenizer.encode_batch([side for sides in chunk for side in sides]))
        for sides in chunk:
            parts = [next(found) for _ in sides]
            between = end * separators if len(parts) == 2 else []
            room = length - len(begin) - len(between) - len(end)
            if room < len(parts):
                raise UnmaskError(
                    f"rows of {length} tokens have no room for a sentence: set a longer length"
                )
            kept = _fitting([len(part) for part in parts], room)
            cut += sum(kept) < sum(map(len, parts))
            shown = [part[:size] for part, size in zip(parts, kept, strict=True)]
            second = [] if len(parts) == 1 else [between, shown[1]]
            rows.append(np.concatenate([begin, shown[0], *second, end]).astype(np.int64))
    sizes = tuple(map(len, rows))
    pad = v.mask_id if v.pad_id is None else v.pad_id
    table = np.full((len(rows), max(sizes)), pad, np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return SentenceRows(torch.from_numpy(table), torch.tensor(sizes), sizes, cut)


def _sides(sentence: object, number: int) -> list[str]:
    """The texts of an item; an error if it is neither a text nor a pair, or if a text is blank."""
    match sentence:
        case str():
            sides = [sentence]
        case [str() as first, str() as second]:
            sides = [first, second]
        case _:
            raise UnmaskError(
                f"sentence {number + 1} is neither a text nor a pair of texts: give one"
            )
    if not all(side.strip() for side in sides):
        raise UnmaskError(f"sentence {number + 1} is empty: give a text that is not blank")
    return sides


def _fitting(sizes: Sequence[int], room: int) -> list[int]:
    """Tokens to keep of each sentence, by the rule "longest first" of the library tokenizers."""
    if sum(sizes) <= room:
        return list(sizes)
    if len(sizes) == 1:
        return [room]
    short, long = sorted(sizes)
    long = short if short > room else max(short, room - short)
    if short + long > room:
        short = room // 2
        long = short + room % 2
    return [short, long] if sizes[0] <= sizes[1] else [long, short]
