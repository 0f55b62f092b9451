"""Request bodies of all routes, with the descriptions of the OpenAPI document."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictStr,
    StringConstraints,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from unmask.errors import unknown
from unmask.generation.logits_processor import LOGITS_PROCESSORS
from unmask.generation.prompts import Prompt, prompt_list
from unmask.generation.sampler_spec import spelled_samplers
from unmask.generation.sampling_params import USUAL, SamplingParams, constrains
from unmask.options import Option, options_of

Phrase = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Name = Annotated[str, StringConstraints(max_length=200)]
MOST_PHRASES = 16  # of one option
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
M = TypeVar("M", bound=BaseModel)


class ApiRequest(BaseModel):
    """A request to a model; unknown fields, NaN and infinity are errors."""

    model_config = STRICT

    model: Name | None = Field(None, description="name of the model; default: the first one served")

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, given: Any) -> Any:
        """Drops fields that are null, as OpenAI's API does."""
        return _without_null(given)


class Sampled(ApiRequest):
    """A request for text; `with_options` adds the sampling options."""

    n: int = 1
    seed: int | None = Field(
        None,
        ge=-(2**63),
        lt=2**63,
        description="seed; equal seeds give equal texts; default: random",
    )

    def drawn_seed(self, defaults: Mapping[str, Any]) -> int:
        """The seed of the request, or a random one; 0 if tokens are not drawn,
        but the likeliest taken.

        Args:
            defaults: the model's defaults.
        """
        if self.seed is not None:
            return self.seed
        options = {**defaults, **self.options(0)}
        greedy = options.get("temperature") == 0 or options.get("strategy") == "deterministic"
        return 0 if greedy else secrets.randbits(31)

    def options(self, seed: int) -> dict[str, Any]:
        """The options of the request as arguments of the Python API."""
        names = {*(one.name for one in options_of(SamplingParams, "http")), *LOGITS_PROCESSORS}
        return {**self.model_dump(include=names, exclude_unset=True), "seed": seed}

    @property
    def constrained(self) -> bool:
        """True if the text has to satisfy a constraint."""
        return constrains(self.options(0))


class Usage(BaseModel):
    """OpenAI's stream_options; include_usage adds a last chunk with token counts."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False


class NamedSchema(BaseModel):
    """A JSON schema with its name."""

    model_config = STRICT

    name: Name | None = Field(None, description="ignored")
    description: str | None = Field(None, description="ignored")
    strict: bool | None = Field(None, description="ignored: the text always matches the schema")
    definition: dict[str, Any] = Field(alias="schema", description="the JSON schema")


class ResponseFormat(BaseModel):
    """OpenAI's response_format."""

    model_config = STRICT

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: NamedSchema | None = Field(None, description="the schema, for type json_schema")

    @model_validator(mode="after")
    def _has_schema(self) -> "ResponseFormat":
        if (self.type == "json_schema") != (self.json_schema is not None):
            text = "type json_schema and the field json_schema need each other: give both or none"
            raise PydanticCustomError("schema", "{text}", {"text": text})
        return self

    @property
    def schema_of_text(self) -> dict[str, Any] | None:
        """The JSON schema of the text; None for plain text."""
        if self.json_schema is not None:
            return self.json_schema.definition
        return {"type": "object"} if self.type == "json_object" else None


