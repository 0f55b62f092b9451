"""OpenAI's /v1/chat/completions and /v1/responses, for models with a chat template."""

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError

from unmask.data.tokenizers.chat_format import NoTemplate, chat_format
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.generation.answers.chat_rows import usual_tokens
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits
from unmask.serve.openai.chat_schemas import Chatting, Responding
from unmask.serve.openai.openai_completions import DONE, collect, usage
from unmask.serve.openai.text_stream import Piece, completion_pieces
from unmask.serve.responses import Events, Json, Problem, event, problem_of
from unmask.serve.schemas import Completing, with_options
from unmask.serve.served_models import STREAMED, model_name


def chats(engine: Engine, settings: ServerLimits) -> APIRouter:
    """A router with /v1/chat/completions and /v1/responses."""
    routes = APIRouter(tags=["openai"])
    completing = with_options(Completing)

    def start(request: Chatting | Responding) -> tuple[str, AsyncGenerator[Piece, None]]:
        """The name of the model, and the pieces of the texts."""
        name = model_name(engine, request.model)
        model = engine.models[name]
        ids = _prompt(model.tokenizer, request.conversation)
        room = min(model.length, settings.length) - len(ids)
        if room < 1:
            reason = f"the chat has {len(ids)} tokens and leaves no room for an answer: shorten it"
            raise Problem(400, reason, param="messages")
        usual = usual_tokens(model, room)
        tokens = usual if request.new_tokens is None else request.new_tokens
        try:
            completion = completing(prompt=[ids], max_tokens=tokens, **request.common)
        except ValidationError as error:
            found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
            raise RequestValidationError(found) from None
        seed = request.drawn_seed(model.defaults)
        job = partial(
            completion_pieces, request=completion, settings=settings, seed=seed, chat=True
        )
        return name, engine.run(name, job, completion.constrained)

    @routes.post("/v1/chat/completions", responses=STREAMED, response_model=None)
    async def chat(request: with_options(Chatting)) -> Response:  # type: ignore[valid-type]
        """Generates the next message of a chat, if the model has a chat template."""
        name, pieces = start(request)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": name}
        if request.stream:
            first = await anext(pieces)  # an error before the stream is a plain response
            wants = request.stream_options is not None and request.stream_options.include_usage
            return Events(_chunks(head, first, pieces, wants))
        async with aclosing(pieces):
            texts, last = collect([piece async for piece in pieces], request.n)
        choices = [
            {
                "index": piece.index,
                "message": {"role": "assistant", "content": texts[piece.index]},
                "finish_reason": piece.finish,
                "logprobs": None,
                "seed": piece.seed,
            }
            for piece in last
        ]
        return Json({**head, "object": "chat.completion", "choices": choices, "usage": usage(last)})

    @routes.post("/v1/responses", response_model=None)
    async def respond(request: with_options(Responding)) -> Response:  # type: ignore[valid-type]
        """Generates the next message of a chat as a response object,
        if the model has a chat template.
        """
        name, pieces = start(request)
        async with aclosing(pieces):
            texts, last = collect([piece async for piece in pieces], 1)
        return Json(_response(name, texts[0], last))

    return routes


def _prompt(tokenizer: Tokenizer, messages: list[dict[str, Any]]) -> list[int]:
    """The token ids of the messages and of the beginning of the answer."""
    try:
        return chat_format(tokenizer).ids(messages)
    except NoTemplate:
        reason = "this model has no chat template: send a prompt to /v1/completions instead"
        raise Problem(400, reason, "no_chat_template", param="model") from None
    except UnmaskError as error:
        raise Problem(400, str(error), param="messages") from None


async def _chunks(
    head: dict[str, Any], first: Piece, rest: AsyncGenerator[Piece, None], with_usage: bool
) -> AsyncGenerator[str, None]:
    """The pieces of a chat as events; an error ends the stream with an error event."""
    head = {**head, "object": "chat.completion.chunk"}
    finished: list[Piece] = []

    def chunk(piece: Piece) -> str:
        if piece.finish:
            finished.append(piece)
        delta = {"role": "assistant", "content": piece.text}
        choice = {"index": piece.index, "delta": delta, "finish_reason": piece.finish}
        return event({**head, "choices": [choice]})

    async with aclosing(rest):
        try:
            yield chunk(first)
            async for piece in rest:
                yield chunk(piece)
        except Exception as error:
            yield event(problem_of(error).content)
            return
    if with_usage:
        yield event({**head, "choices": [], "usage": usage(finished)})
    yield DONE


def _response(model: str, text: str, last: list[Piece]) -> dict[str, Any]:
    """OpenAI's response object with one message."""
    complete = last[0].finish == "stop"
    status = "completed" if complete else "incomplete"
    counts = usage(last)
    content = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "status": status,
        "incomplete_details": None if complete else {"reason": "max_output_tokens"},
        "output": [
            {
                "id": f"msg_{uuid.uuid4().hex}",
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": [content],
            }
        ],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        "usage": {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts["total_tokens"],
        },
    }
