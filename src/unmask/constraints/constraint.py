"""What a user may ask of a text, as one machine: a regular expression, phrases, tokens by place."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from unmask.constraints.byte_automaton import ByteMachine, banned, containing
from unmask.constraints.regex import regex
from unmask.errors import UnmaskError

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Constraint:
    """A request: the whole text matches `regex`, holds no `ban` and every `include`; tokens by column."""

    regex: str | None = None
    ban: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    allowed: Mapping[int, Collection[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for phrase in (*self.ban, *self.include):
            if not phrase:
                raise UnmaskError("a phrase to ban or include is empty: leave it out")
            _bytes(phrase)
        for phrase in self.include:
            for other in self.ban:
                if other in phrase:
                    raise UnmaskError(
                        f"{quoted(phrase)} is to be included and contains {quoted(other)}, which is "
                        "banned"
                    )

    def __bool__(self) -> bool:
        return self != Constraint()

    def machines(self) -> list[tuple[str, ByteMachine]]:
        """The machine of every part that is about the text, with a name for messages."""
        machines: list[tuple[str, ByteMachine]] = []
        if self.regex is not None:
            machines.append(("the regular expression", regex(self.regex)))
        if self.ban:
            machines.append(("the banned phrases", banned(map(_bytes, self.ban))))
            if any(REPLACEMENT in phrase for phrase in self.ban):
                # broken bytes are shown as that character too
                machines.append(("whole characters", regex("(?s).*")))
        for phrase in self.include:
            machines.append((f"the phrase {quoted(phrase)}", containing([_bytes(phrase)])))
        return machines


def _bytes(phrase: str) -> bytes:
    try:
        return phrase.encode()
    except UnicodeEncodeError:
        raise UnmaskError(
            f"the phrase {quoted(phrase)} holds a lone surrogate: it is no text"
        ) from None


SHOWN = 60  # characters of a text in a message


def quoted(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")
