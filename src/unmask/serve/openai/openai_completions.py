"""OpenAI's /v1/completions, as one response or as server-sent events."""

import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits
from unmask.serve.openai.text_stream import Piece, completion_pieces
from unmask.serve.responses import Events, Json, event, problem_of
from unmask.serve.schemas import Completing, with_options
from unmask.serve.served_models import STREAMED, model_name

DONE = "data: [DONE]\n\n"


def completions(engine: Engine, settings: ServerLimits) -> APIRouter:
    """A router with /v1/completions."""
    routes = APIRouter(tags=["openai"])

    @routes.post("/v1/completions", responses=STREAMED, response_model=None)
    async def complete(request: with_options(Completing)) -> Response:  # type: ignore[valid-type]
        """Generates text after a prompt, or between a prompt and a suffix."""
        name = model_name(engine, request.model)
        seed = request.drawn_seed(engine.models[name].defaults)
        job = partial(completion_pieces, request=request, settings=settings, seed=seed)
        pieces = engine.run(name, job, request.constrained)
        completion = _Completion(name, request)
        if request.stream:
            first = await anext(pieces)  # an error before the stream is a plain response
            return Events(completion.events(first, pieces))
        async with aclosing(pieces):
            return Json(completion.whole([piece async for piece in pieces]))

    return routes


class _Completion:
    """The response to one request: its texts in one body or in chunks."""

    def __init__(self, model: str, request: Completing) -> None:
        self._request = request
        self._texts = len(request.prompts) * request.n
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, pieces: list[Piece]) -> dict[str, Any]:
        """The body with all texts."""
        texts, last = collect(pieces, self._texts)
        choices = [_choice(piece, texts[piece.index]) for piece in last]
        return {**self._head, "choices": choices, "usage": usage(last)}

    async def events(
        self, first: Piece, rest: AsyncGenerator[Piece, None]
    ) -> AsyncGenerator[str, None]:
        """The pieces as events; an error ends the stream with an error event."""
        finished: list[Piece] = []
        async with aclosing(rest):
            try:
                yield self._chunk(first, finished)
                async for piece in rest:
                    yield self._chunk(piece, finished)
            except Exception as error:
                yield event(problem_of(error).content)
                return
        options = self._request.stream_options
        if options is not None and options.include_usage:
            yield event({**self._head, "choices": [], "usage": usage(finished)})
        yield DONE

    def _chunk(self, piece: Piece, finished: list[Piece]) -> str:
        if piece.finish:
            finished.append(piece)
        return event({**self._head, "choices": [_choice(piece, piece.text)]})


def collect(pieces: Iterable[Piece], count: int) -> tuple[list[str], list[Piece]]:
    """The whole texts, and the last piece of each."""
    texts, last = [""] * count, []
    for piece in pieces:
        texts[piece.index] += piece.text
        if piece.finish:
            last.append(piece)
    return texts, sorted(last, key=lambda piece: piece.index)


def _choice(piece: Piece, text: str) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": piece.index, "text": text, "logprobs": piece.logprobs}
    choice["finish_reason"] = piece.finish
    return {**choice, "seed": piece.seed} if piece.finish else choice


def usage(last: Iterable[Piece]) -> dict[str, int]:
    """The token counts of some texts, by their last pieces."""
    new = sum(piece.tokens for piece in last)
    prompt = sum(piece.prompt_tokens for piece in last)
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
