"""Figures of generated texts by hand, and errors that equal the spread over sets of texts."""

import math

import pytest
import torch
from builders import small_method

from unmask.errors import UnmaskError
from unmask.evaluation.judges.judge import MethodJudge, Sample, framed
from unmask.evaluation.metrics.bootstrap import Figure, mean, ratio
from unmask.evaluation.metrics.text_quality import (
    Quality,
    distinct,
    measure,
    repetition,
    token_entropy,
    visible,
)
from unmask.likelihood.estimate import likelihood
from unmask.methods.method import Method
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

SIZE = 11
V = Vocabulary(10, mask_id=9, pad_id=8, bos_id=7, eos_id=6)


def random_texts(count: int, seed: int) -> list[list[int]]:
    """Texts of 2 to 9 tokens. Each repeats one token often."""
    generator = torch.Generator().manual_seed(seed)
    texts = []
    for _ in range(count):
        length = int(torch.randint(2, 10, (), generator=generator))
        x = torch.randint(1, SIZE - 1, (length,), generator=generator)
        own = torch.rand(length, generator=generator) < 0.5
        texts.append(torch.where(own, x[0], x).tolist())
    return texts


def spelled(texts: list[list[int]]) -> list[Sample]:
    """Texts whose tokens are two bytes each."""
    return [Sample(text, "ab" * len(text)) for text in texts]


def measured(texts: list[list[int]], judge: Method, length: int) -> Quality:
    return measure(spelled(texts), MethodJudge(judge, length))


def judged(
    texts: list[list[int]], judge: Method, length: int, draws: int = 8, seed: int = 0
) -> tuple[Figure, int]:
    """Nats per token under a judge, and the number of tokens."""
    read = MethodJudge(judge, length, draws).read(spelled(texts), seed)
    return ratio(read.nats, read.tokens, seed), int(read.tokens.sum())


# The tokens of a text


def test_a_text_has_the_tokens_between_bos_and_eos():
    assert visible([7, 1, 2, 8, 3, 9, 7, 6, 4, 6], V) == [1, 2, 3]
    assert visible([1, 2], V) == [1, 2]
    assert visible([7, 6, 1], V) == []
    assert visible([], V) == []
    gpt2 = Vocabulary(10, mask_id=9, bos_id=6, eos_id=6)
    assert visible([6, 1, 2, 6, 3], gpt2) == [1, 2]
    assert visible([6, 1, 8], gpt2) == [1, 8]


def test_rows_are_framed_as_training_rows():
    assert framed([1, 2, 3, 4, 5], V, 4) == [[7, 1, 2, 6], [7, 3, 4, 6], [7, 5, 6]]
    assert framed([1, 2], V, 4) == [[7, 1, 2, 6]]
    assert framed([], V, 4) == []
    bare = Vocabulary(10, mask_id=9)
    assert framed([1, 2, 3], bare, 2) == [[1, 2], [3]]
    assert framed([], bare, 2) == []


# Diversity, by hand


def test_token_entropy():
    assert token_entropy([5, 5, 5]) == 0
    assert token_entropy([]) == 0
    assert token_entropy([1, 2, 3, 4]) == pytest.approx(math.log(4))
    assert token_entropy([1, 1, 2]) == pytest.approx(math.log(3) - 2 / 3 * math.log(2))


def test_repetition_is_the_share_of_grams_that_came_before():
    assert repetition([1, 2, 3, 4, 5]) == 0
    assert repetition([1, 2, 1, 2, 1, 2]) == pytest.approx(1 / 3)  # 1212 2121 1212
    assert repetition([1, 1, 1, 2], n=2) == pytest.approx(1 / 3)
    assert repetition([1, 2, 3]) == 0


