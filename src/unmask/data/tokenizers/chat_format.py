"""Chats in the chat template of a tokenizer, and the tokens that end an answer."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError

Messages = str | Sequence[Mapping[str, Any]]
_ANSWER = "An answer."  # in a chat that shows which token ends an answer


class NoTemplate(UnmaskError):
    """Raised if a model without a chat template is asked to chat."""


@dataclass(frozen=True)
class ChatFormat:
    """The way in which a tokenizer writes chats.

    `ends` are the ids that end an answer: the one that the template writes behind it, and EOS.
    `answers` is the tokenizer of answers. Its EOS is the first end, and it has no BOS, since the
    template writes it.
    """

    tokenizer: Tokenizer
    answers: Tokenizer
    ends: tuple[int, ...]

    def ids(self, messages: Messages, answering: bool = True) -> list[int]:
        """The token ids of a chat.

        Args:
            messages: the messages, or the text of a single one of the user.
            answering: True adds the beginning of the assistant's next message.

        Returns:
            The ids.
        """
        return self.tokenizer.encode_special(rendered(self.tokenizer, messages, answering))

    def marked(self, messages: Messages) -> tuple[list[int], list[bool]]:
        """The token ids of a chat, and True at those that the assistant writes.

        Those are its messages, each with the token that ends it. Behind the last one the ids stop. A
        template without such a token gets EOS there.

        Args:
            messages: the messages.

        Returns:
            The ids and the marks.
        """
        listed, end = _checked(messages), self.ends[:1]
        parts: list[tuple[str, bool]] = []
        written = ""
        for number, message in enumerate(listed):
            if message["role"] != "assistant":
                continue
            before = rendered(self.tokenizer, listed[:number], True)
            after = rendered(self.tokenizer, listed[: number + 1], False)
            if not (before.startswith(written) and after.startswith(before)):
                raise UnmaskError(
                    "the chat template changes the messages before an answer, so a chat with several "
                    "answers has no one text: give chats with one answer"
                )
            parts += [(before[len(written) :], False), (after[len(before) :], True)]
            written = after
        ids: list[int] = []
        marks: list[bool] = []
        by_part = self.tokenizer.encode_parts([text for text, _ in parts])
        for number, ((_, answer), own) in enumerate(zip(parts, by_part, strict=True), 1):
            stop = next((at for at, token in enumerate(own, 1) if token in self.ends), None)
            if answer and number == len(parts):
                own = [*own, *end] if stop is None else own[:stop]
                stop = None
            stop = len(own) if stop is None else stop
            ids += own
            marks += [answer and at < stop for at in range(len(own))]
        return ids, marks


@lru_cache(8)
def chat_format(tokenizer: Tokenizer) -> ChatFormat:
    """The chat format of a tokenizer.

    Args:
        tokenizer: a tokenizer with a chat template. Another one raises an error.

    Returns:
        The format.
    """
    v = tokenizer.vocabulary
    found = [end for end in (_turn_end(tokenizer), v.eos_id) if end is not None]
    vocabulary = replace(v, bos_id=None, eos_id=next(iter(found), None))
    return ChatFormat(tokenizer, tokenizer.having(vocabulary, {}), tuple(dict.fromkeys(found)))


def rendered(tokenizer: Tokenizer, messages: Messages, answering: bool = True) -> str:
    """The text of a chat, in which special tokens are written by name.

    Args:
        tokenizer: a tokenizer with a chat template.
        messages: the messages, or the text of a single one of the user.
        answering: True adds the beginning of the assistant's next message.

    Returns:
        The text.
    """
    if tokenizer.chat_template is None:
        raise NoTemplate(
            "this model has no chat template: use generate, or give a model that was trained on chats"
        )
    try:
        return _template(tokenizer.chat_template).render(
            messages=_checked(messages),
            add_generation_prompt=answering,
            **tokenizer.special_names(),
        )
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        reason = f"the chat template of the model refuses the messages: {error}"
        raise UnmaskError(reason.partition("\n")[0][:300]) from None


def _checked(messages: Messages) -> list[dict[str, Any]]:
    """The messages as dictionaries with a role and a text."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence) or not messages:
        raise UnmaskError(f"a chat is a text or a list of messages, not {messages!r}")
    found = []
    for number, message in enumerate(messages, 1):
        fields = dict(message) if isinstance(message, Mapping) else {}
        if not all(isinstance(fields.get(name), str) for name in ("role", "content")):
            raise UnmaskError(
                f"message {number} of the chat needs a role and a content that are texts: give "
                '{"role": "user", "content": "…"}'
            )
        found.append(fields)
    return found


def _turn_end(tokenizer: Tokenizer) -> int | None:
    """The first special token that the template writes behind an answer; None without one."""
    chat = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": _ANSWER}]
    _, found, behind = rendered(tokenizer, chat, answering=False).rpartition(_ANSWER)
    if not found:
        return None
    plain = set(tokenizer.encode(behind))
    return next((id for id in tokenizer.encode_special(behind) if id not in plain), None)


class _Generation(Extension):
    """The block {% generation %}, which marks answers for training; its content is written as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(16)
def _template(source: str) -> Template:
    """A template in a sandbox, since the file of a model is untrusted."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def today(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    environment.globals |= {"raise_exception": raise_exception, "strftime_now": today}
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)  # as transformers does
    return environment.from_string(source)
