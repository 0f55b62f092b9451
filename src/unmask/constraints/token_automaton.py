"""A byte machine lifted to a vocabulary, over rows in which some tokens are not written yet.

A forward pass gives the states before each place that some way to write the open places reaches, a
backward pass those from which some way leads to an accepted end. A token may be written where it
leads from the one set into the other: then the row can still be completed, whatever it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from unmask.constraints.byte_automaton import START, ByteMachine, byte_classes
from unmask.constraints.transition import States, Step

Tokens = Int[Tensor, "rows length"]
At = tuple[Int[Tensor, "tokens"], Int[Tensor, "tokens"]]
Places = Int[np.ndarray, "length rows"]  # the class of a fixed token, -1 where open
Passed = Bool[np.ndarray, "bounds states rows"]  # bounds: before each place, and behind the last
DEAD, END = -1, -2  # the last two states: nothing fits any more; the text is over


@dataclass(frozen=True, eq=False)
class TokenMachine:
    """A machine over tokens, in classes of tokens that move every state alike."""

    delta: Int[np.ndarray, "classes states"]
    accepting: Bool[np.ndarray, "states"]
    fixed: Int[np.ndarray, "vocabulary"]  # the class of a token that is in the row already
    drawn: Int[np.ndarray, "vocabulary"]  # the class of a token to be written
    step: Step  # by any token that may be drawn
    sets: Mapping[int, Bool[np.ndarray, "vocabulary"]]  # by column: the tokens that may stand there
    set_steps: Mapping[int, Step]
    mask_id: int

    @classmethod
    def build(
        cls,
        machine: ByteMachine,
        pieces: Sequence[bytes | None],
        eos_id: int | None,
        mask_id: int,
        never: Collection[int] = (),
        sets: Mapping[int, Collection[int]] | None = None,
    ) -> "TokenMachine":
        """Lifts a byte machine to tokens of the given bytes; None is a special token, which shows nothing.

        EOS ends an accepted text and then anything may follow, for nothing of it is shown. Special
        tokens and those in `never` are not drawn within the text, but count where they are fixed.
        """
        columns, names, accepting = _lift(machine, pieces)
        states = len(accepting)
        dead, end = states + DEAD, states + END
        stay = np.arange(states)
        ending = np.where(accepting, end, dead)
        after_end = np.where(stay == end, end, dead)
        nowhere = np.full(states, dead)
        first = len(columns)  # the classes of special tokens follow those of text
        fixed = np.where(names < 0, first, names)
        drawn = np.where(names < 0, first + 2, names)
        if eos_id is not None:
            fixed[eos_id] = drawn[eos_id] = first + 1
        drawn[[mask_id, *never]] = first + 3
        every = [*columns, stay, ending, after_end, nowhere]
        delta, class_of = np.unique(every, axis=0, return_inverse=True)
        fixed, drawn = class_of.reshape(-1)[fixed], class_of.reshape(-1)[drawn]
        members = {c: _members(ids, len(pieces)) for c, ids in (sets or {}).items()}
        shared: dict[bytes, Step] = {}
        for member in members.values():
            key = member.tobytes()
            shared[key] = shared[key] if key in shared else Step.of(delta, drawn[member])
        set_steps = {c: shared[member.tobytes()] for c, member in members.items()}
        step = Step.of(delta, drawn)
        return cls(delta, accepting, fixed, drawn, step, members, set_steps, mask_id)

    def allowed(self, z: Tokens, at: At, start: int) -> Bool[Tensor, "tokens vocabulary"]:
        """The tokens that may be written at each place, given all the others; text from `start` on.

        The answer holds until the first of them is written. At a place that is not open it says what
        its token may be replaced by.
        """
        return Passes(self, start).allowed(z, at)

    def feasible(self, z: Tokens, start: int) -> Bool[Tensor, "rows"]:
        """Whether each row can be completed."""
        _, after = Passes(self, start).over(z)
        return torch.from_numpy(after[start, START])

    def fits(self, z: Tokens, tokens: Sequence[int], start: int) -> Bool[Tensor, "rows length"]:
        """Where these tokens can be written into open places, seen, with the row still completable."""
        places = self.places(z)
        length, rows, k = *places.shape, len(tokens)
        fits = np.zeros((rows, length), bool)
        if not start <= length - k:
            return torch.from_numpy(fits)
        before, after = Passes(self, start).over(z)
        states = before[start : length - k + 1].copy()
        states[:, END] = False
        good = np.ones((len(states), rows), bool)
        for i, token in enumerate(tokens):
            window = slice(start + i, start + i + len(states))
            may = [
                c not in self.sets or self.sets[c][token] for c in range(window.start, window.stop)
            ]
            good &= (places[window] < 0) & np.array(may)[:, None]
            states = _moved(states, self.delta[self.drawn[token]])
        good &= (states & after[start + k :]).any(1)
        fits[:, start : length - k + 1] = good.T
        return torch.from_numpy(fits)

    def lengths(self, room: int) -> list[int]:
        """The numbers of open places that can be filled, up to the first beyond `room` if there is one."""
        reached = np.arange(len(self.accepting))[:, None] == START
        found = []
        # a text that can be lengthened at all has a length among the next 2 * states: twice around
        for n in range(room + 2 * len(reached) + 1):
            if (reached[:, 0] & self.accepting).any():
                found.append(n)
                if n > room:
                    break
            reached = self.step.forward(reached)
        return found

    def places(self, z: Tokens) -> Places:
        """The class of every fixed token, -1 at open places."""
        tokens = z.T.cpu().numpy()
        places = self.fixed[tokens]
        for column, member in self.sets.items():
            wrong = ~member[tokens[column]]
            places[column, wrong] = self.drawn[self.mask_id]  # leads nowhere
        places[tokens == self.mask_id] = -1
        return places

    def forward(self, column: int, place: Int[np.ndarray, "rows"], reached: States) -> States:
        """What is reached behind a column from what is reached before it."""
        fixed = np.flatnonzero(place >= 0)
        onward = np.zeros_like(reached)
        if len(fixed) < len(place):
            onward = self._step(column).forward(reached)
        if len(fixed):
            state, row = reached[:, fixed].nonzero()
            onward[:, fixed] = False
            onward[self.delta[place[fixed[row]], state], fixed[row]] = True
        return onward

    def backward(self, column: int, place: Int[np.ndarray, "rows"], hopeful: States) -> States:
        """What an accepted end is reached from before a column, from the same behind it."""
        fixed = np.flatnonzero(place >= 0)
        back = np.zeros_like(hopeful)
        if len(fixed) < len(place):
            back = self._step(column).backward(hopeful)
        if len(fixed):
            back[:, fixed] = hopeful[self.delta[place[fixed]].T, fixed]
        return back

    def _step(self, column: int) -> Step:
        return self.set_steps.get(column, self.step)

    def classes_between(
        self, before: Bool[np.ndarray, "states"], after: Bool[np.ndarray, "states"]
    ) -> Bool[np.ndarray, "classes"]:
        """The classes that lead from the one set of states into the other."""
        return after[self.delta[:, before]].any(1)


class Passes:
    """Both passes over rows that change little between two questions: what must be the same is kept."""

    def __init__(self, machine: TokenMachine, start: int) -> None:
        self._machine, self._start = machine, start
        self._places: Places | None = None
        self._before: Passed
        self._after: Passed

    def allowed(self, z: Tokens, at: At) -> Bool[Tensor, "tokens vocabulary"]:
        """The tokens that may be written at each place, given all the others."""
        machine = self._machine
        rows, columns = (index.cpu().numpy() for index in at)
        before, after = self.over(z)
        pairs = np.stack([before[columns, :, rows], after[columns + 1, :, rows]], axis=1)
        # most places share their pair of sets with others
        packed, place = _distinct(pairs)
        classes = np.array([machine.classes_between(*pair) for pair in packed], bool)
        tokens = torch.from_numpy(classes.reshape(-1, len(machine.delta))[:, machine.drawn])
        allowed = tokens.to(z.device)[torch.from_numpy(place).to(z.device)]
        for n in np.flatnonzero(np.isin(columns, list(machine.sets))):
            allowed[n] &= torch.from_numpy(machine.sets[int(columns[n])]).to(z.device)
        return allowed

    def over(self, z: Tokens) -> tuple[Passed, Passed]:
        """What is reached before each place, and what an end is reached from behind it."""
        places = self._machine.places(z)
        if self._places is None or self._places.shape != places.shape:
            length, rows = places.shape
            self._before = np.zeros((length + 1, len(self._machine.accepting), rows), bool)
            self._after = np.zeros_like(self._before)
            self._before[self._start, START] = True
            self._after[length] = self._machine.accepting[:, None]
            changed = np.arange(self._start, length)
        else:
            changed = np.flatnonzero((places != self._places).any(1))
        self._places = places
        if len(changed):
            self._update(places, int(changed[0]), int(changed[-1]))
        return self._before, self._after

    def _update(self, places: Places, first: int, last: int) -> None:
        """Goes on from the columns that changed until nothing new comes of it."""
        before, after = self._before, self._after
        for column in range(first, len(places)):
            new = self._machine.forward(column, places[column], before[column])
            if column >= last and np.array_equal(new, before[column + 1]):
                break
            before[column + 1] = new
        for column in range(last, self._start - 1, -1):
            new = self._machine.backward(column, places[column], after[column + 1])
            if column <= first and np.array_equal(new, after[column]):
                break
            after[column] = new


def _lift(
    machine: ByteMachine, pieces: Sequence[bytes | None]
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """What each kind of token does to the states that tokens reach, its kind (-1: special), the ends.

    Tokens whose bytes the machine cannot tell apart are one kind; DEAD and END are added behind.
    """
    bytes_, class_of = byte_classes(machine.table)
    table = machine.table[:, bytes_]
    alike = bytes(class_of.astype(np.uint8))
    texts = [None if piece is None else piece.translate(alike) for piece in pieces]
    moves: dict[bytes, np.ndarray] = {b"": np.arange(len(table))}
    for text in {text for text in texts if text is not None}:
        for k in range(1, len(text) + 1):
            if text[:k] not in moves:
                moves[text[:k]] = table[moves[text[: k - 1]], text[k - 1]]
    kinds = {text: kind for kind, text in enumerate({text for text in texts if text is not None})}
    columns = np.array([moves[text] for text in kinds]).reshape(-1, len(table))
    names = np.array([-1 if text is None else kinds[text] for text in texts])
    columns, kind = np.unique(columns, axis=0, return_inverse=True)
    names = np.where(names < 0, -1, np.append(kind.reshape(-1), 0)[names])
    reached = _reached(columns, len(table))
    number = np.full(len(table), -1)
    number[reached] = np.arange(len(reached))
    dead, end = len(reached) + 1, len(reached)
    lifted = [np.append(number[column[reached]], [end, dead]) for column in columns]
    return lifted, names, np.append(machine.accepting[reached], [True, False])


def _reached(columns: Int[np.ndarray, "kinds states"], states: int) -> Int[np.ndarray, "reached"]:
    """The states between tokens, START first: often far fewer than those between bytes."""
    seen = np.zeros(states, bool)
    fresh = np.array([START])
    while len(fresh):
        seen[fresh] = True
        after = np.unique(columns[:, fresh])
        fresh = after[~seen[after]]
    return np.flatnonzero(seen)


def _members(ids: Collection[int], size: int) -> Bool[np.ndarray, "vocabulary"]:
    member = np.zeros(size, bool)
    member[list(ids)] = True
    return member


def _moved(passed: Passed, column: Int[np.ndarray, "states"]) -> Passed:
    """Sets of states after a token of this column."""
    moved = np.zeros_like(passed)
    bound, state, row = passed.nonzero()
    moved[bound, column[state], row] = True
    return moved


def _distinct(pairs: Bool[np.ndarray, "tokens 2 states"]) -> tuple[np.ndarray, np.ndarray]:
    """The different pairs of sets, and which of them each place has."""
    packed = np.packbits(np.concatenate([pairs[:, 0], pairs[:, 1]], axis=1), axis=1)
    _, first, place = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return pairs[first], place.reshape(-1)