def test_distinct_counts_over_all_texts():
    assert distinct([[1, 2, 3]]).value == 1
    assert distinct([[1, 2, 3], [1, 2, 3]]).value == 0.5  # the same text twice
    assert distinct([[1, 2, 1, 2], [2, 1, 3]]).value == pytest.approx(3 / 5)
    assert distinct([[1], []]) == Figure(1.0, math.inf)  # no pairs at all
    # other texts may repeat these pairs
    assert distinct([[1, 2], [3, 4], [5, 6]]) == Figure(1.0, math.inf)
    # without each text in turn: 2/2 and 2/3; the jackknife's error is half the difference
    assert distinct([[1, 2, 1, 2], [2, 1, 3]]).error == pytest.approx((1 - 2 / 3) / 2)


def test_one_text_has_no_error():
    quality = measured([[1, 2, 3]], small_method("mdlm"), 8)
    for figure in (quality.nats, quality.entropy, quality.distinct_2, quality.repetition):
        assert figure.error == math.inf
    assert distinct([[1, 2], []]).error == math.inf
    with pytest.raises(UnmaskError, match="no text"):
        measured([], small_method("mdlm"), 8)
    with pytest.raises(UnmaskError, match="empty"):
        measured([[], []], small_method("mdlm"), 8)


# Quality


class Rows:
    """A single text, several times."""

    bytes = characters = 1

    def __init__(self, text: list[int], copies: int = 1) -> None:
        self.x = torch.tensor([text] * copies)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x, torch.ones_like(self.x).bool()


def test_an_exact_judge_gives_the_likelihood_of_all_tokens_together():
    judge, texts = small_method("autoregressive"), random_texts(9, seed=0)
    nats, tokens = judged(texts, judge, 4)
    rows = [row for text in texts for row in framed(text, judge.vocabulary, 4)]
    assert tokens == sum(map(len, texts)) == sum(map(len, rows))
    whole = sum(likelihood(judge, Rows(row)).nats * len(row) for row in rows)
    assert nats.value == pytest.approx(whole / tokens)


FRAME = Vocabulary(SIZE, mask_id=SIZE - 1, pad_id=0, bos_id=9, eos_id=8)


def test_an_exact_judge_does_not_count_bos_and_eos():
    judge, texts = small_method("autoregressive"), [[1, 2, 3, 4, 5], [], [6, 7]]
    judge.vocabulary = FRAME
    read = MethodJudge(judge, 5).read(spelled(texts))
    assert read.tokens.tolist() == [5, 0, 2]
    for nats, text in zip(read.nats.tolist(), texts, strict=True):
        behind = [
            judge.nll(Batch(x := torch.tensor([[9, *part]]), torch.ones_like(x).bool()), None)
            .per_token()[0, 1:]
            .sum()
            .item()
            for part in (text[:3], text[3:])
        ]
        assert nats == pytest.approx(sum(behind), rel=1e-5)


def test_a_diffusion_judge_reads_bos_and_eos():
    """The bound of one token is its log-probability."""
    judge = small_method("mdlm")
    judge.vocabulary = FRAME
    read = MethodJudge(judge, 8).read(spelled([[3], []]))
    at = torch.tensor([0]), torch.tensor([1])
    z, t = torch.tensor([[9, FRAME.mask_id, 8]]), torch.tensor([0.5])
    expected = -float(judge.denoiser()(z, t, at)[0, 3].detach())
    assert read.nats.tolist() == [pytest.approx(expected, rel=1e-5), 0]
    assert read.tokens.tolist() == [1, 0]


def test_bytes_are_those_of_the_judges_input():
    judge = small_method("autoregressive")
    samples = [Sample([1, 2], "\ufffd\ufffd", size=2), Sample([3, 4], "ab", size=2)]
    quality = measure(samples, MethodJudge(judge, 8))
    assert quality.bits_per_byte.value == pytest.approx(quality.nats.value / math.log(2))
    assert [sample.bytes(True) for sample in samples] == [6, 2]
    assert Sample([1], "\ufffd").bytes(False) == 3  # its tokenizer has no bytes of tokens


