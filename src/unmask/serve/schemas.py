"""What clients may ask, as the OpenAPI document tells it."""

import secrets
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictStr, StringConstraints, model_validator

Phrase = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Name = Annotated[str, StringConstraints(max_length=200)]
OF_SAMPLING = (
    *("n", "sampler", "steps", "grid", "temperature", "top_k", "top_p", "strategy", "tail"),
    *("ending", "seed", "regex", "ban", "include", "label", "guidance"),
)


class Question(BaseModel):
    """A field that nobody knows is a mistake, and so are NaN and infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: Name | None = Field(None, description="which model; the first one served unless given")

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, given: Any) -> Any:
        """As OpenAI's API takes it."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}


class Sampled(Question):
    """The options of everything that writes; those left out are as in the Python API."""

    n: int = Field(1, ge=1, description="how many texts")
    sampler: Name | None = Field(None, description="such as ancestral or confidence:noise=1")
    steps: int | None = Field(
        None, ge=1, description="denoising steps; as many as tokens if left out"
    )
    grid: Name | None = Field(None, description="when they are taken: uniform, cosine, or 1,0.5,0")
    temperature: float | None = Field(None, ge=0, le=100)
    top_k: int | None = Field(None, ge=1, le=2**31)
    top_p: float | None = Field(None, gt=0, le=1)
    strategy: Literal["stochastic", "deterministic", "hybrid"] = "stochastic"
    tail: float | None = Field(None, ge=0, le=1, description="the share that hybrid does not draw")
    ending: Literal["free", "first"] = Field(
        "free", description="first: where a target ends is settled before its words"
    )
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="random unless given")
    regex: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        None, description="what the whole text must match"
    )
    ban: list[Phrase] = Field([], max_length=16, description="must not occur")
    include: list[Phrase] = Field([], max_length=16, description="must occur")
    label: Name | None = Field(None, description="the class of a model trained with labels")
    guidance: float = Field(1.0, ge=0, le=1000)

    @property
    def drawn_seed(self) -> int:
        """The seed that was given, or else one that nobody knows beforehand."""
        return secrets.randbits(31) if self.seed is None else self.seed

    def options(self, seed: int) -> dict[str, Any]:
        """As the Python API takes them."""
        given = {name: getattr(self, name) for name in OF_SAMPLING}
        return {**{name: value for name, value in given.items() if value is not None}, "seed": seed}


class Usage(BaseModel):
    """OpenAI's switch for a last chunk with the tokens that were used."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False


class Completing(Sampled):
    """OpenAI's /v1/completions, and beside it the options of our samplers."""

    prompt: str | list[StrictStr] = Field("", description="what the text begins with, or several")
    suffix: str | None = Field(
        None, description="what follows: max_tokens tokens are filled in between"
    )
    max_tokens: int = Field(16, ge=1, description="tokens to write at most")
    stop: Phrase | Annotated[list[Phrase], Field(max_length=4)] | None = Field(
        None, description="where a text ends"
    )
    stream: bool = False
    stream_options: Usage | None = None
    echo: bool = Field(False, description="whether texts begin with their prompt")
    user: Name | None = Field(None, description="not read")
    best_of: int | None = Field(None, description="refused unless it is n")
    logprobs: int | None = Field(None, description="refused: a text has no one order")
    logit_bias: dict[Name, float] | None = Field(None, description="refused unless empty")
    presence_penalty: float = Field(0, description="refused unless 0")
    frequency_penalty: float = Field(0, description="refused unless 0")

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class Filling(Sampled):
    """A text with gaps, `[MASK]` one token and `[MASK:4]` four."""

    text: str = Field(examples=["Tom was [MASK:3] because his [MASK] was lost."])


class Watching(Sampled):
    """A text forming: one of prompt, fill and edit."""

    prompt: str | None = Field(None, description="what the text begins with")
    fill: str | None = Field(None, description="a text with gaps to fill")
    edit: str | None = Field(None, description="a text to rewrite a part of")
    length: int | None = Field(None, ge=2, description="tokens in all; the model's own if left out")
    remask: float | None = Field(
        None, gt=0, le=1, description="the share of edit that is rewritten"
    )
    remask_span: tuple[int, int] | None = Field(
        None, description="or these tokens of it", strict=False
    )
    remask_uncertain: int | None = Field(None, ge=1, description="or its least likely tokens")


class Scoring(Question):
    """Texts to measure; a model of pairs takes pairs of source and target."""

    texts: str | Annotated[list[str | tuple[str, str]], Field(min_length=1, strict=False)] = Field(
        description="a text, several, or pairs"
    )
    draws: int = Field(8, ge=1, description="of the noise: more have a smaller error")
    seed: int = Field(0, ge=0, lt=2**63)
