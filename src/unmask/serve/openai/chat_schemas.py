"""Request bodies of OpenAI's chat and responses routes."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from unmask.generation.logits_processor import LOGITS_PROCESSORS
from unmask.generation.sampling_params import SamplingParams
from unmask.options import options_of
from unmask.serve.schemas import STRICT, Name, Phrase, ResponseFormat, Sampled, Usage

MOST_MESSAGES = 1024


class TextPart(BaseModel):
    """A part of a message."""

    model_config = STRICT

    type: Literal["text", "input_text", "output_text"]
    text: str


class Message(BaseModel):
    """A message of a chat."""

    model_config = ConfigDict(extra="ignore", strict=True)

    role: Name
    content: str | list[TextPart] = Field(description="text, or parts of text")

    @property
    def plain(self) -> dict[str, Any]:
        """Role and text, as a chat template reads them."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": self.role, "content": text}


class Chatting(Sampled):
    """A request to OpenAI's /v1/chat/completions, with our sampling options."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    max_tokens: int | None = Field(None, ge=0, description="largest number of new tokens")
    max_completion_tokens: int | None = Field(None, ge=0, description="the same as max_tokens")
    stop: Phrase | Annotated[list[Phrase], Field(max_length=4)] | None = Field(
        None, description="phrases at which a text ends"
    )
    stream: bool = False
    stream_options: Usage | None = None
    response_format: ResponseFormat | None = Field(None, description="format of the message")
    user: Name | None = Field(None, description="ignored")
    logprobs: Literal[False] | None = Field(None, description="refused: use /v1/completions")

    @property
    def conversation(self) -> list[dict[str, Any]]:
        return [message.plain for message in self.messages]

    @property
    def new_tokens(self) -> int | None:
        both = (self.max_completion_tokens, self.max_tokens)
        return next((tokens for tokens in both if tokens is not None), None)

    @property
    def common(self) -> dict[str, Any]:
        """The fields that a completion has too."""
        names = {*sampling_names(), "n", "stop", "stream", "stream_options", "response_format"}
        return self.model_dump(include=names, exclude_unset=True, by_alias=True)


class TextFormat(BaseModel):
    """The field `text` of a response request."""

    model_config = ConfigDict(extra="ignore", strict=True)

    format: dict[str, Any] = Field(default_factory=lambda: {"type": "text"})


class Responding(Sampled):
    """A request to OpenAI's /v1/responses, with our sampling options."""

    input: str | Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    instructions: str | None = Field(None, description="a message of the system, before the input")
    max_output_tokens: int | None = Field(None, ge=0, description="largest number of new tokens")
    text: TextFormat | None = Field(None, description="format of the message")
    n: Literal[1] = 1
    stream: Literal[False] = Field(False, description="refused: use /v1/chat/completions")
    store: bool | None = Field(None, description="ignored: nothing is stored")
    user: Name | None = Field(None, description="ignored")

    @property
    def conversation(self) -> list[dict[str, Any]]:
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        if isinstance(self.input, str):
            return [*system, {"role": "user", "content": self.input}]
        return [*system, *(message.plain for message in self.input)]

    @property
    def new_tokens(self) -> int | None:
        return self.max_output_tokens

    @property
    def common(self) -> dict[str, Any]:
        """The fields that a completion has too."""
        found = self.model_dump(include=sampling_names(), exclude_unset=True, by_alias=True)
        if self.text is not None and self.text.format.get("type") == "json_schema":
            schema = {name: part for name, part in self.text.format.items() if name != "type"}
            found["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.text is not None:
            found["response_format"] = self.text.format
        return found


def sampling_names() -> set[str]:
    """The names of the sampling options and logits processors."""
    return {*(one.name for one in options_of(SamplingParams, "http")), *LOGITS_PROCESSORS}
