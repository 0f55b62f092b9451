"""The sampler steps of a text as events for the page: the start row and the changes of each step."""

from collections.abc import Iterator
from typing import Any

from unmask.data.tokenizers.gaps import count_blanks
from unmask.errors import UnmaskError
from unmask.generation.sampling_params import SamplingParams
from unmask.model import Model
from unmask.play.page_requests import Forming
from unmask.play.row_text import Spelled, row_of, typed_row
from unmask.samplers.core.canvas import Frame
from unmask.serve.limits import ServerLimits
from unmask.serve.text_stream import check_sampler

LIMITS = ServerLimits(steps=4096)  # the limit of the page's field


def forming(model: Model, question: Forming) -> Iterator[dict[str, Any]]:
    """Events of a text: the start row, the changes of each sampler step, and the end."""
    options = question.options
    check_sampler(model, SamplingParams.of(options), LIMITS)
    row, lead, source = _canvas(model, question)
    frames = model.stream(**source, **options)  # raises errors before any network call
    drawing = Drawing(model, row, lead)
    yield {"kind": "start", "length": len(row), "changes": drawing.changes(row)}
    for frame in frames:
        yield drawing.step(frame)
    yield {"kind": "end"}


def _canvas(model: Model, question: Forming) -> tuple[list[int], int, dict[str, Any]]:
    """The start row of the page, the number of tokens before it, and the arguments of `stream`."""
    tokenizer, mask_id = model.tokenizer, model.tokenizer.vocabulary.mask_id
    lead = int(tokenizer.vocabulary.bos_id is not None)
    if question.tokens is not None:
        row = row_of(model, question.tokens)
        return row, lead, {"fill": row}
    if count_blanks(question.text):
        return typed_row(model, question.text), lead, {"fill": question.text}
    length = model.length if question.length is None else question.length
    if not 2 <= length <= model.length:
        raise UnmaskError(f"length must be 2 to {model.length} for this model, not {length}")
    row = tokenizer.encode(question.text)
    if model.conditional:  # the page shows the target alone
        lead, row = lead + len(row) + 1, []
    room = length - lead - len(row)
    return row + [mask_id] * room, lead, {"prompts": question.text, "length": length}


class Drawing:
    """The row that the page displays; computes the changes to send."""

    def __init__(self, model: Model, row: list[int], lead: int) -> None:
        v = model.tokenizer.vocabulary
        self._mask_id, self._eos_id = v.mask_id, v.eos_id
        self._spelled = Spelled(model.tokenizer)
        self._here = slice(lead, lead + len(row))
        self._shown: list[tuple[Any, ...]] = [()] * len(row)

    def changes(self, ids: list[int], confidence: list[float] | None = None) -> list[list[Any]]:
        """[place, id or None, text, confidence] of each place that changed."""
        sure = [1.0] * len(ids) if confidence is None else confidence
        row = [
            (None, "", 0.0) if token == self._mask_id else (token, text, round(p, 4))
            for token, text, p in zip(ids, self._spelled(ids), sure, strict=True)
        ]
        new = [
            place
            for place, (old, now) in enumerate(zip(self._shown, row, strict=True))
            if old != now
        ]
        self._shown = list(row)
        return [[place, *row[place]] for place in new]

    def step(self, frame: Frame) -> dict[str, Any]:
        """The event of a frame: its changes, network calls, time, and the place of EOS."""
        ids = frame.tokens[0, self._here].tolist()
        return {
            "kind": "frame",
            "changes": self.changes(ids, frame.confidence[0, self._here].tolist()),
            "calls": int(frame.calls[0]),
            "t": float(frame.t[0]),
            "seconds": round(frame.seconds, 4),
            "end": ids.index(self._eos_id) if self._eos_id in ids else None,
        }
