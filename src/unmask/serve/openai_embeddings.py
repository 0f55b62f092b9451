"""OpenAI's /v1/embeddings: a vector for each text, by any served model."""

import base64
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from unmask.errors import UnmaskError
from unmask.model import Model
from unmask.representation.embedding import embed_rows, embedding_rows
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits
from unmask.serve.responses import Json
from unmask.serve.schemas import ApiRequest, Name
from unmask.serve.served_models import model_name

_MOST_TEXTS = 2048  # of one request, as in OpenAI's API
_MOST_CHARACTERS = 2**20


class Embedding(ApiRequest):
    """Texts to embed."""

    input: str | Annotated[list[str], Field(min_length=1, max_length=_MOST_TEXTS)] = Field(
        description="a text, or several texts", examples=["The cat sat on the mat."]
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="numbers, or the bytes of float32 numbers in base64"
    )
    pooling: Literal["cls", "mean", "last"] = Field(
        "mean", description="mean over all tokens, the first token, or the last one"
    )
    dimensions: int | None = Field(None, description="refused unless it is the model's width")
    user: Name | None = Field(None, description="ignored")


def embeddings(engine: Engine, settings: ServerLimits) -> APIRouter:
    """A router with /v1/embeddings."""
    routes = APIRouter(tags=["openai"])

    @routes.post("/v1/embeddings", response_model=None)
    async def embed(request: Embedding) -> Response:
        """A vector of length 1 for each text."""
        name = model_name(engine, request.model)

        def job(model: Model) -> Iterator[dict[str, Any]]:
            yield embedded(model, request, settings)

        return Json({"object": "list", "model": name, **await engine.one(name, job)})

    return routes


def embedded(model: Model, request: Embedding, settings: ServerLimits) -> dict[str, Any]:
    """The vectors of a request and the number of its tokens, as plain data."""
    texts = [request.input] if isinstance(request.input, str) else request.input
    width = model.method.backbone.width
    if request.dimensions not in (None, width):
        raise UnmaskError(f"this model's vectors have {width} numbers: leave dimensions out")
    if sum(map(len, texts)) > _MOST_CHARACTERS:
        raise UnmaskError("the texts are too long: embed fewer or shorter ones")
    rows = embedding_rows(model, texts)
    tokens = sum(rows.sizes)
    if tokens > settings.length:
        raise UnmaskError(
            f"the texts have {tokens} tokens, more than {settings.length} tokens: embed fewer texts"
        )
    vectors = embed_rows(model, rows, request.pooling, normalize=True)
    binary = request.encoding_format == "base64"
    found = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _base64(vector) if binary else vector.tolist(),
        }
        for index, vector in enumerate(vectors)
    ]
    return {"data": found, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _base64(vector: np.ndarray[Any, Any]) -> str:
    """The bytes of a vector, little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
