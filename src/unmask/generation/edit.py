"""Editing: chooses the tokens of a text to mask again, and builds the rows to fill."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.generation.generator import check_request
from unmask.generation.guidance import first_tokens
from unmask.generation.prompts import FillRequest, framed, refuse_one_sided
from unmask.generation.sampling_params import SamplingParams
from unmask.methods.token_classifier import TokenClassifier
from unmask.options import check_options, option
from unmask.randomness import row_seeds, row_uniforms

STYLE_SHARE = 0.25  # share of the tokens that a change of style rewrites
_COLUMNS = 64  # tokens that are masked in one pass, each in a row of its own


@dataclass(frozen=True)
class Edit:
    """Choice of the tokens to rewrite: a random share, a span, the least likely,
    or those of a style.

    `remask_style` is a share of the tokens: those whose masking makes the class label likeliest.
    """

    remask: float | None = option(None, gt=0, le=1)
    remask_span: tuple[int, int] | None = None
    remask_uncertain: int | None = option(None, ge=1)
    remask_style: float | None = option(None, gt=0, le=1)

    def __post_init__(self) -> None:
        if sum(choice is not None for choice in vars(self).values()) > 1:
            raise UnmaskError(
                "remask, remask_span, remask_uncertain and remask_style exclude each other: give one "
                "of them"
            )
        check_options(self)
        if self.remask_span is not None and len(self.remask_span) != 2:
            raise UnmaskError(f"remask_span has a start and an end, not {self.remask_span!r}")

    def positions(
        self,
        ids: list[int],
        seed: int,
        confidence: Callable[[], Float[Tensor, "tokens"]],
        attribution: Callable[[], Float[Tensor, "tokens"]],
    ) -> list[int]:
        """The positions of the text to mask."""
        if self.remask_style is not None:
            count = max(1, round(self.remask_style * len(ids)))
            return attribution().argsort(descending=True, stable=True)[:count].tolist()
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
    """Rows of a text, once for each list of positions in `masked`;
    a long text takes several rows.
    """
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
    if not isinstance(text, str):
        raise UnmaskError(f"edit takes a text, not {text!r}")
    ids = bundle.tokenizer.encode(text)
    if not ids:
        raise UnmaskError("the text is empty: give a text to edit")
    first = first_tokens(bundle, sampling)
    if edit.remask_uncertain or edit.remask_style:  # checks the options before any network call
        everything = [range(len(ids))] * sampling.n
        check_request(bundle, _rows(bundle, first, ids, everything), sampling)
    confidence = cache(lambda: _confidence(bundle, first, ids))
    seeds = row_seeds(sampling.seed, sampling.n)
    attribution = cache(lambda: _attribution(bundle, sampling, first, ids))
    masked = [edit.positions(ids, seed, confidence, attribution) for seed in seeds]
    return _rows(bundle, first, ids, masked)


def style_places(
    bundle: Bundle, ids: list[int], sampling: SamplingParams, share: float = STYLE_SHARE
) -> list[int]:
    """The positions of a text that speak most against a class label.

    Args:
        bundle: A model of labelled texts.
        ids: The tokens of the text.
        sampling: Options with the label, and the guide if another model classifies.
        share: Share of the tokens.

    Returns:
        The positions, the strongest first.
    """
    first = first_tokens(bundle, sampling)
    attribution = partial(_attribution, bundle, sampling, first, ids)
    return Edit(remask_style=share).positions(ids, 0, attribution, attribution)


@torch.inference_mode()
def _attribution(
    bundle: Bundle, sampling: SamplingParams, first: list[int], ids: list[int]
) -> Float[Tensor, "tokens"]:
    """log p(label | row without a token) − log p(label | row) of each token,
    by the guide or the model itself.

    The difference makes tokens of several rows comparable.
    """
    labels = bundle.tokenizer.labels
    if sampling.label is None:
        raise UnmaskError("remask_style needs a style: give style, or leave remask_style out")
    method = (bundle if sampling.guide is None else sampling.guide).method
    classifier = TokenClassifier(method, labels[sampling.label], labels.values())
    parts = []
    for tokens, columns, t in _bodies(bundle, first, ids):
        times = torch.full((_COLUMNS,), t, dtype=torch.float64)
        whole = classifier(tokens[None], times[:1])
        for some in columns.split(_COLUMNS):
            rows = tokens.repeat(len(some), 1)
            rows[torch.arange(len(some), device=rows.device), some] = method.vocabulary.mask_id
            parts.append(classifier(rows, times[: len(some)]) - whole)
    return torch.cat(parts).cpu()


@torch.inference_mode()
def _confidence(bundle: Bundle, first: list[int], ids: list[int]) -> torch.Tensor:
    """log p of each token given all other tokens of its row."""
    mask_id, parts = bundle.tokenizer.vocabulary.mask_id, []
    for tokens, columns, t in _bodies(bundle, first, ids):
        denoiser = bundle.method.denoiser()
        parts += [
            leave_one_out(denoiser, tokens, some, mask_id, t) for some in columns.split(_COLUMNS)
        ]
    return torch.cat(parts).cpu()


def _bodies(
    bundle: Bundle, first: list[int], ids: list[int]
) -> Iterator[tuple[Tensor, Tensor, float]]:
    """The rows of a text, the columns of its tokens, and the time at which one token is masked."""
    ends = bundle.tokenizer.vocabulary.eos_id is not None  # then each row has an EOS
    for row in _rows(bundle, first, ids, [[]]).canvases:
        columns = torch.arange(len(first), len(row) - ends, device=bundle.device)
        alpha = torch.tensor(1 - 1 / len(row), dtype=torch.float64)
        t = float(bundle.method.schedule.inverse(alpha[None]).detach())
        yield torch.tensor(row, device=bundle.device), columns, t
