"""A text during generation: the part that is final, up to EOS or a stop phrase."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.samplers.core.canvas import Frame

BROKEN = "\ufffd"  # decoded from an incomplete character at the end of a text


def settled_tokens(frame: Frame, start: int, stop: int, mask_id: int, revises: bool) -> list[int]:
    """The number of tokens of each row, from `start` on, that no later step changes.

    Args:
        frame: the rows.
        start: the first column of the text.
        stop: the column behind it.
        mask_id: id of MASK.
        revises: True if the sampler may change tokens that it has written.

    Returns:
        The numbers.
    """
    written = frame.tokens != mask_id
    settled = frame.settled
    if settled is None:
        settled = torch.zeros_like(written) if revises else written
    return (settled & written)[:, start:stop].long().cumprod(1).sum(1).tolist()


@dataclass
class GrowingText:
    """A text during generation: the part sent so far and the finish reason.

    `given` are the ids before the text, on which its first spaces can depend; None if the text is
    decoded alone.
    """

    tokenizer: Tokenizer
    ends: Sequence[int] = ()  # ids that end the text
    stops: Sequence[str] = ()  # phrases at which it ends
    given: Sequence[int] | None = None
    spaced: bool = False  # True if the first new token contains the space at the prompt's end
    echo: str = ""  # text that is sent first
    whole: bool = False  # True if a constraint makes the text complete, also without EOS
    sent: str = ""
    finish: str = ""  # stop or length; empty before the end
    tokens: int = 0
    ids: list[int] = field(default_factory=list)  # tokens of the text, up to a stop
    _read: int = -1  # settled tokens at the last call of `more`

    def more(self, ids: Sequence[int], ready: int) -> str:
        """The new part of the text, from its first `ready` tokens, which no longer change.

        Args:
            ids: all tokens of the text.
            ready: the number of those that are final.

        Returns:
            The part that was not sent yet.
        """
        if self.finish or ready == self._read:
            return ""
        self._read = ready
        return self._send(list(ids[:ready]), last=False)

    def rest(self, ids: Sequence[int]) -> str:
        """The rest of the text.

        Args:
            ids: all tokens of the text.

        Returns:
            The part that was not sent yet.
        """
        if self.finish:
            return ""
        found = self._send(list(ids), last=True)
        self.finish = self.finish or ("stop" if self.whole else "length")
        return found

    def _send(self, ids: list[int], last: bool) -> str:
        """The unsent part of the text of some tokens; sets the finish reason at EOS or a stop."""
        end = next((at for at, token in enumerate(ids) if token in self.ends), None)
        ids = ids[:end]
        text = self._text(ids)
        found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        self.tokens, self.ids = len(ids), ids
        if found:
            text = text[: min(found)]
            while self.ids and len(self._text(self.ids[:-1])) >= len(text):
                self.ids = self.ids[:-1]  # tokens behind the stop are no part of the text
        if found or end is not None:
            self.finish = "stop"
        elif not last:
            text = self._settled(text)
        text = self.echo + text
        more, self.sent = text[len(self.sent) :], max(text, self.sent, key=len)
        return more

    def _text(self, ids: list[int]) -> str:
        """The text of tokens, decoded with those before it."""
        if self.given is None:
            return self.tokenizer.decode(ids)
        given = self.tokenizer.decode(list(self.given))
        whole = self.tokenizer.decode([*self.given, *ids])
        text = whole[len(given) :] if whole.startswith(given) else self.tokenizer.decode(ids)
        return text.removeprefix(" ") if self.spaced else text

    def _settled(self, text: str) -> str:
        """The text without an incomplete character or the possible start of a stop phrase."""
        text = text.rstrip(BROKEN)
        longest = max(map(len, self.stops), default=1)
        held = next(
            (
                n
                for n in range(min(longest - 1, len(text)), 0, -1)
                if any(stop.startswith(text[-n:]) for stop in self.stops)
            ),
            0,
        )
        return text[: len(text) - held]
