"""The sampler steps of a text as events for the page:
the start row and the changes of each step.
"""

from collections.abc import Iterator
from typing import Any

from unmask.data.tokenizers.gaps import count_blanks
from unmask.errors import UnmaskError
from unmask.extensions.play.page_requests import Forming
from unmask.extensions.play.row_text import TokenTexts, row_of, typed_row
from unmask.generation.sampling_params import SamplingParams
from unmask.model import Model
from unmask.samplers.core.canvas import Frame
from unmask.serve.limits import ServerLimits
from unmask.serve.openai.completion_task import check_sampler

LIMITS = ServerLimits(steps=4096)  # the Steps field of the page has the same limit


def stream_events(model: Model, request: Forming) -> Iterator[dict[str, Any]]:
    """Events of a text: the start row, the changes of each sampler step, and the end."""
    options = request.options
    check_sampler(model, SamplingParams.of(options), LIMITS)
    row, lead, arguments = _canvas(model, request)
    frames = model.stream(**arguments, **options)  # raises errors before any network call
    displayed = DisplayedRow(model, row, lead)
    yield {"kind": "start", "length": len(row), "changes": displayed.changes(row)}
    for frame in frames:
        yield displayed.step(frame)
    yield {"kind": "end"}


def _canvas(model: Model, request: Forming) -> tuple[list[int], int, dict[str, Any]]:
    """The start row of the page, the number of tokens before it, and the arguments of `stream`."""
    tokenizer, mask_id = model.tokenizer, model.tokenizer.vocabulary.mask_id
    lead = int(tokenizer.vocabulary.bos_id is not None)
    if request.tokens is not None:
        row = row_of(model, request.tokens)
        return row, lead, {"fill": row}
    if count_blanks(request.text):
        return typed_row(model, request.text), lead, {"fill": request.text}
    length = request.length
    if length is None:
        length = min(model.defaults.get("length", model.length), model.length)
    if not 2 <= length <= model.length:
        raise UnmaskError(f"length must be 2 to {model.length} for this model, not {length}")
    row = tokenizer.encode(request.text)
    if model.conditional:  # the page shows the target alone
        lead, row = lead + len(row) + 1, []
    room = length - lead - len(row)
    return row + [mask_id] * room, lead, {"prompts": request.text, "length": length}


class DisplayedRow:
    """The row that the page displays; finds the changes to send."""

    def __init__(self, model: Model, row: list[int], lead: int) -> None:
        v = model.tokenizer.vocabulary
        self._mask_id, self._eos_id = v.mask_id, v.eos_id
        self._texts = TokenTexts(model.tokenizer)
        self._columns = slice(lead, lead + len(row))
        self._shown: list[tuple[Any, ...]] = [()] * len(row)

    def changes(self, ids: list[int], confidence: list[float] | None = None) -> list[list[Any]]:
        """[position, id or None, text, confidence] of each position that changed."""
        confidence = [1.0] * len(ids) if confidence is None else confidence
        row = [
            (None, "", 0.0) if token == self._mask_id else (token, text, round(p, 4))
            for token, text, p in zip(ids, self._texts(ids), confidence, strict=True)
        ]
        changed = [
            position
            for position, (old, new) in enumerate(zip(self._shown, row, strict=True))
            if old != new
        ]
        self._shown = list(row)
        return [[position, *row[position]] for position in changed]

    def step(self, frame: Frame) -> dict[str, Any]:
        """The event of a frame: its changes, network calls, times, and the position of EOS."""
        ids = frame.tokens[0, self._columns].tolist()
        return {
            "kind": "frame",
            "changes": self.changes(ids, frame.confidence[0, self._columns].tolist()),
            "calls": int(frame.calls[0]),
            "t": float(frame.t[0]),
            "seconds": round(frame.seconds, 4),
            "end": ids.index(self._eos_id) if self._eos_id in ids else None,
        }
