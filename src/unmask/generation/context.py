"""Context: passages that precede a prompt, and the sources that find them.

A source's options import no torch, so `unmask generate --help` starts at once.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from unmask.registry import Registry


class ContextSource(ABC):
    """Finds the passages that precede a prompt as its context, from the options of `unmask generate`.

    `Options` is a frozen dataclass of `option` fields, which become options of the command. The source is
    active if one of them is given.

    Example:
        >>> @CONTEXT_SOURCES.register("same")
        ... class Same(ContextSource):
        ...     Options = SameOptions  # a frozen dataclass with the field `text`
        ...     def passages(self, prompt):
        ...         return [self.options.text]
    """

    Options: ClassVar[type]

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def passages(self, prompt: str) -> list[str]:
        """The passages for a prompt, the best first; none if nothing fits."""

    def without(self, prompt: str) -> str:
        """The line that is printed if no passage fits a prompt."""
        return f"no passage fits {prompt[:40]!r}: the text has no context"


CONTEXT_SOURCES: Registry[ContextSource] = Registry("context source")
