"""Training on a stream reads the same rows after a rollback, an interruption or lack of memory."""

import signal
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from same_runs import assert_same
from training_stand_in import Poisoned, TinyMethod, trainer

from unmask.data.loader import BatchSource
from unmask.data.rows.row_counts import Totals
from unmask.data.rows.stream_rows import StreamLoader, StreamPosition, StreamRows
from unmask.data.rows.token_rows import Rows
from unmask.data.sources.corpus import Corpus
from unmask.data.tokenizers.characters import CharacterTokenizer
from unmask.errors import UnmaskError
from unmask.files.storage import read_json, write_json
from unmask.training.checkpoints.checkpoint import newest
from unmask.training.signals import Interrupted

OPTIONS = {"steps": 24, "save_every": 4, "log_every": 2, "max_skips": 3, "validate": None}


def rows() -> StreamRows:
    def documents(start: int):
        return ("abc"[: 1 + number % 3] * (1 + number * 7 % 11) for number in count(start))

    return StreamRows(Corpus.stream("letters:", documents), CharacterTokenizer("abc"), 6)


class Recorded:
    """The same rows by number, so that any batch can be read at any time."""

    def __init__(self) -> None:
        found = np.stack([row for row, _ in islice(rows().rows(StreamPosition()), 500)])
        self.rows = Rows(found, Totals())

    def batch(self, step: int, part: range) -> tuple[torch.Tensor, torch.Tensor]:
        return self.rows[[8 * step + row for row in part]]

    def given(self, step: int, part: range) -> None:
        return None

    def count(self, step: int, part: range) -> int:
        return int(self.batch(step, part)[1].sum())


def fit(run: Path, method: TinyMethod, streamed: bool = True, **options: object) -> None:
    loader: BatchSource = StreamLoader(rows(), 8, 0) if streamed else Recorded()
    stream = loader if streamed else None
    trainer(run, method, loader=loader, stream=stream, **{**OPTIONS, **options}).fit()


def test_a_stream_is_rolled_back_and_resumed_to_the_bit(tmp_path):
    fit(tmp_path / "known", Poisoned(9, 10, 11), streamed=False)

    class Stopped(Poisoned):
        """A method that interrupts the run before the rollback and after it."""

        def noise(self, stream, valid):
            if stream.step in (3, 14):
                signal.raise_signal(signal.SIGINT)
            return super().noise(stream, valid)

    for _ in range(2):
        with pytest.raises(Interrupted):
            fit(tmp_path / "stream", Stopped(9, 10, 11))
        place = read_json(newest(tmp_path / "stream", pytest.fail) / "state.json")["stream"]
        assert place["batch"] in (4, 15)
    fit(tmp_path / "stream", Poisoned(9, 10, 11))
    assert_same(tmp_path / "stream", tmp_path / "known", best=False)


def test_a_batch_that_does_not_fit_is_retried_with_the_same_rows(tmp_path):
    class Crowded(TinyMethod):
        def noise(self, stream, valid):
            if len(valid) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().noise(stream, valid)

    fit(tmp_path / "known", Crowded(), streamed=False, auto_batch=True, steps=6)
    fit(tmp_path / "stream", Crowded(), auto_batch=True, steps=6)
    assert_same(tmp_path / "stream", tmp_path / "known", best=False)


def test_a_checkpoint_without_a_stream_position_is_refused(tmp_path):
    fit(tmp_path, TinyMethod(), steps=4)
    found = newest(tmp_path, pytest.fail)
    content = read_json(found / "state.json")
    del content["stream"]
    write_json(found / "state.json", content)
    with pytest.raises(UnmaskError, match="has no position of the stream"):
        loader = StreamLoader(rows(), 8, 0)
        trainer(tmp_path, loader=loader, stream=loader, **{**OPTIONS, "steps": 6}).fit(found)
