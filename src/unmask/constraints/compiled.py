"""A constraint compiled for one row, and the reason if no text satisfies it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from jaxtyping import Float64
from torch import Tensor

from unmask.constraints.byte_automaton import ByteMachine, anything, product
from unmask.constraints.constraint import Constraint, _bytes, quoted
from unmask.constraints.token_automaton import Passes, TokenMachine, Tokens
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary


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


def compile_constraint(
    constraint: Constraint,
    pieces: Sequence[bytes | None] | None,
    vocabulary: Vocabulary,
    never: Collection[int] = (),
) -> Compiled:
    """The request over a vocabulary whose tokens decode to these bytes; `never`: not to be drawn.

    `pieces` is None where a text is not simply its tokens' bytes one after another.
    """
    machines = constraint.machines()
    if pieces is None and machines:
        raise UnmaskError(
            "this tokenizer's text is not its tokens' bytes in a row: regular expressions and "
            "phrases need characters, bytes or a byte-level BPE"
        )
    known = [b""] * vocabulary.size if pieces is None else list(pieces)
    known += [None] * (vocabulary.size - len(known))
    for column, ids in constraint.allowed.items():
        _check_set(column, ids, vocabulary)
    return Compiled(constraint, known, vocabulary, tuple(never), machines)


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


@dataclass(frozen=True)
class FixedText:
    """What a row says already: runs of bytes with gaps between them, in a room of so many tokens."""

    runs: list[bytes]
    room: int

    def __contains__(self, phrase: bytes) -> bool:
        return any(phrase in run for run in self.runs)


def _check_place(column: int, ids: Collection[int], z: Tokens, mask_id: int) -> None:
    """An allowed set must concern a place of the row and agree with what is there."""
    if not 0 <= column < z.shape[1]:
        raise UnmaskError(f"place {column} lies outside a row of {z.shape[1]} tokens")
    for token in z[:, column].tolist():
        if token != mask_id and token not in ids:
            raise UnmaskError(
                f"place {column} is fixed to token {token}, which is not allowed there"
            )


def reason(compiled: "Compiled", row: list[int], start: int) -> str:
    """The most telling reason: a phrase in the fixed text, one part's length, then parts together."""
    written = compiled.fixed_text(row, start)
    for phrase in compiled.constraint.ban:
        if phrase.encode() in written:
            return f"the fixed text contains {quoted(phrase)}, which is banned"
    for name, machine in compiled.machines:
        why = _alone(compiled, name, machine, row, start)
        if why:
            return why
    names = [name for name, _ in compiled.machines]
    if compiled.constraint.allowed:
        names.append("the allowed tokens")
    together = f"{', '.join(names)} together" if len(names) > 1 else "".join(names)
    return f"no text of {tokens(written.room)} satisfies {together}{_beside(compiled, row, start)}"


def _alone(
    compiled: "Compiled", name: str, machine: ByteMachine, row: list[int], start: int
) -> str | None:
    """Why one part alone has no text, if it has none."""
    lifted = compiled.lift(machine)
    if lifted.feasible(torch.tensor([row]), start).item():
        return None
    room = compiled.fixed_text(row, start).room
    fitting = lifted.lengths(room)
    if not fitting:
        return f"no text in this vocabulary satisfies {name}"
    if room in fitting:
        return f"{name} does not fit{_beside(compiled, row, start)}"
    below, above = [n for n in fitting if n < room], [n for n in fitting if n > room]
    if not below:
        return f"{name} needs at least {tokens(above[0])} and there is room for {room}"
    if not above:
        return f"{name} takes at most {tokens(below[-1])} and there are {room} to fill"
    return f"{name} fits {below[-1]} or {above[0]} tokens, but not {room}"


def _beside(compiled: "Compiled", row: list[int], start: int) -> str:
    """The fixed text, as far as a message has room for it."""
    runs = [run.decode("utf-8", "replace") for run in compiled.fixed_text(row, start).runs]
    return f" beside the fixed text {quoted('…'.join(runs))}" if any(runs) else ""


def tokens(count: int) -> str:
    """A number of tokens in words."""
    return f"{count} token{'s' if count != 1 else ''}"
