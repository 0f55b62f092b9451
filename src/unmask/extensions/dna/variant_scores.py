"""Log-likelihood ratios of variants: alternative against reference allele, on both strands."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.data.documents.regions import chromosome
from unmask.data.rows.row_counts import Totals
from unmask.data.rows.token_rows import Rows
from unmask.errors import UnmaskError
from unmask.extensions.dna.dna_tokenizer import reverse_complement
from unmask.extensions.dna.vcf import Variant
from unmask.generation.guidance import first_tokens
from unmask.generation.prompts import framed
from unmask.generation.sampling_params import SamplingParams
from unmask.likelihood.draws import independent_means
from unmask.likelihood.estimate import nats_by_row


@dataclass(frozen=True)
class VariantScore:
    """Scores of one variant in nats. A positive score favours the alternative allele.

    `bound` is the difference of the log-likelihoods of the whole window, or of bounds on them.
    `marginal` is the difference at the masked allele, given the bases around it. Both are means
    over the two strands. A score that the model or the variant does not allow is NaN.
    """

    chrom: str
    pos: int
    id: str
    ref: str
    alt: str
    bound: float
    bound_se: float  # standard error over the draws of the noise; 0 for an exact likelihood
    bound_forward: float
    bound_reverse: float
    marginal: float
    marginal_se: float  # half of the difference of the two strands
    marginal_forward: float
    marginal_reverse: float

    def line(self) -> str:
        """The tab-separated columns; NA in place of NaN."""
        return "\t".join(_cell(getattr(self, part.name)) for part in fields(self))


COLUMNS = tuple(part.name for part in fields(VariantScore))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "NA" if math.isnan(value) else f"{value:.5f}"
    return str(value)


@dataclass(frozen=True)
class Window:
    """A variant with the bases on both sides of it, without N."""

    left: str
    ref: str
    alt: str
    right: str

    @classmethod
    def around(cls, variant: Variant, bases: str, length: int) -> "Window":
        """The window of at most `length` bases with the variant in its middle."""
        start, end = variant.pos - 1, variant.pos - 1 + len(variant.ref)
        room = length - max(len(variant.ref), len(variant.alt))
        if room < 2:
            raise UnmaskError(
                f"the variant at {variant.chrom}:{variant.pos} has {length - room} bases and leaves no "
                f"room in a window of {length}: leave it out"
            )
        left = min(start, max(room // 2, room - (len(bases) - end)))
        before = bases[start - left : start].rpartition("N")[2]
        return cls(
            before, variant.ref, variant.alt, bases[end : end + room - left].partition("N")[0]
        )

    def turned(self) -> "Window":
        """The window on the other strand."""
        parts = (self.right, self.ref, self.alt, self.left)
        return Window(*map(reverse_complement, parts))

    def text(self, allele: str) -> str:
        """The bases of the window with one of the alleles."""
        return self.left + allele + self.right


def score_variants(
    bundle: Bundle,
    genome: Mapping[str, str],
    variants: Sequence[Variant],
    *,
    draws: int = 16,
    seed: int = 0,
    batch: int = 32,
) -> Iterator[VariantScore]:
    """The scores of variants, in order.

    Both alleles have the same noise, so most of its variance cancels in their difference.

    Args:
        bundle: a model of DNA with single bases as tokens.
        genome: the bases of each chromosome, from `read_genome`.
        variants: the variants, from `read_variants`.
        draws: noise draws per allele and strand; more give a smaller error.
        seed: the seed of the noise.
        batch: variants computed at a time.

    Returns:
        One score for each variant.
    """
    if bundle.tokenizer.vocabulary.complement_ids is None or getattr(bundle.tokenizer, "k", 0) != 1:
        raise UnmaskError(
            "variants need a model with single bases as tokens: train with data.tokenizer.kind dna"
        )
    frame = len(framed(bundle.tokenizer, first_tokens(bundle, SamplingParams()), []))
    for start in range(0, len(variants), batch):
        part = variants[start : start + batch]
        windows = [
            Window.around(each, genome[chromosome(each.chrom)], bundle.length - frame)
            for each in part
        ]
        strands = (windows, [window.turned() for window in windows])
        bounds = torch.stack([_bound(bundle, side, draws, seed + start) for side in strands])
        marginals = torch.stack([_marginals(bundle, side) for side in strands])
        for index, variant in enumerate(part):
            yield _score(variant, bounds[:, :, index], marginals[:, index], len(part))


def _score(variant: Variant, bound: Tensor, marginal: Tensor, together: int) -> VariantScore:
    """The score from differences of both strands: `bound` is [2, draws], `marginal` is [2].

    `together` is the number of variants that were measured together.
    """
    means = independent_means(bound.mean(0), together)
    error = float(means.std()) / math.sqrt(len(means)) if len(means) > 1 else 0.0
    forward, reverse = bound.mean(1).tolist()
    plus, minus = marginal.tolist()
    return VariantScore(
        variant.chrom,
        variant.pos,
        variant.id,
        variant.ref,
        variant.alt,
        (forward + reverse) / 2,
        math.nan if math.isnan(forward) else error,
        forward,
        reverse,
        (plus + minus) / 2,
        abs(plus - minus) / 2,
        plus,
        minus,
    )


def _bound(bundle: Bundle, windows: Sequence[Window], draws: int, seed: int) -> Tensor:
    """log p(alternative) - log p(reference) of each window under each draw, [draws, windows]."""
    if bundle.method.certificate == "none":
        return torch.full((1, len(windows)), math.nan, dtype=torch.float64)
    nats = []
    for alleles in ([window.ref for window in windows], [window.alt for window in windows]):
        texts = [window.text(allele) for window, allele in zip(windows, alleles, strict=True)]
        with bundle.method.arithmetic():
            terms = nats_by_row(bundle.method, _rows(bundle, texts), draws=draws, seed=seed)
        nats.append(torch.stack(list(terms.values())).sum(0))
    return nats[0] - nats[1]


def _rows(bundle: Bundle, texts: Sequence[str]) -> Rows:
    """Rows of texts, framed as in training."""
    first, v = first_tokens(bundle, SamplingParams()), bundle.tokenizer.vocabulary
    table = np.full((len(texts), 1 + bundle.length), v.pad_id, np.int64)
    for row, text in zip(table, texts, strict=True):
        ids = framed(bundle.tokenizer, first, bundle.tokenizer.encode(text))
        row[0], row[1 : 1 + len(ids)] = len(ids), ids
    bases = sum(map(len, texts))
    return Rows(table, Totals(len(texts), int(table[:, 0].sum()), bases, bases))


@torch.inference_mode()
def _marginals(bundle: Bundle, windows: Sequence[Window]) -> Tensor:
    """Sum over the allele of log p(alternative base) - log p(reference base),
    with the allele masked.

    It is NaN for alleles of different lengths and for models that do not predict masked tokens.
    """
    found = torch.full((len(windows),), math.nan, dtype=torch.float64)
    if not bundle.method.capabilities.any_order:
        return found
    tokenizer, first = bundle.tokenizer, first_tokens(bundle, SamplingParams())
    mask_id, denoiser = tokenizer.vocabulary.mask_id, bundle.method.denoiser()
    groups: dict[tuple[int, int, int], list[int]] = {}  # windows that share a batch
    for index, window in enumerate(windows):
        if len(window.ref) == len(window.alt):
            shape = len(window.left), len(window.ref), len(window.right)
            groups.setdefault(shape, []).append(index)
    for (left, width, _), members in groups.items():
        texts = [windows[index].text(windows[index].ref) for index in members]
        x = torch.tensor([framed(tokenizer, first, tokenizer.encode(text)) for text in texts])
        columns = torch.arange(width).repeat(len(members)) + len(first) + left
        rows = torch.arange(len(members)).repeat_interleave(width)
        x[rows, columns] = mask_id
        alpha = torch.full((len(members),), 1 - width / x.shape[1], dtype=torch.float64)
        t = bundle.method.schedule.inverse(alpha).detach()
        at = rows.to(bundle.device), columns.to(bundle.device)
        log_p = denoiser(x.to(bundle.device), t, at).double().cpu()
        alleles = [
            [windows[index].ref for index in members],
            [windows[index].alt for index in members],
        ]
        ref, alt = (torch.tensor(tokenizer.encode("".join(texts))) for texts in alleles)
        places = torch.arange(len(ref))
        by_base = log_p[places, alt] - log_p[places, ref]
        found[members] = by_base.view(len(members), width).sum(1)
    return found
