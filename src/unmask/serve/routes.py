"""Routes beyond OpenAI's: infilling, likelihoods, frames of a text, models and metrics."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from unmask.data.tokenizers.gaps import count_blanks, parse_blanks
from unmask.data.tokenizers.token_spans import finished_text
from unmask.errors import UnmaskError
from unmask.generation.sampling_params import EDITING, MOST_TOKENS, Length, params_to_generate
from unmask.model import Model
from unmask.samplers.core.canvas import Frame
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits
from unmask.serve.openai.completion_task import check_sampler, sampling_params
from unmask.serve.prometheus import Metrics
from unmask.serve.responses import Events, Json, event, problem_of
from unmask.serve.schemas import Filling, Scoring, Watching, with_options
from unmask.serve.served_models import STREAMED, model_entry, model_name


def our_routes(engine: Engine, settings: ServerLimits) -> APIRouter:
    """A router with /v1/fill, /v1/score and /v1/stream."""
    routes = APIRouter(tags=["unmask"])

    @routes.post("/v1/fill", response_model=None)
    async def fill(request: with_options(Filling)) -> Response:  # type: ignore[valid-type]
        """Fills the gaps of a text, in `n` ways."""
        name = model_name(engine, request.model)
        seed = request.drawn_seed(engine.models[name].defaults)

        def job(model: Model) -> Iterator[list[dict[str, Any]]]:
            options = request.options(seed)
            check_text(model, request.text, settings)
            check_sampler(model, sampling_params(model, options, writes=False), settings)
            results = model.fill(request.text, **options)
            keys = ("text", "ids", "calls", "seed")
            yield [{key: getattr(result, key) for key in keys} for result in results]

        results = await engine.one(name, job, request.constrained)
        return Json({"object": "fill", "model": name, "results": results})

    @routes.post("/v1/score", response_model=None)
    async def score(request: Scoring) -> Response:
        """The likelihood of texts, or a bound on it, in nats per token with its standard error."""
        name = model_name(engine, request.model)

        def job(model: Model) -> Iterator[dict[str, Any]]:
            yield score_texts(model, request, settings)

        return Json({"object": "score", "model": name, **await engine.one(name, job)})

    @routes.post("/v1/stream", responses=STREAMED, response_model=None)
    async def stream(request: with_options(Watching)) -> Response:  # type: ignore[valid-type]
        """The sampler steps of a text as server-sent events: a `frame` per step, then `done`."""
        name = model_name(engine, request.model)
        seed = request.drawn_seed(engine.models[name].defaults)

        def job(model: Model) -> Iterator[dict[str, Any]]:
            yield from stream_frames(model, request, seed, settings)

        frames = engine.run(name, job, request.constrained)
        first = await anext(frames)  # an error before the stream is a plain response
        return Events(_events(name, seed, first, frames, engine.models[name]))

    return routes


def status_routes(engine: Engine, metrics: Metrics) -> APIRouter:
    """A router with /v1/models, /healthz, /readyz and /metrics."""
    routes = APIRouter(tags=["about"])

    @routes.get("/v1/models", response_model=None)
    async def models() -> Response:
        """The served models."""
        return Json(
            {"object": "list", "data": [model_entry(engine, name) for name in engine.models]}
        )

    @routes.get("/v1/models/{name:path}", response_model=None)
    async def model(name: str) -> Response:
        """One served model."""
        return Json(model_entry(engine, model_name(engine, name)))

    @routes.get("/healthz", response_model=None)
    async def health() -> Response:
        """200 while the server works, 503 while it shuts down or if all its jobs are stuck."""
        return _status(engine, not engine.closing and not engine.stalled)

    @routes.get("/readyz", response_model=None)
    async def ready() -> Response:
        """200 while the server accepts requests, 503 while it is full, stalled or shuts down."""
        return _status(engine, engine.ready)

    @routes.get("/metrics", response_model=None)
    async def figures() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return routes


def _status(engine: Engine, good: bool) -> Response:
    """The state of the server, with status 200 or 503."""
    states = {"closing": engine.closing, "stalled": engine.stalled, "full": engine.full}
    status = next((name for name, holds in states.items() if holds), "ok")
    return Json({"status": status, "jobs": engine.jobs}, 200 if good else 503)


def score_texts(model: Model, request: Scoring, settings: ServerLimits) -> dict[str, Any]:
    """The likelihood of the texts, or its bound, as plain data; infinity and NaN are None."""
    texts = [request.texts] if isinstance(request.texts, str) else request.texts
    if request.draws > settings.draws:
        raise UnmaskError(f"draws must be {settings.draws} or less here, not {request.draws}")
    pairs = [isinstance(text, tuple) for text in texts]
    if any(pairs) != model.conditional or any(pairs) != all(pairs):
        kind = "pairs of source and target" if model.conditional else "texts, not pairs"
        raise UnmaskError(f"this model scores {kind}")
    parts = [part for text in texts for part in ([text] if isinstance(text, str) else text)]
    if sum(map(len, parts)) > MOST_TOKENS:
        raise UnmaskError("the texts are too long: score fewer or shorter ones")
    tokens = sum(len(model.tokenizer.encode(part)) for part in parts)
    if tokens > settings.length:
        raise UnmaskError(
            f"the texts have {tokens} tokens, more than {settings.length} tokens: score fewer texts"
        )
    return model.perplexity(texts, draws=request.draws, seed=request.seed).to_dict()


def stream_frames(
    model: Model, request: Watching, seed: int, settings: ServerLimits
) -> Iterator[dict[str, Any]]:
    """The frames of a text as plain data."""
    texts = [request.prompt, request.fill, request.edit]
    if sum(text is not None for text in texts) > 1:
        raise UnmaskError("give one of prompt, fill and edit")
    editing = {name: getattr(request, name) for name in (*EDITING, "style")}
    named = [name for name, value in editing.items() if value is not None]
    if request.edit is None and named:
        raise UnmaskError(f"{named[0]} needs edit: give edit, or leave {named[0]} out")
    writes = request.fill is None and request.edit is None
    options = request.options(seed)
    length: Length = request.length
    if writes:
        length = params_to_generate(model.defaults, options, length)[1] or model.length
    if isinstance(length, int) and length > settings.length:
        raise UnmaskError(f"length must be {settings.length} or less here, not {length}")
    check_text(model, next((text for text in texts if text is not None), ""), settings)
    sampling = sampling_params(model, options, writes)
    check_sampler(model, sampling, settings)
    frames = model.stream(
        request.prompt,
        fill=request.fill,
        edit=request.edit,
        length=length,
        **editing,
        **vars(sampling),
    )
    for number, frame in enumerate(frames):
        yield frame_data(model, number, frame)


def frame_data(model: Model, number: int, frame: Frame) -> dict[str, Any]:
    """A frame as plain data: of each row its ids, changed columns and their confidences."""
    rows = []
    for ids, changed, confidences in zip(
        frame.tokens.tolist(), frame.changed, frame.confidence, strict=True
    ):
        columns = changed.nonzero()[:, 0]
        confidence = [round(value, 4) for value in confidences[columns].tolist()]
        text = model.tokenizer.decode(ids)
        rows.append(
            {"text": text, "ids": ids, "changed": columns.tolist(), "confidence": confidence}
        )
    return {
        "number": number,
        "mask_id": model.tokenizer.vocabulary.mask_id,
        "calls": frame.calls.tolist(),
        "t": frame.t.tolist(),
        "seconds": frame.seconds,
        "rows": rows,
    }


def check_text(model: Model, text: str, settings: ServerLimits) -> None:
    """Raises an error for a too long text;
    counts masks before it expands gaps (`[MASK:999999]`).
    """
    if len(text) > MOST_TOKENS:
        raise UnmaskError(f"the text has {len(text)} characters, more than {MOST_TOKENS}")
    tokens = count_blanks(text)
    if tokens <= settings.length:
        tokens = len(parse_blanks(text, model.tokenizer))
    if tokens > settings.length:
        raise UnmaskError(f"a text may have {settings.length} tokens here, not {tokens}")


async def _events(
    name: str,
    seed: int,
    first: dict[str, Any],
    frames: AsyncGenerator[dict[str, Any], None],
    model: Model,
) -> AsyncGenerator[str, None]:
    """Frames as server-sent events; an error ends them with an error event.
    Closing it stops the job.
    """
    last = first
    async with aclosing(frames):
        try:
            yield event(first, "frame")
            async for last in frames:
                yield event(last, "frame")
        except Exception as error:
            yield event(problem_of(error).content, "error")
            return
    rows = [row["ids"] for row in last["rows"]]
    texts = [finished_text(ids, model.tokenizer, model.conditional) for ids in rows]
    yield event({"model": name, "seed": seed, "texts": texts}, "done")
