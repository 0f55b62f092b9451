"""Routes beyond OpenAI's: infilling, likelihoods, frames of a text, models and metrics."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from unmask.data.tokenizers.gaps import count_blanks, parse_blanks
from unmask.errors import UnmaskError
from unmask.generation.prompts import MOST_TOKENS
from unmask.generation.sampling_params import Length, params_to_generate
from unmask.model import Model
from unmask.samplers.core.canvas import Frame
from unmask.serve.execution.engine import Engine
from unmask.serve.limits import ServerLimits
from unmask.serve.prometheus import Metrics
from unmask.serve.responses import Events, Json, event, problem_of
from unmask.serve.schemas import Filling, Scoring, Watching, with_options
from unmask.serve.served_models import STREAMED, chosen, described
from unmask.serve.text_stream import check_sampler, resolved


def our_routes(engine: Engine, settings: ServerLimits) -> APIRouter:
    """A router with /v1/fill, /v1/score and /v1/stream."""
    routes = APIRouter(tags=["unmask"])

    @routes.post("/v1/fill", response_model=None)
    async def fill(question: with_options(Filling)) -> Response:  # type: ignore[valid-type]
        """Fills the gaps of a text, in `n` ways."""
        name, seed = chosen(engine, question.model), question.drawn_seed

        def job(model: Model) -> Iterator[list[dict[str, Any]]]:
            options = question.options(seed)
            check_text(model, question.text, settings)
            check_sampler(model, resolved(model, options, writes=False), settings)
            results = model.fill(question.text, **options)
            wanted = ("text", "ids", "calls", "seed")
            yield [{key: getattr(result, key) for key in wanted} for result in results]

        return Json({"object": "fill", "model": name, "results": await engine.one(name, job)})

    @routes.post("/v1/score", response_model=None)
    async def score(question: Scoring) -> Response:
        """The likelihood of texts, or a bound on it, in nats per token with its standard error."""
        name = chosen(engine, question.model)

        def job(model: Model) -> Iterator[dict[str, Any]]:
            yield scored(model, question, settings)

        return Json({"object": "score", "model": name, **await engine.one(name, job)})

    @routes.post("/v1/stream", responses=STREAMED, response_model=None)
    async def stream(question: with_options(Watching)) -> Response:  # type: ignore[valid-type]
        """The sampler steps of a text as server-sent events: a `frame` per step, then `done`."""
        name, seed = chosen(engine, question.model), question.drawn_seed

        def job(model: Model) -> Iterator[dict[str, Any]]:
            yield from watched(model, question, seed, settings)

        frames = engine.run(name, job)
        first = await anext(frames)  # an error before the stream is a plain response
        return Events(_events(name, seed, first, frames))

    return routes


def about(engine: Engine, metrics: Metrics) -> APIRouter:
    """A router with /v1/models, /healthz and /metrics."""
    routes = APIRouter(tags=["about"])

    @routes.get("/v1/models", response_model=None)
    async def models() -> Response:
        """The served models."""
        return Json({"object": "list", "data": [described(engine, name) for name in engine.models]})

    @routes.get("/v1/models/{name:path}", response_model=None)
    async def model(name: str) -> Response:
        """One served model."""
        return Json(described(engine, chosen(engine, name)))

    @routes.get("/healthz", response_model=None)
    async def health() -> Response:
        """200 while the server accepts requests, 503 while it shuts down."""
        status = "closing" if engine.closing else "full" if engine.full else "ok"
        return Json({"status": status, "jobs": engine.jobs}, 503 if engine.closing else 200)

    @routes.get("/metrics", response_model=None)
    async def figures() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return routes


def scored(model: Model, question: Scoring, settings: ServerLimits) -> dict[str, Any]:
    """The bound of the texts; an unknown number is null."""
    texts = [question.texts] if isinstance(question.texts, str) else question.texts
    if question.draws > settings.draws:
        raise UnmaskError(f"draws must be {settings.draws} or less here, not {question.draws}")
    pairs = [isinstance(text, tuple) for text in texts]
    if any(pairs) != model.conditional or any(pairs) != all(pairs):
        kind = "pairs of source and target" if model.conditional else "texts, not pairs"
        raise UnmaskError(f"this model measures {kind}")
    parts = [part for text in texts for part in ([text] if isinstance(text, str) else text)]
    if sum(map(len, parts)) > MOST_TOKENS:
        raise UnmaskError("the texts are too long: score fewer or shorter ones")
    tokens = sum(len(model.tokenizer.encode(part)) for part in parts)
    if tokens > settings.length:
        raise UnmaskError(
            f"the texts have {tokens} tokens, more than {settings.length} tokens: score fewer texts"
        )
    return model.perplexity(texts, draws=question.draws, seed=question.seed).to_dict()


def watched(
    model: Model, question: Watching, seed: int, settings: ServerLimits
) -> Iterator[dict[str, Any]]:
    """Frames of a text as plain data."""
    asked = [question.prompt, question.fill, question.edit]
    if sum(text is not None for text in asked) > 1:
        raise UnmaskError("give one of prompt, fill and edit")
    if question.edit is None and any(
        value is not None
        for value in (question.remask, question.remask_span, question.remask_uncertain)
    ):
        raise UnmaskError("remask, remask_span and remask_uncertain need edit: give it, or none")
    writes = question.fill is None and question.edit is None
    options = question.options(seed)
    length: Length = question.length
    if writes:
        length = params_to_generate(model.defaults, options, length)[1] or model.length
    if isinstance(length, int) and length > settings.length:
        raise UnmaskError(f"length must be {settings.length} or less here, not {length}")
    check_text(model, next((text for text in asked if text is not None), ""), settings)
    sampling = resolved(model, options, writes)
    check_sampler(model, sampling, settings)
    frames = model.stream(
        question.prompt,
        fill=question.fill,
        edit=question.edit,
        length=length,
        remask=question.remask,
        remask_span=question.remask_span,
        remask_uncertain=question.remask_uncertain,
        **vars(sampling),
    )
    for number, frame in enumerate(frames):
        yield frame_data(model, number, frame)


def frame_data(model: Model, number: int, frame: Frame) -> dict[str, Any]:
    """A frame as plain data: the ids of each row with masks, its changed columns, and confidences."""
    rows = []
    for ids, changed, sure in zip(
        frame.tokens.tolist(), frame.changed, frame.confidence, strict=True
    ):
        columns = changed.nonzero()[:, 0]
        confidence = [round(value, 4) for value in sure[columns].tolist()]
        text = model.tokenizer.decode(ids)
        rows.append(
            {"text": text, "ids": ids, "changed": columns.tolist(), "confidence": confidence}
        )
    figures = {"calls": frame.calls.tolist(), "t": frame.t.tolist(), "seconds": frame.seconds}
    return {
        "number": number,
        "mask_id": model.tokenizer.vocabulary.mask_id,
        **figures,
        "rows": rows,
    }


def check_text(model: Model, text: str, settings: ServerLimits) -> None:
    """Raises an error for a too long text; counts gaps first, because one may be huge."""
    if len(text) > MOST_TOKENS:
        raise UnmaskError(f"the text has {len(text)} characters, more than {MOST_TOKENS}")
    tokens = count_blanks(text)
    if tokens <= settings.length:
        tokens = len(parse_blanks(text, model.tokenizer))
    if tokens > settings.length:
        raise UnmaskError(f"a text has {settings.length} tokens at most here, not {tokens}")


async def _events(
    name: str, seed: int, first: dict[str, Any], frames: AsyncGenerator[dict[str, Any], None]
) -> AsyncGenerator[str, None]:
    """Frames as events; closing the generator stops the job, and an error ends the stream."""
    last = first
    async with aclosing(frames):
        try:
            yield event(first, "frame")
            async for last in frames:
                yield event(last, "frame")
        except Exception as error:
            yield event(problem_of(error).content, "error")
            return
    texts = [row["text"] for row in last["rows"]]
    yield event({"model": name, "seed": seed, "texts": texts}, "done")
