"""The prompt of a chat: messages in the chat template of the model's tokenizer."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.serve.responses import Problem


def chat_ids(tokenizer: Tokenizer, messages: Sequence[dict[str, Any]]) -> list[int]:
    """The token ids of the messages and of the start of the assistant's next message."""
    if tokenizer.chat_template is None:
        raise Problem(
            400,
            "this model has no chat template: send a prompt to /v1/completions instead",
            "no_chat_template",
            param="model",
        )
    names = tokenizer.special_names()
    try:
        text = _template(tokenizer.chat_template).render(
            messages=messages, add_generation_prompt=True, **names
        )
    except TemplateError as error:
        reason = f"the chat template of the model refuses the messages: {error}"
        raise Problem(400, reason[:300], param="messages") from None
    return tokenizer.encode_special(text)


@lru_cache(16)
def _template(source: str) -> Template:
    """A template in a sandbox, since the file of a model is untrusted."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment.globals["raise_exception"] = raise_exception
    return environment.from_string(source)
