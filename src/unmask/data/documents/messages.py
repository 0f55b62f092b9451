"""Chats as documents: a list of messages, each with a role and a text."""

import json
from typing import Any

from unmask.errors import UnmaskError

ASSISTANT = "assistant"  # the role whose messages a model learns to write


def chat_of(value: object, location: str, field: str) -> str:
    """A chat as a document: its messages in JSON.

    Args:
        value: the value of the field: a list of messages, or its JSON.
        location: the record, for errors.
        field: the name of the field.

    Returns:
        The document; an empty one for null or an empty list.
    """
    if isinstance(value, str):  # of a table
        try:
            value = json.loads(value or "null")
        except (ValueError, RecursionError):
            raise UnmaskError(f"{location}: field {field!r} is no list of messages") from None
    if value is None or value == []:
        return ""
    if not isinstance(value, list):
        raise UnmaskError(
            f"{location}: field {field!r} is {type(value).__name__}, not a list of messages"
        )
    messages = []
    for message in value:
        fields = message if isinstance(message, dict) else {}
        role, content = fields.get("role"), fields.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise UnmaskError(
                f"{location}: a message of {field!r} needs a role and a content that are texts"
            )
        messages.append({"role": role, "content": content})
    if all(message["role"] != ASSISTANT for message in messages):
        raise UnmaskError(f"{location}: the chat of {field!r} has no message of the assistant")
    text = json.dumps(messages, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnmaskError(f"{location}: field {field!r} holds a lone surrogate") from None
    return text


def messages_of(document: str) -> list[dict[str, Any]]:
    """The messages of a document of `chat_of`.

    Args:
        document: the document.

    Returns:
        The messages.

    Example:
        >>> messages_of('[{"role": "user", "content": "Hi"}]')
        [{'role': 'user', 'content': 'Hi'}]
    """
    try:
        found: list[dict[str, Any]] = json.loads(document)
    except ValueError:
        raise UnmaskError("the document is a text and no chat: set data.messages_field") from None
    return found
