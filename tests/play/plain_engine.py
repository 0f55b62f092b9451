"""A server of the page alone: jobs run one by one, mistakes are 400."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from unmask import Model, UnmaskError
from unmask.errors import unknown
from unmask.play import router

T = TypeVar("T")


class PlainEngine:
    def __init__(self, models: dict[str, Model]) -> None:
        self.models = models

    async def run(self, model: str, job: Callable[[Model], Iterator[T]]) -> AsyncIterator[T]:
        if model not in self.models:
            raise unknown("model", model, self.models)
        answers = job(self.models[model])
        while (answer := await asyncio.to_thread(next, answers, None)) is not None:
            yield answer


def plain_app(models: dict[str, Model]) -> FastAPI:
    app = FastAPI()
    app.include_router(router(PlainEngine(models)))

    @app.exception_handler(UnmaskError)
    async def mistake(request: Request, error: UnmaskError) -> JSONResponse:
        return JSONResponse({"error": {"message": str(error)}}, 400)

    return app
