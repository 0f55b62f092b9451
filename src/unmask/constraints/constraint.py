"""What a user may ask of a text, as one machine: a regular expression, phrases, tokens by place."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import torch
from jaxtyping import Float64
from torch import Tensor

from unmask.constraints.machine import ByteMachine, anything, banned, containing, product
from unmask.constraints.reasons import quoted, reason
from unmask.constraints.regex import regex
from unmask.constraints.tokens import Passes, TokenMachine, Tokens
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

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

    def compile(
        self,
        pieces: Sequence[bytes | None] | None,
        vocabulary: Vocabulary,
        never: Collection[int] = (),
    ) -> "Compiled":
        """The request over a vocabulary whose tokens decode to these bytes; `never`: not to be drawn.

        `pieces` is None where a text is not simply its tokens' bytes one after another.
        """
        machines = self.machines()
        if pieces is None and machines:
            raise UnmaskError(
                "this tokenizer's text is not its tokens' bytes in a row: regular expressions and "
                "phrases need characters, bytes or a byte-level BPE"
            )
        known = [b""] * vocabulary.size if pieces is None else list(pieces)
        known += [None] * (vocabulary.size - len(known))
        for column, ids in self.allowed.items():
            _check_set(column, ids, vocabulary)
        return Compiled(self, known, vocabulary, tuple(never), machines)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A constraint over one vocabulary: refuses what cannot be, then says what may be written."""

    constraint: Constraint
    pieces: Sequence[bytes | None]
    vocabulary: Vocabulary
    never: tuple[int, ...]
    machines: list[tuple[str, ByteMachine]]

    @cached_property
    def machine(self) -> TokenMachine:
        """All parts as one."""
        whole = reduce(product, (m for _, m in self.machines)) if self.machines else anything()
        return self.lift(whole, self.constraint.allowed)

    def lift(
        self, machine: ByteMachine, sets: Mapping[int, Collection[int]] | None = None
    ) -> TokenMachine:
        """A machine over bytes as one over the tokens."""
        v = self.vocabulary
        return TokenMachine.build(machine, self.pieces, v.eos_id, v.mask_id, self.never, sets)

    def passes(self, start: int) -> Passes:
        """What answers, again and again, which tokens may be written; text from `start` on."""
        return Passes(self.machine, start)

    def check(self, z: Tokens, start: int) -> None:
        """Refuses rows that no text can complete, with the reason."""
        for column, ids in self.constraint.allowed.items():
            _check_place(column, ids, z, self.vocabulary.mask_id)
        bad = (~self.machine.feasible(z, start)).nonzero()[:, 0].tolist()
        if bad:
            raise UnmaskError(reason(self, z[bad[0]].tolist(), start))

    def place(
        self,
        z: Tokens,
        start: int,
        tokenisations: Sequence[Sequence[Sequence[int]]],
        uniforms: Float64[Tensor, "rows phrases length"],
    ) -> Tokens:
        """Writes each phrase to include at a place drawn evenly among all where it fits.

        The model then writes around it. `tokenisations` has, for each phrase, ways to write it, the
        better ones first. A phrase that is there already, or that fits nowhere, is left to the
        machine, which sees to it anyway.
        """
        z = z.clone()
        phrases = zip(self.constraint.include, tokenisations, strict=True)
        for number, (phrase, ways) in enumerate(phrases):
            missing = [_bytes(phrase) not in self.fixed_text(row, start) for row in z.tolist()]
            wanting = torch.tensor(missing, dtype=torch.bool)
            for way in ways:
                if _bytes(phrase) not in self.text(way) or not wanting.any():
                    continue
                fits = self.machine.fits(z, way, start) & wanting[:, None]
                # the largest of even numbers is an even choice
                column = uniforms[:, number].masked_fill(~fits, -1).argmax(1)
                rows = fits.any(1).nonzero()[:, 0]
                for i, token in enumerate(way):
                    z[rows, column[rows] + i] = token
                wanting[rows] = False
        return z

    def text(self, tokens: Sequence[int]) -> bytes:
        """The bytes of tokens; special ones have none."""
        return b"".join(self.pieces[token] or b"" for token in tokens)

    def fixed_text(self, row: list[int], start: int) -> "FixedText":
        """The runs of a row that are written already, up to a fixed EOS."""
        eos, mask = self.vocabulary.eos_id, self.vocabulary.mask_id
        text = row[start:]
        if eos in text:
            text = text[: text.index(eos)]
        runs: list[list[int]] = [[]]
        for token in text:
            if token != mask:
                runs[-1].append(token)
            elif runs[-1] or len(runs) == 1:
                runs.append([])
        return FixedText([self.text(run) for run in runs], len(text))


@dataclass(frozen=True)
class FixedText:
    """What a row says already: runs of bytes with gaps between them, in a room of so many tokens."""

    runs: list[bytes]
    room: int

    def __contains__(self, phrase: bytes) -> bool:
        return any(phrase in run for run in self.runs)


def _bytes(phrase: str) -> bytes:
    try:
        return phrase.encode()
    except UnicodeEncodeError:
        raise UnmaskError(
            f"the phrase {quoted(phrase)} holds a lone surrogate: it is no text"
        ) from None


def _check_set(column: int, ids: Collection[int], vocabulary: Vocabulary) -> None:
    """An allowed set must name tokens."""
    if not ids:
        raise UnmaskError(f"the set of tokens allowed at place {column} is empty")
    for token in ids:
        if not 0 <= token < vocabulary.size or token == vocabulary.mask_id:
            raise UnmaskError(
                f"token {token}, allowed at place {column}, is MASK or outside a vocabulary of "
                f"{vocabulary.size}"
            )


def _check_place(column: int, ids: Collection[int], z: Tokens, mask_id: int) -> None:
    """An allowed set must concern a place of the row and agree with what is there."""
    if not 0 <= column < z.shape[1]:
        raise UnmaskError(f"place {column} lies outside a row of {z.shape[1]} tokens")
    for token in z[:, column].tolist():
        if token != mask_id and token not in ids:
            raise UnmaskError(
                f"place {column} is fixed to token {token}, which is not allowed there"
            )
