"""Constraints compiled for a vocabulary, and the reason if no text satisfies one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float64
from torch import Tensor

from unmask.constraints.budget import Budget
from unmask.constraints.byte_automaton import ByteMachine, anything, product
from unmask.constraints.constraint import Constraint, _bytes, quoted
from unmask.constraints.token_automaton import Passes, TokenMachine, Tokens
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Compiled:
    """A constraint compiled for one vocabulary: checks rows and gives the allowed tokens."""

    constraint: Constraint
    pieces: Sequence[bytes | None]
    vocabulary: Vocabulary
    never: tuple[int, ...]
    machines: list[tuple[str, ByteMachine]]
    budget: Budget

    @property
    def nbytes(self) -> int:
        """The bytes of the tables."""
        return self.machine.nbytes + sum(m.table.nbytes for _, m in self.machines)

    @cached_property
    def machine(self) -> TokenMachine:
        """The automaton over tokens of all parts of the constraint."""
        combined = self.machines[0][1] if self.machines else anything()
        for _, other in self.machines[1:]:
            combined = product(combined, other, self.budget)
        return self.lift(combined, self.constraint.allowed)

    def lift(
        self, machine: ByteMachine, sets: Mapping[int, Collection[int]] | None = None
    ) -> TokenMachine:
        """An automaton over tokens from one over bytes.

        Args:
            machine: The automaton over bytes.
            sets: Allowed token ids by column.

        Returns:
            The automaton over tokens.
        """
        v = self.vocabulary
        return TokenMachine.build(
            machine, self.pieces, v.eos_id, v.mask_id, self.never, sets, self.budget
        )

    def passes(self, start: int) -> Passes:
        """Allowed tokens of rows that change from call to call.

        Args:
            start: First column of the text.

        Returns:
            An object that reuses its results for unchanged tokens.
        """
        return Passes(self.machine, start)

    def check(self, z: Tokens, start: int) -> None:
        """Raises an error with the reason if a row cannot be completed.

        Args:
            z: Rows with masks.
            start: First column of the text.

        Raises:
            UnmaskError: If no text satisfies the constraint.
        """
        for column, ids in self.constraint.allowed.items():
            _check_column(column, ids, z, self.vocabulary.mask_id)
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
        """Writes each phrase to include at a random position, uniform among all that fit.

        The model then writes the text around it. A phrase that a row contains already is not
        written again. A phrase that fits nowhere is left to the automaton, which enforces it.

        Args:
            z: Rows with masks.
            start: First column of the text.
            tokenisations: Token ids of each phrase, in several forms, the preferred one first.
            uniforms: Random numbers of each row, phrase and column.

        Returns:
            The rows with the phrases.
        """
        z = z.clone()
        phrases = zip(self.constraint.include, tokenisations, strict=True)
        for number, (phrase, variants) in enumerate(phrases):
            absent = [_bytes(phrase) not in self.fixed_text(row, start) for row in z.tolist()]
            missing = torch.tensor(absent, dtype=torch.bool)  # [rows]
            for variant in variants:
                if _bytes(phrase) not in self.text(variant) or not missing.any():
                    continue
                fits = self.machine.fits(z, variant, start) & missing[:, None]
                # the position of the largest uniform is a uniform choice
                column = uniforms[:, number].masked_fill(~fits, -1).argmax(1)
                rows = fits.any(1).nonzero()[:, 0]
                for i, token in enumerate(variant):
                    z[rows, column[rows] + i] = token
                missing[rows] = False
        return z

    def text(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some tokens; special tokens have none.

        Args:
            tokens: Token ids.

        Returns:
            The bytes of the text.
        """
        return b"".join(self.pieces[token] or b"" for token in tokens)

    def fixed_text(self, row: list[int], start: int) -> "FixedText":
        """The fixed tokens of a row as text, up to a fixed EOS.

        Args:
            row: Token ids with masks.
            start: First column of the text.

        Returns:
            The runs of fixed text between masks.
        """
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
    budget: Budget | None = None,
) -> Compiled:
    """Compiles a constraint for a vocabulary.

    Args:
        constraint: The constraint.
        pieces: The bytes of each token; None if a text is not the concatenation of such bytes.
        vocabulary: The vocabulary.
        never: Token ids that are never drawn.
        budget: Limits of its size; by default those of `LIMITS`.

    Returns:
        The compiled constraint.
    """
    budget = budget or Budget()
    machines = constraint.machines(budget)
    if pieces is None and machines:
        raise UnmaskError(
            "this tokenizer does not map each token to bytes, as regular expressions and phrases "
            "need: choose a model with characters, bytes, a byte-level BPE or SentencePiece with bytes"
        )
    known = [b""] * vocabulary.size if pieces is None else list(pieces)
    known += [None] * (vocabulary.size - len(known))
    for column, ids in constraint.allowed.items():
        _check_set(column, ids, vocabulary)
    return Compiled(constraint, known, vocabulary, tuple(never), machines, budget)


