"""The rows of a run: for training, in batches, and for validation."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unmask.config.run_config import RunConfig, defaults, to_dict
from unmask.data.load import Data, load_data
from unmask.data.loader import AnswerTails, LabelDropout, Loader, ReverseComplement, ShortRows
from unmask.data.rows.first_rows import FirstRows
from unmask.data.rows.stream_rows import StreamLoader, StreamRows
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.methods.method import METHODS
from unmask.runs.run_setup import OpenRun
from unmask.runs.training_models import GivenModels
from unmask.training.checkpoints.checkpoint import agree, run_file


@dataclass(frozen=True)
class TrainingRows:
    """Tokenizer and rows of a run, and everything that a resumed run must have
    in common with it.
    """

    config: RunConfig
    data: Data
    fingerprint: dict[str, Any]

    @cached_property
    def valid(self) -> FirstRows:
        """The rows of a validation."""
        return FirstRows(self.data.valid, self.config.training.validation_rows, self.config.seed)

    @cached_property
    def loader(self) -> Loader | StreamLoader:
        """The batches: shuffled rows, or a stream in its own order."""
        return _loader(self.data, self.config)

    @property
    def batches(self) -> Loader | StreamLoader | ShortRows | AnswerTails:
        """The batches, with rows cut short by `data.shorten` or with the tails of chats."""
        return _with_ends(self.loader, self.config, self.data.tokenizer)


def read_rows(run: OpenRun, given: GivenModels) -> TrainingRows:
    """Reads the rows of a run, and compares them with those of its checkpoint.

    Args:
        run: the run.
        given: the models to start and learn from, with their tokenizer.

    Returns:
        The rows.
    """
    data = run.group.in_turn(lambda: _data(run, given.tokenizer))
    corpus = {**data.train.facts, "held_out_text": data.valid.digest}
    corpus |= {"teacher": given.teacher.digest} if given.teacher else {}
    rows = TrainingRows(run.config, data, {**to_dict(run.config), "corpus": corpus})
    if run.checkpoint:  # before any file of the run changes
        run.group.broadcast(lambda: _check_agreement(run, rows.fingerprint))
    return rows


def _data(run: OpenRun, tokenizer: Tokenizer | None) -> Data:
    """The rows for training and validation.
    The main process learns the tokenizer for all processes.
    """
    folder, group, given = run.folder, run.group, run.given
    if run.checkpoint:
        tokenizer = load_tokenizer(run_file(run.checkpoint, folder, "tokenizer"))
    elif not group.main:
        tokenizer = load_tokenizer(folder / "tokenizer")
    data = load_data(run.config.data, tokenizer, given.get("train"), given.get("valid"))
    if group.world > 1 and group.main and not run.checkpoint:
        data.tokenizer.save(folder / "tokenizer")
    return data


def _check_agreement(run: OpenRun, fingerprint: dict[str, Any]) -> str:
    """Raises an error if the checkpoint is of other settings; the result is for `broadcast`."""
    assert run.checkpoint is not None
    # a checkpoint of an older version has no digests of the texts
    known = {**defaults(run.config), "corpus": fingerprint["corpus"]}
    agree(run.folder, run.checkpoint, fingerprint, known)
    return ""


def _loader(data: Data, config: RunConfig) -> Loader | StreamLoader:
    """The batches of a run: shuffled rows, or a stream in its own order."""
    if isinstance(data.train, StreamRows):
        return StreamLoader(data.train, config.training.batch, config.seed)
    dropout = LabelDropout(data.tokenizer, config.data.label_dropout, config.data.label_given)
    strands = ReverseComplement(data.tokenizer, config.data.reverse_complement)
    return Loader(data.train, config.training.batch, config.seed, dropout, strands)


def _with_ends(
    loader: Loader | StreamLoader, config: RunConfig, tokenizer: Tokenizer
) -> Loader | StreamLoader | ShortRows | AnswerTails:
    """The loader with rows cut short if `data.shorten` is set, or with the tails of chats."""
    eos_id, data = tokenizer.vocabulary.eos_id, config.data
    if data.shorten and eos_id is not None:
        return ShortRows(loader, data.shorten, eos_id)
    # a causal model reads nothing behind a text; other methods know no weights of tokens
    weighs = METHODS[config.method.name].capabilities.any_order
    if data.messages_field and data.fill_target and eos_id is not None and weighs:
        return AnswerTails(loader, eos_id)
    return loader