def test_texts_of_one_length_have_the_error_of_a_mean():
    judge = small_method("autoregressive")
    texts = [text[:2] for text in random_texts(5, seed=2)]
    by_text = mean([judged([text], judge, 8)[0].value for text in texts])
    nats, _ = judged(texts, judge, 8)
    assert (nats.value, nats.error) == (pytest.approx(by_text.value), pytest.approx(by_text.error))


def test_an_exact_judge_reads_a_text_once(monkeypatch):
    judge, read = small_method("autoregressive"), []
    nll = judge.nll
    monkeypatch.setattr(
        judge, "nll", lambda batch, *rest, **more: read.append(batch) or nll(batch, *rest, **more)
    )
    judged([[1, 2, 3], [4, 5]], judge, 8)
    assert [batch.x.tolist() for batch in read] == [[[1, 2, 3], [4, 5, 0]]]


@pytest.mark.parametrize("name", ["mdlm", "sedd"])
def test_a_diffusion_judge_agrees_with_its_bound(name):
    """|difference| < 4 standard errors of a run of 640 draws: a false alarm in 16,000."""
    judge, texts = small_method(name), random_texts(5, seed=1)
    tokens = sum(map(len, texts))
    copies = [Rows(text, 64) for text in texts]
    bounds = [likelihood(judge, rows, draws=10, seed=9, batch=64) for rows in copies]
    lengths = [len(text) for text in texts]
    value = sum(bound.nats * k for bound, k in zip(bounds, lengths, strict=True)) / tokens
    error = math.hypot(*(b.error * k for b, k in zip(bounds, lengths, strict=True))) / tokens
    estimates = [judged(texts, judge, 16, seed=seed)[0].value for seed in range(12)]
    ours = mean(estimates)
    assert abs(ours.value - value) < 4 * math.hypot(error, ours.error)
    assert len(set(estimates)) == 12
    assert measured(texts, judge, 16).certificate == "upper"


SETS, TEXTS = 60, 8


@pytest.mark.parametrize("name", ["autoregressive", "mdlm"])
def test_the_error_of_quality_is_its_spread_over_sets_of_texts(name):
    """60 sets determine the spread to 1 / sqrt(2 * 59) = 9%. Four times that is a false alarm in 16,000."""
    judge = small_method(name)
    figures = [
        judged(random_texts(TEXTS, 1000 + seed), judge, 16, draws=2, seed=seed)[0]
        for seed in range(SETS)
    ]
    assert rms([figure.error for figure in figures]) == pytest.approx(
        spread(figures), rel=4 / math.sqrt(2 * 59)
    )


def test_the_errors_of_diversity_are_their_spread_over_sets_of_texts():
    sets = [random_texts(TEXTS, 5000 + seed) for seed in range(10 * SETS)]
    for figures in (
        [mean([token_entropy(text) for text in texts]) for texts in sets],
        [mean([repetition(text, 2) for text in texts]) for texts in sets],
    ):
        assert rms([figure.error for figure in figures]) == pytest.approx(spread(figures), rel=0.12)
    shared = [distinct(texts) for texts in sets]  # the jackknife's error is too large
    truth = sum(figure.value for figure in shared) / len(shared)
    held = [figure.low <= truth <= figure.high for figure in shared]
    assert sum(held) / len(held) > 0.9
    assert all(0 <= figure.low < figure.value <= figure.high <= 1 for figure in shared)
    assert 0.95 < rms([figure.error for figure in shared]) / spread(shared) < 1.5


def rms(errors: list[float]) -> float:
    """Root mean square. A set of equal texts has an unknown error, and adds nothing."""
    return math.sqrt(sum(error**2 for error in errors if error < math.inf) / len(errors))


def spread(figures: list) -> float:
    return float(torch.tensor([figure.value for figure in figures], dtype=torch.float64).std())
