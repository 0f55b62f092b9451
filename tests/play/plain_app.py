"""The page's routes in an application of their own: mistakes are 400."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from unmask import UnmaskError
from unmask.play import router


def create_app(engine, routers=()):
    app = FastAPI()
    for each in routers: app.include_router(each)

    @app.exception_handler(UnmaskError)
    async def mistake(request: Request, error: UnmaskError) -> JSONResponse:
        return JSONResponse({"error": {"message": str(error)}}, 400)

    return app