class Completing(Sampled):
    """A request to OpenAI's /v1/completions, with our sampling options."""

    prompt: str | list[StrictStr] | list[int] | list[list[int]] = Field(
        "", description="start of the text, or several starts; each a text or its token ids"
    )
    suffix: str | None = Field(
        None, description="end of the text: max_tokens tokens fill the gap before it"
    )
    max_tokens: int = Field(16, ge=0, description="largest number of new tokens")
    stop: Phrase | Annotated[list[Phrase], Field(max_length=4)] | None = Field(
        None, description="phrases at which a text ends"
    )
    stream: bool = False
    stream_options: Usage | None = None
    echo: bool = Field(False, description="true to put the prompt before each text")
    user: Name | None = Field(None, description="ignored")
    best_of: int | None = Field(
        None,
        ge=1,
        description="texts to generate; the n with the highest mean logprob are returned",
    )
    logprobs: int | None = Field(
        None,
        ge=0,
        le=20,
        description="likeliest tokens to return at each place, with log p of each token given those before it",
    )
    response_format: ResponseFormat | None = Field(
        None, description="format of the text behind the prompt: text, json_object or json_schema"
    )
    logit_bias: dict[Name, float] | None = Field(None, description="refused unless empty")
    presence_penalty: float = Field(0, description="refused unless 0")
    frequency_penalty: float = Field(0, description="refused unless 0")

    @property
    def prompts(self) -> list[Prompt]:
        return prompt_list(self.prompt) if self.prompt or isinstance(self.prompt, str) else []

    @property
    def drawn(self) -> int:
        """The number of texts to generate for each prompt."""
        return self.n if self.best_of is None else self.best_of

    @property
    def ranked(self) -> bool:
        """True if more texts are generated than returned."""
        return self.drawn > self.n

    @property
    def text_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the text behind the prompt; None without one."""
        return None if self.response_format is None else self.response_format.schema_of_text

    def options(self, seed: int) -> dict[str, Any]:
        schema = self.text_schema
        return super().options(seed) | ({} if schema is None else {"json_schema": schema})

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class Filling(Sampled):
    """A text with gaps: `[MASK]` is one token, `[MASK:4]` four."""

    text: str = Field(examples=["Tom was [MASK:3] because his [MASK] was lost."])


class Watching(Sampled):
    """A request for the frames of a text; give one of prompt, fill and edit."""

    prompt: str | None = Field(None, description="start of the text")
    fill: str | None = Field(None, description="a text with gaps to fill")
    edit: str | None = Field(None, description="a text of which a part is rewritten")
    length: int | None = Field(None, ge=2, description="tokens of the text; default: the model's")
    remask: float | None = Field(
        None, gt=0, le=1, description="share of the tokens of edit to rewrite"
    )
    remask_span: tuple[int, int] | None = Field(
        None,
        description="first token of edit to rewrite, and the token after the last",
        strict=False,
    )
    remask_uncertain: int | None = Field(
        None, ge=1, description="number of the least likely tokens of edit to rewrite"
    )
    remask_style: float | None = Field(
        None, gt=0, le=1, description="share of edit to rewrite, what speaks against the style"
    )
    style: Name | None = Field(None, description="class label of the edited text")


Pair = Annotated[tuple[str, str], Field(strict=False)]  # an array in JSON


class Scoring(ApiRequest):
    """Texts to score; a model of pairs takes pairs of source and target."""

    texts: str | Annotated[list[str | Pair], Field(min_length=1, strict=False)] = Field(
        description="a text, several texts, or pairs"
    )
    draws: int = Field(8, ge=1, description="noise draws of each row: more give a smaller error")
    seed: int = Field(0, ge=0, lt=2**63)


# Declared options as fields


class Processor(BaseModel):
    """The options of a logits processor."""

    model_config = STRICT

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        """Raises an error for an unknown option, with the most similar name."""
        for name in given if isinstance(given, dict) else ():
            if name not in cls.model_fields:
                error = unknown(f"option of {cls.__name__}", name, cls.model_fields)
                raise PydanticCustomError("unknown_option", "{error}", {"error": str(error)})
        return _without_null(given)


def with_options(request: type[M]) -> type[M]:
    """The request class with a field for each sampling option and each logits processor.

    Called when the application is made, after plugins have registered processors and samplers.
    """
    options = {one.name: one for one in options_of(SamplingParams, "http")}
    del options["seed"]  # `Sampled` declares it: the default is a random seed
    about = f"{options['sampler'].help}: {spelled_samplers()}"
    options["sampler"] = replace(options["sampler"], help=about)
    fields: dict[str, Any] = _fields(options.values(), usual=USUAL)
    for name, about in LOGITS_PROCESSORS.summaries().items():
        own: dict[str, Any] = _fields(options_of(LOGITS_PROCESSORS[name].Options, "http"))
        kind = create_model(name, __base__=Processor, __doc__=about, **own)
        fields[name] = (kind | None, Field(None, description=about))
    return create_model(request.__name__, __base__=request, __doc__=request.__doc__, **fields)


def _fields(options: Iterable[Option], usual: Iterable[str] = ()) -> dict[str, tuple[Any, Any]]:
    """Type and field of each option; those in `usual` default to None, the model's own default."""
    found = {}
    for one in options:
        kind: Any = Literal[one.choices] if one.choices else Name if one.kind is str else one.kind
        default: Any = ... if one.required else None if one.name in usual else one.default
        limits = {name: getattr(one, name) for name in ("ge", "gt", "le", "lt")}
        limits = {name: limit for name, limit in limits.items() if limit is not None}
        if one.many:
            kind = list[Phrase] if one.kind is str else list[kind]
            default, limits = list(one.default), {"max_length": MOST_PHRASES}
        kind = kind | None if default is None else kind
        found[one.name] = (kind, Field(default, description=one.help, **limits))
    return found


def _without_null(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return {name: value for name, value in given.items() if value is not None}
