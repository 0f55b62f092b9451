"""Routes of the rating page: its files, the next comparison of a rater, and votes."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from unmask.extensions.ratings.rating_file import LONGEST_NAME, Choice, RatingFile
from unmask.serve.static_files import page_files, response

FILES = page_files(__package__)
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class Start(BaseModel):
    """A request for the next comparison of a rater."""

    model_config = ConfigDict(extra="forbid")

    rater: Name


class Answer(Start):
    """A vote."""

    comparison: Annotated[str, Field(max_length=64)]
    choice: Choice
    seconds: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0


def rating_router(file: RatingFile) -> APIRouter:
    """A router with the rating page at / and its requests under /rate.
    No response names a model.
    """
    routes = APIRouter(include_in_schema=False)

    def shown(rater: str) -> dict[str, Any]:
        done, total = file.progress(rater)
        following = file.next(rater)
        return {
            "done": done,
            "total": total,
            "next": None if following is None else asdict(following),
        }

    @routes.get("/")
    async def page() -> Response:
        return response("rate.html", FILES)

    @routes.get("/play/files/{name:path}")
    async def static(name: str) -> Response:
        return response(name, FILES)

    @routes.post("/rate/next")
    async def following(request: Start) -> dict[str, Any]:
        return shown(request.rater.strip())

    # async, so that votes run one after the other in the event loop
    @routes.post("/rate/vote")
    async def vote(request: Answer) -> dict[str, Any]:
        rater = request.rater.strip()
        file.vote(rater, request.comparison, request.choice, request.seconds)
        return shown(rater)

    return routes
