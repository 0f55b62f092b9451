"""The `generate` method of the transformers classes: ids in, ids out, with unmask's samplers."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from unmask.bundle import Bundle
from unmask.config.run_config import from_dict
from unmask.data.tokenizers.no_tokenizer import NoTokenizer
from unmask.errors import UnmaskError
from unmask.generation.generator import Generator
from unmask.generation.prompts import FillRequest
from unmask.generation.sampling_params import checked_defaults, params_to_generate
from unmask.methods.method import Method
from unmask.vocabulary import Vocabulary

_READ = (  # the options of transformers' GenerationConfig that have an effect
    *("max_length", "max_new_tokens", "num_return_sequences"),
    *("do_sample", "temperature", "top_k", "top_p"),
)


class Ids(NoTokenizer):
    """A tokenizer without text, for generation from ids to ids."""

    def decode(self, ids: ArrayLike) -> str:
        """An empty text."""
        return ""


def generate_rows(
    method: Method,
    config: Any,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    options: Mapping[str, Any],
) -> Tensor:
    """Rows with their masks filled; a row without masks is continued behind its last token.

    Rows are padded to the longest row with PAD, or with EOS if there is no PAD. `config.generation`
    holds the defaults of the options. Its `length` is the default length of continued rows.
    """
    training = method.backbone.training
    defaults = checked_defaults(config.generation)
    bundle = Bundle(method, Ids(method.vocabulary), from_dict(config.run), defaults)
    try:
        rows = _rows(bundle, input_ids, attention_mask, dict(options))
    finally:
        method.train(training)
    v = method.vocabulary
    fill = v.pad_id if v.pad_id is not None else v.eos_id
    filled = torch.nn.utils.rnn.pad_sequence(
        rows, batch_first=True, padding_value=0 if fill is None else fill
    )
    return filled.to(method.device)


def _rows(
    bundle: Bundle,
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    given: dict[str, Any],
) -> list[Tensor]:
    """The ids of each generated text."""
    given = {**_read(given.pop("generation_config", None)), **given}
    length, new = given.pop("max_length", None), given.pop("max_new_tokens", None)
    copies, streamer = int(given.pop("num_return_sequences", 1)), given.pop("streamer", None)
    if given.pop("do_sample", None) is False:
        given["temperature"] = 0.0  # the likeliest token, as transformers' greedy search takes it
    sampling, _ = params_to_generate(bundle.defaults, given)
    v, default_length = bundle.method.vocabulary, bundle.defaults.get("length", bundle.length)
    prompts = list(_prompts(input_ids, attention_mask, v.bos_id))
    canvases, fixed = [], []
    for row in prompts:
        row, known = _canvas(row, v, length, new, default_length)
        canvases += [row] * copies
        fixed += [known] * copies
    openings = max(row.count(v.mask_id) for row in canvases)
    lead = 0 if v.bos_id is None else 1
    ends = v.eos_id is not None and not any(v.mask_id in row for row in prompts)
    generator = Generator(bundle, FillRequest(canvases, lead, fixed, ends, openings), sampling)
    if streamer is None:
        return [torch.tensor(result.ids) for result in generator.results()]
    if len(canvases) > 1:
        raise UnmaskError(f"a streamer takes one text, not {len(canvases)}: leave streamer out")
    return [torch.tensor(_streamed(generator, streamer, v))]


def _read(config: Any) -> dict[str, Any]:
    """The options of a GenerationConfig that differ from its defaults; others are an error."""
    if config is None:
        return {}
    given = {name: value for name, value in config.to_diff_dict().items() if value is not None}
    ignored = ("transformers_version", "use_cache", "return_dict_in_generate")
    given = {
        name: value
        for name, value in given.items()
        if name not in ignored and not name.startswith("_") and not name.endswith("_token_id")
    }
    if unknown := sorted(given.keys() - set(_READ)):
        raise UnmaskError(f"generation_config sets {unknown[0]}, which has no effect: leave it out")
    return given


def _streamed(generator: Generator, streamer: Any, v: Vocabulary) -> list[int]:
    """The ids of one text. The streamer gets each token as soon as no later step can change it."""
    [row], [known], end = (
        generator.job.canvases,
        generator.job.fixed,
        len(generator.job.canvases[0]),
    )
    streamer.put(torch.tensor([row[:known]]))
    sent, revises = known, generator.sampler.unwrapped().revises

    def put(ids: list[int]) -> int:
        for token in ids:
            streamer.put(torch.tensor([token]))
        return len(ids)

    for frame in generator.frames():
        row = frame.tokens[0].tolist()
        if generator.job.ends and v.eos_id in row[known:]:
            end = row.index(v.eos_id, known) + 1
        settled = row.index(v.mask_id) if v.mask_id in row else len(row)
        if not revises:
            sent += put(row[sent : min(settled, end)])
    put(row[sent:end])
    streamer.end()
    return row[:end]


def _prompts(
    input_ids: Tensor | None, attention_mask: Tensor | None, bos_id: int | None
) -> Iterator[list[int]]:
    """The ids of each row, without padding."""
    if input_ids is None:
        yield [] if bos_id is None else [bos_id]
        return
    if input_ids.ndim != 2 or not len(input_ids):
        raise UnmaskError(
            f"input_ids have shape {list(input_ids.shape)}: give at least one row, as [rows, length]"
        )
    valid = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    for row, seen in zip(input_ids, valid.bool(), strict=True):
        yield row[seen].tolist()


def _canvas(
    row: list[int], v: Vocabulary, length: int | None, new: int | None, default_length: int
) -> tuple[list[int], int]:
    """A row with masks at the positions to fill, and the number of tokens before the first mask."""
    if v.mask_id in row and length is None and new is None:
        return row, row.index(v.mask_id)
    if len(row) > 1 and row[-1] == v.eos_id and v.mask_id not in row:
        row = row[:-1]  # the continuation replaces the EOS that the tokenizer added
    total = len(row) + new if new is not None else length or default_length
    if total <= len(row):
        raise UnmaskError(
            f"a prompt of {len(row)} tokens leaves no room in a length of {total}: "
            "raise max_length or max_new_tokens"
        )
    filled = row + [v.mask_id] * (total - len(row))
    return filled, filled.index(v.mask_id)
