"""Editing: chooses the tokens of a text to mask again, and builds the rows to fill."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.generation.generator import Generator
from unmask.generation.guidance import first_tokens
from unmask.generation.prompts import FillRequest, framed, refuse_one_sided
from unmask.generation.sampling_params import SamplingParams
from unmask.randomness import row_seeds, row_uniforms


@dataclass(frozen=True)
class Edit:
    """Choice of the tokens to rewrite: a random share, a span, or the least likely ones."""

    remask: float | None = None
    remask_span: tuple[int, int] | None = None
    remask_uncertain: int | None = None

    def __post_init__(self) -> None:
        if sum(choice is not None for choice in vars(self).values()) > 1:
            raise UnmaskError(
                "remask, remask_span and remask_uncertain exclude each other: give one of them"
            )
        if self.remask is not None and not 0 < self.remask <= 1:
            raise UnmaskError(f"remask must lie in (0, 1], not {self.remask}")
        if self.remask_uncertain is not None and self.remask_uncertain < 1:
            raise UnmaskError(f"remask_uncertain must be 1 or more, not {self.remask_uncertain}")

    def positions(
        self, ids: list[int], seed: int, confidence: Callable[[], Float[Tensor, "tokens"]]
    ) -> list[int]:
        """The positions of the text to mask."""
        if self.remask_span is not None:
            start, stop = self.remask_span
            if not 0 <= start < stop <= len(ids):
                raise UnmaskError(
                    f"the span {start}:{stop} does not lie in the text's {len(ids)} tokens: give A:B "
                    f"with 0 <= A < B <= {len(ids)}"
                )
            return list(range(start, stop))
        if self.remask_uncertain is not None:
            count = min(self.remask_uncertain, len(ids))
            return confidence().argsort(stable=True)[:count].tolist()
        if self.remask is not None:
            count = max(1, round(self.remask * len(ids)))
            return row_uniforms([seed], "remask", len(ids))[0].argsort()[:count].tolist()
        return []


def _rows(
    bundle: Bundle, first: list[int], ids: list[int], masked: Sequence[Sequence[int]]
) -> FillRequest:
    """Rows of a text, once for each list of positions in `masked`; a long text takes several rows."""
    tokenizer, longest = bundle.tokenizer, bundle.length
    mask_id = tokenizer.vocabulary.mask_id
    body = longest - len(framed(tokenizer, first, []))
    canvases = []
    for positions in masked:
        hidden = set(positions)
        row = [mask_id if index in hidden else token for index, token in enumerate(ids)]
        parts = [row[start : start + body] for start in range(0, len(row), body)]
        canvases += [framed(tokenizer, first, part) for part in parts]
    return FillRequest(
        canvases,
        len(first),
        [len(first)] * len(canvases),
        ends=False,
        openings=max(map(len, masked)) or len(ids),
        revisable=not any(masked),
        rows=len(canvases) // len(masked),
    )


def leave_one_out(
    denoiser: Callable[..., Tensor], row: Tensor, columns: Tensor, mask_id: int, t: float
) -> Float[Tensor, "columns"]:
    """log p(x_l | all other tokens) at the given columns. Each column is masked in its own row."""
    rows = row.repeat(len(columns), 1)
    index = torch.arange(len(columns), device=row.device)
    rows[index, columns] = mask_id
    times = torch.full((len(columns),), t, dtype=torch.float64)
    return denoiser(rows, times, (index, columns))[index, row[columns]]


def rows_to_edit(bundle: Bundle, text: str, edit: Edit, sampling: SamplingParams) -> FillRequest:
    """`n` masked versions of a text, as rows to fill."""
    refuse_one_sided(bundle, "edit")
    ids = bundle.tokenizer.encode(text)
    if not ids:
        raise UnmaskError("the text is empty: give a text to edit")
    first = first_tokens(bundle, sampling)
    if edit.remask_uncertain is not None:  # checks the options before any network call
        everything = [range(len(ids))] * sampling.n
        Generator(bundle, _rows(bundle, first, ids, everything), sampling)
    confidence = cache(lambda: _confidence(bundle, first, ids))
    seeds = row_seeds(sampling.seed, sampling.n)
    masked = [edit.positions(ids, seed, confidence) for seed in seeds]
    return _rows(bundle, first, ids, masked)


@torch.inference_mode()
def _confidence(bundle: Bundle, first: list[int], ids: list[int]) -> torch.Tensor:
    """log p of each token given all other tokens of its row."""
    mask_id = bundle.tokenizer.vocabulary.mask_id
    job = _rows(bundle, first, ids, [[]])
    parts = []
    for row in job.canvases:
        tokens = torch.tensor(row, device=bundle.device)
        columns = torch.arange(len(first), len(row) - 1, device=bundle.device)
        alpha = torch.tensor(1 - 1 / len(row), dtype=torch.float64)  # one token is masked
        t = float(bundle.method.schedule.inverse(alpha[None]).detach())
        denoiser = bundle.method.denoiser()
        parts += [leave_one_out(denoiser, tokens, some, mask_id, t) for some in columns.split(64)]
    return torch.cat(parts).cpu()
