"""Automata over tokens, and the tokens that they allow in rows with masks.

Before each position, a forward pass gives the states that some choice of tokens for the masks
reaches. After it, a backward pass gives the states from which some choice leads to an accepted end.
A token is allowed at a position if it leads from a state of the first set to one of the second.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.cancellation import raise_if_cancelled
from unmask.constraints.budget import Budget
from unmask.constraints.byte_automaton import START, ByteMachine
from unmask.constraints.lifted import distinct_rows, lifted
from unmask.constraints.transition import States, Step

Tokens = Int[Tensor, "rows length"]
At = tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]]
FixedClasses = Int[np.ndarray, "length rows"]  # the class of each fixed token, -1 at masks
StateSets = Bool[
    np.ndarray, "bounds states rows"
]  # bounds: before each position, and after the last
DEAD, END = -1, -2  # the last two states: no text is accepted any more; the text has ended


@dataclass(frozen=True, eq=False)
class TokenMachine:
    """An automaton over tokens. Tokens with equal transitions form a class."""

    delta: Int[np.ndarray, "classes states"]
    accepting: Bool[np.ndarray, "states"]
    fixed: Int[np.ndarray, "vocabulary"]  # the class of a token that is fixed in the row
    drawn: Int[np.ndarray, "vocabulary"]  # the class of a token that a sampler draws
    step: Step  # transition by any token that may be drawn
    sets: Mapping[int, Bool[np.ndarray, "vocabulary"]]  # allowed tokens by column
    set_steps: Mapping[int, Step]
    mask_id: int
    factor: float = 1.0  # of the budget

    @property
    def nbytes(self) -> int:
        """The bytes of the tables."""
        steps = (self.step, *self.set_steps.values())
        tables = (self.delta, self.fixed, self.drawn, *self.sets.values())
        return sum(table.nbytes for table in tables) + sum(step.nbytes for step in steps)

    @classmethod
    def build(
        cls,
        machine: ByteMachine,
        pieces: Sequence[bytes | None],
        eos_id: int | None,
        mask_id: int,
        never: Collection[int] = (),
        sets: Mapping[int, Collection[int]] | None = None,
        budget: Budget | None = None,
    ) -> "TokenMachine":
        """Builds the automaton over tokens from one over bytes.

        EOS ends an accepted text. Any tokens may follow it, since they are not part of the text.
        Special tokens, and those in `never`, are not drawn within the text. They may be fixed.

        Args:
            machine: The automaton over bytes.
            pieces: The bytes of each token; None for a special token.
            eos_id: Id of EOS; None without one.
            mask_id: Id of MASK.
            never: Token ids that are never drawn.
            sets: Allowed token ids by column.
            budget: Limits of its size; by default those of `LIMITS`.

        Returns:
            The automaton over tokens.
        """
        budget = budget or Budget()
        columns, names, accepting = lifted(machine, pieces, budget)
        states = len(accepting)
        dead, end = states + DEAD, states + END
        stay = np.arange(states, dtype=columns.dtype)
        ending = np.where(accepting, end, dead)
        after_end = np.where(stay == end, end, dead)
        nowhere = np.full(states, dead)
        first = len(columns)  # classes of special tokens come after those of text
        fixed = np.where(names < 0, first, names)
        drawn = np.where(names < 0, first + 2, names)
        if eos_id is not None:
            fixed[eos_id] = drawn[eos_id] = first + 1
        drawn[[mask_id, *never]] = first + 3
        special = np.array([stay, ending, after_end, nowhere], columns.dtype)
        delta, class_of = distinct_rows(np.concatenate([columns, special]))
        fixed, drawn = class_of[fixed], class_of[drawn]
        members = {c: _members(ids, len(pieces)) for c, ids in (sets or {}).items()}
        shared: dict[bytes, Step] = {}
        for member in members.values():
            key = member.tobytes()
            shared[key] = shared[key] if key in shared else Step.of(delta, drawn[member], budget)
        set_steps = {c: shared[member.tobytes()] for c, member in members.items()}
        step = Step.of(delta, drawn, budget)
        return cls(delta, accepting, fixed, drawn, step, members, set_steps, mask_id, budget.factor)

    def allowed(self, z: Tokens, at: At, start: int) -> Bool[Tensor, "tokens vocabulary"]:
        """True at the allowed tokens of each position, given all others; the text begins at `start`.

        A change of any token may change the result. At a fixed position, the result has the allowed
        replacements of its token.
        """
        return Passes(self, start).allowed(z, at)

    def feasible(self, z: Tokens, start: int) -> Bool[Tensor, "rows"]:
        """True at rows that can be completed."""
        _, after = Passes(self, start).over(z)
        return torch.from_numpy(after[start, START])

    def fits(self, z: Tokens, tokens: Sequence[int], start: int) -> Bool[Tensor, "rows length"]:
        """True at columns where these tokens can replace masks, before any EOS.

        With the tokens there, the row can still be completed.
        """
        fixed_classes = self.fixed_classes(z)
        length, rows, k = *fixed_classes.shape, len(tokens)
        fits = np.zeros((rows, length), bool)
        if not start <= length - k:
            return torch.from_numpy(fits)
        before, after = Passes(self, start).over(z)
        states = before[start : length - k + 1].copy()
        states[:, END] = False
        good = np.ones((len(states), rows), bool)
        for i, token in enumerate(tokens):
            raise_if_cancelled()
            window = slice(start + i, start + i + len(states))
            permitted = [
                c not in self.sets or self.sets[c][token] for c in range(window.start, window.stop)
            ]
            good &= (fixed_classes[window] < 0) & np.array(permitted)[:, None]
            states = _after_token(states, self.delta[self.drawn[token]])
        good &= (states & after[start + k :]).any(1)
        fits[:, start : length - k + 1] = good.T
        return torch.from_numpy(fits)

    def lengths(self, room: int) -> list[int]:
        """The accepted text lengths in tokens, up to `room`, and the next one if it exists."""
        reached = np.arange(len(self.accepting))[:, None] == START
        found = []
        # if there is a longer text, one has at most 2 * states more tokens
        for n in range(room + 2 * len(reached) + 1):
            raise_if_cancelled()
            if (reached[:, 0] & self.accepting).any():
                found.append(n)
                if n > room:
                    break
            reached = self.step.forward(reached)
        return found

    def fixed_classes(self, z: Tokens) -> FixedClasses:
        """The class of each fixed token, and -1 at masks."""
        tokens = z.T.cpu().numpy()
        fixed_classes = self.fixed[tokens]
        for column, member in self.sets.items():
            wrong = ~member[tokens[column]]
            fixed_classes[column, wrong] = self.drawn[self.mask_id]  # leads to DEAD
        fixed_classes[tokens == self.mask_id] = -1
        return fixed_classes

    def forward(self, column: int, classes: Int[np.ndarray, "rows"], reached: States) -> States:
        """The states reached after a column, from those reached before it."""
        fixed = np.flatnonzero(classes >= 0)
        following = np.zeros_like(reached)
        if len(fixed) < len(classes):
            following = self._step(column).forward(reached)
        if len(fixed):
            state, row = reached[:, fixed].nonzero()
            following[:, fixed] = False
            following[self.delta[classes[fixed[row]], state], fixed[row]] = True
        return following

    def backward(self, column: int, classes: Int[np.ndarray, "rows"], viable: States) -> States:
        """The states before a column that lead to an accepted end, from those after it."""
        fixed = np.flatnonzero(classes >= 0)
        previous = np.zeros_like(viable)
        if len(fixed) < len(classes):
            previous = self._step(column).backward(viable)
        if len(fixed):
            previous[:, fixed] = viable[self.delta[classes[fixed]].T, fixed]
        return previous

    def _step(self, column: int) -> Step:
        return self.set_steps.get(column, self.step)

    def classes_between(
        self, before: Bool[np.ndarray, "states"], after: Bool[np.ndarray, "states"]
    ) -> Bool[np.ndarray, "classes"]:
        """True at classes of tokens that lead from a state of `before` to a state of `after`."""
        return after[self.delta[:, before]].any(1)


class Passes:
    """Forward and backward pass over rows; a call updates only the part that changed."""

    def __init__(self, machine: TokenMachine, start: int) -> None:
        self._machine, self._start = machine, start
        self._classes: FixedClasses | None = None
        self._before: StateSets
        self._after: StateSets

    def allowed(self, z: Tokens, at: At) -> Bool[Tensor, "tokens vocabulary"]:
        """True at the allowed tokens of each position, given all other tokens."""
        machine = self._machine
        rows, columns = (index.cpu().numpy() for index in at)
        before, after = self.over(z)
        pairs = np.stack([before[columns, :, rows], after[columns + 1, :, rows]], axis=1)
        # many positions share their pair of sets
        distinct, index = _distinct(pairs)
        classes = np.array([machine.classes_between(*pair) for pair in distinct], bool)
        tokens = torch.from_numpy(classes.reshape(-1, len(machine.delta))[:, machine.drawn])
        allowed = tokens.to(z.device)[torch.from_numpy(index).to(z.device)]
        for n in np.flatnonzero(np.isin(columns, list(machine.sets))):
            allowed[n] &= torch.from_numpy(machine.sets[int(columns[n])]).to(z.device)
        return allowed

    def over(self, z: Tokens) -> tuple[StateSets, StateSets]:
        """The states reached before each position, and the states after it that lead to an end."""
        fixed_classes = self._machine.fixed_classes(z)
        if self._classes is None or self._classes.shape != fixed_classes.shape:
            length, rows = fixed_classes.shape
            shape = length + 1, len(self._machine.accepting), rows
            budget = Budget(self._machine.factor)
            budget.charge("bytes of rows", 2 * math.prod(shape), "the constraint")
            self._before = np.zeros(shape, bool)
            self._after = np.zeros_like(self._before)
            self._before[self._start, START] = True
            self._after[length] = self._machine.accepting[:, None]
            changed = np.arange(self._start, length)
        else:
            changed = np.flatnonzero((fixed_classes != self._classes).any(1))
        self._classes = fixed_classes
        if len(changed):
            self._update(fixed_classes, int(changed[0]), int(changed[-1]))
        return self._before, self._after

    def _update(self, fixed_classes: FixedClasses, first: int, last: int) -> None:
        """Updates both passes from the changed columns on, until the states stay the same."""
        before, after = self._before, self._after
        for column in range(first, len(fixed_classes)):
            raise_if_cancelled()
            new = self._machine.forward(column, fixed_classes[column], before[column])
            if column >= last and np.array_equal(new, before[column + 1]):
                break
            before[column + 1] = new
        for column in range(last, self._start - 1, -1):
            raise_if_cancelled()
            new = self._machine.backward(column, fixed_classes[column], after[column + 1])
            if column <= first and np.array_equal(new, after[column]):
                break
            after[column] = new


def _members(ids: Collection[int], size: int) -> Bool[np.ndarray, "vocabulary"]:
    member = np.zeros(size, bool)
    member[list(ids)] = True
    return member


def _after_token(sets: StateSets, transitions: Int[np.ndarray, "states"]) -> StateSets:
    """The sets of states after a token with these transitions."""
    after = np.zeros_like(sets)
    for before, found in zip(sets, after, strict=True):  # one by one: the places need much memory
        state, row = before.nonzero()
        found[transitions[state], row] = True
    return after


def _distinct(pairs: Bool[np.ndarray, "tokens 2 states"]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct pairs of sets, and the index of the pair of each position."""
    packed = np.packbits(np.concatenate([pairs[:, 0], pairs[:, 1]], axis=1), axis=1)
    _, first, index = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return pairs[first], index.reshape(-1)
