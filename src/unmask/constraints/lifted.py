"""Transitions of whole tokens, from those of bytes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from unmask.constraints.budget import Budget
from unmask.constraints.byte_automaton import START, ByteMachine, byte_classes

_SUBJECT = "the constraint over the vocabulary"
Columns = Int[np.ndarray, "kinds states"]


def lifted(
    machine: ByteMachine, pieces: Sequence[bytes | None], budget: Budget
) -> tuple[Columns, Int[np.ndarray, "vocabulary"], Bool[np.ndarray, "states"]]:
    """The transitions of each kind of token, the kind of each token (-1: special), accepting states.

    Tokens with equal transitions are one kind. The states are those that tokens reach, then END
    and DEAD. Beginnings of tokens with equal transitions are continued together, so the work is
    that of the automaton, however large the vocabulary.

    Args:
        machine: The automaton over bytes.
        pieces: The bytes of each token; None for a special token.
        budget: Limits of its size.

    Returns:
        Transitions, kinds and accepting states.
    """
    bytes_, class_of = byte_classes(machine.table)
    dtype = np.int16 if len(machine.table) < 2**14 else np.int32
    steps = np.ascontiguousarray(machine.table[:, bytes_].T.astype(dtype))
    alike = bytes(class_of.astype(np.uint8))
    columns = [np.arange(len(machine.table), dtype=dtype)]
    number_of = {columns[0].tobytes(): 0}
    after: dict[int, int] = {}  # by column and class of the next byte
    ends: dict[bytes, int] = {}  # column of each text
    for text in {piece.translate(alike) for piece in pieces if piece is not None}:
        column = 0
        for one in text:
            key = column << 8 | one
            if key not in after:
                moved = steps[one][columns[column]]
                budget.charge("cells", 4 * len(moved), _SUBJECT)
                number = number_of.setdefault(moved.tobytes(), len(columns))
                if number == len(columns):
                    budget.charge("bytes", 2 * moved.nbytes, _SUBJECT)
                    columns.append(moved)
                after[key] = number
            column = after[key]
        ends[text] = column
    used, kinds = np.unique(list(ends.values()), return_inverse=True)
    kind_of = dict(zip(ends, kinds.tolist(), strict=True))
    names = np.array([-1 if p is None else kind_of[p.translate(alike)] for p in pieces])
    table = np.array([columns[one] for one in used], dtype).reshape(-1, len(columns[0]))
    reached = _reached(table)
    new = np.full(table.shape[1], -1, dtype)
    new[reached] = np.arange(len(reached))
    last = np.tile(np.array([[len(reached), len(reached) + 1]], dtype), (len(table), 1))
    whole = np.concatenate([new[table[:, reached]], last], axis=1)
    return whole, names, np.append(machine.accepting[reached], [True, False])


def _reached(columns: Columns) -> Int[np.ndarray, "reached"]:
    """The states that tokens reach, START first. They are often far fewer than all states."""
    seen = np.zeros(columns.shape[1], bool)
    fresh = np.array([START])
    while len(fresh):
        seen[fresh] = True
        after = np.unique(columns[:, fresh])
        fresh = after[~seen[after]]
    return np.flatnonzero(seen)


def distinct_rows(
    rows: Int[np.ndarray, "rows states"],
) -> tuple[Int[np.ndarray, "distinct states"], Int[np.ndarray, "rows"]]:
    """The rows that differ, and the number of each row among them.

    Args:
        rows: A table.

    Returns:
        The distinct rows in the order in which they come, and their numbers.
    """
    numbers: dict[bytes, int] = {}
    class_of = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows])
    return rows[np.unique(class_of, return_index=True)[1]], class_of
