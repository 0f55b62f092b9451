"""The unigram baseline, counted by hand."""

import math

import pytest
import torch

from unmask.likelihood.measured_rows import unigram_nats


class Rows:
    """Rows with given tokens and lengths."""

    bytes = characters = 1

    def __init__(self, rows: list[list[int]], lengths: list[int]) -> None:
        self.x = torch.tensor(rows)
        self.valid = torch.arange(self.x.shape[1]) < torch.tensor(lengths)[:, None]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[rows.start : rows.stop], self.valid[rows.start : rows.stop]


def test_add_one_frequencies_of_valid_tokens():
    train = Rows([[0, 0, 1], [0, 2, 3]], [3, 2])  # 0 three times, 1 and 2 once; the 3 is padding
    valid = Rows([[0, 1, 3], [3, 0, 0]], [3, 1])  # 0 and 1 once, 3 twice
    # of 5 + 4 counts: 0 has 4, 1 has 2, 2 has 2, 3 has 1
    expected = -(math.log(4 / 9) + math.log(2 / 9) + 2 * math.log(1 / 9)) / 4
    assert unigram_nats(train, valid, 4) == pytest.approx(expected)


def test_text_of_one_token_costs_next_to_nothing_and_uniform_text_log_v():
    uniform = Rows([list(range(8))] * 5000, [8] * 5000)  # more rows than one block holds
    assert unigram_nats(uniform, uniform, 8) == pytest.approx(math.log(8))
    single = Rows([[2] * 8] * 5000, [8] * 5000)
    assert unigram_nats(single, single, 8) < 0.001