def _check_set(column: int, ids: Collection[int], vocabulary: Vocabulary) -> None:
    """Raises an error if the allowed tokens of a position are empty or not in the vocabulary."""
    if not ids:
        raise UnmaskError(
            f"the set of tokens allowed at position {column} is empty: allow at least one"
        )
    for token in ids:
        if not 0 <= token < vocabulary.size or token == vocabulary.mask_id:
            raise UnmaskError(
                f"token {token}, allowed at position {column}, is MASK or outside a vocabulary of "
                f"{vocabulary.size}: remove it"
            )


@dataclass(frozen=True)
class FixedText:
    """The fixed text of a row: runs of bytes between masks, and the text's length in tokens."""

    runs: list[bytes]
    length: int

    def __contains__(self, phrase: bytes) -> bool:
        return any(phrase in run for run in self.runs)


def _check_column(column: int, ids: Collection[int], z: Tokens, mask_id: int) -> None:
    """Raises an error if a column is outside the row, or if a fixed token is not allowed there."""
    if not 0 <= column < z.shape[1]:
        raise UnmaskError(
            f"position {column} lies outside a row of {z.shape[1]} tokens: "
            f"choose 0 to {z.shape[1] - 1}"
        )
    for token in z[:, column].tolist():
        if token != mask_id and token not in ids:
            raise UnmaskError(
                f"position {column} is fixed to token {token}, which is not allowed there: allow it"
            )


def reason(compiled: "Compiled", row: list[int], start: int) -> str:
    """The reason why a row cannot be completed.

    It is the first of these: a banned phrase in the fixed text, one part of the constraint that
    fails alone, all parts together.
    """
    fixed = compiled.fixed_text(row, start)
    for phrase in compiled.constraint.ban:
        if phrase.encode() in fixed:
            return f"the fixed text contains {quoted(phrase)}, which is banned"
    for name, machine in compiled.machines:
        if part_reason := _part_reason(compiled, name, machine, row, start):
            return part_reason
    names = [name for name, _ in compiled.machines]
    if compiled.constraint.allowed:
        names.append("the allowed tokens")
    together = f"{', '.join(names)} together" if len(names) > 1 else "".join(names)
    return f"no text of {tokens(fixed.length)} satisfies {together}{_fixed_text_note(compiled, row, start)}"


def _part_reason(
    compiled: "Compiled", name: str, machine: ByteMachine, row: list[int], start: int
) -> str | None:
    """The reason why no text satisfies one part of the constraint; None if a text does."""
    compiled = replace(compiled, budget=Budget(compiled.budget.factor))
    lifted = compiled.lift(machine)
    if lifted.feasible(torch.tensor([row]), start).item():
        return None
    length = compiled.fixed_text(row, start).length
    fitting = lifted.lengths(length)
    if not fitting:
        return f"no text in this vocabulary satisfies {name}"
    if length in fitting:
        return f"{name} does not fit{_fixed_text_note(compiled, row, start)}"
    below, above = [n for n in fitting if n < length], [n for n in fitting if n > length]
    if not below:
        return f"{name} needs at least {tokens(above[0])} and there is room for {length}"
    if not above:
        return f"{name} takes at most {tokens(below[-1])} and there are {length} to fill"
    return f"{name} fits {below[-1]} or {above[0]} tokens, but not {length}"


def _fixed_text_note(compiled: "Compiled", row: list[int], start: int) -> str:
    """The end of a message: the fixed text, shortened; empty without fixed text."""
    runs = [run.decode("utf-8", "replace") for run in compiled.fixed_text(row, start).runs]
    return f" beside the fixed text {quoted('…'.join(runs))}" if any(runs) else ""


def tokens(count: int) -> str:
    """A number of tokens for a message, such as "2 tokens"."""
    return f"{count} token{'s' if count != 1 else ''}"
