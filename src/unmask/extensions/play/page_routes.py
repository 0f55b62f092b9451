"""Routes of the page: its files, and its requests as jobs of the engine."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from unmask.extensions.play.controls import menu
from unmask.extensions.play.page_requests import Forming, Guessing, Spelling, Styling
from unmask.extensions.play.predictions import against_label, predict
from unmask.extensions.play.row_text import row_of, token_data, typed_row
from unmask.extensions.play.trace import stream_events
from unmask.generation.sampling_params import constrains
from unmask.model import Model
from unmask.serve.execution.engine import Engine
from unmask.serve.responses import Events, event, problem_of
from unmask.serve.static_files import page_files, response

FILES = page_files(__package__)


def router(engine: Engine) -> APIRouter:
    """A router with the page at / and its files and requests under /play."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    async def page() -> Response:
        return response("index.html", FILES)

    @routes.get("/play/files/{name:path}")
    async def file(name: str) -> Response:
        return response(name, FILES)

    @routes.get("/play/menu")
    async def choices() -> dict[str, Any]:
        return menu(engine.models)

    @routes.post("/play/tokens")
    async def tokens(request: Spelling) -> dict[str, Any]:
        def job(model: Model) -> Iterator[dict[str, Any]]:
            given = request.tokens
            ids = typed_row(model, request.text) if given is None else row_of(model, given)
            yield token_data(model, ids, request.seed)

        return await engine.one(request.model, job)

    @routes.post("/play/guesses")
    async def guesses(request: Guessing) -> dict[str, Any]:
        return await engine.one(request.model, lambda model: predict(model, request))

    @routes.post("/play/style")
    async def style(request: Styling) -> dict[str, Any]:
        return await engine.one(request.model, lambda model: against_label(model, request))

    @routes.post("/play/stream")
    async def stream(request: Forming) -> Events:
        constrained = constrains(request.model_extra or {})
        events = engine.run(request.model, lambda model: stream_events(model, request), constrained)
        first = await anext(events)  # an error before the stream is a plain response
        return Events(_events(first, events))

    return routes


async def _events(
    first: dict[str, Any], rest: AsyncGenerator[dict[str, Any], None]
) -> AsyncGenerator[str, None]:
    """Server-sent events; an error is the last event, and closing the generator stops the job."""
    async with aclosing(rest):
        yield event(first)
        try:
            async for content in rest:
                yield event(content)
        except Exception as error:
            yield event(problem_of(error).content)
