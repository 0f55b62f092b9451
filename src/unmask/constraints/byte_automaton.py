"""Deterministic automata over the UTF-8 bytes of a text."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from unmask.errors import UnmaskError

START = 0
MOST_STATES = 4096  # with more states, one pass over a row of masks would take seconds


@dataclass(frozen=True, eq=False)
class ByteMachine:
    """A deterministic automaton over bytes. It accepts a text that ends in an accepting state."""

    table: Int[np.ndarray, "states 256"]
    accepting: Bool[np.ndarray, "states"]

    def accepts(self, text: bytes) -> bool:
        """True if the automaton accepts the whole text."""
        state = START
        for byte in text:
            state = self.table[state, byte]
        return bool(self.accepting[state])

    def complement(self) -> "ByteMachine":
        """The automaton that accepts exactly the other byte strings."""
        return ByteMachine(self.table, ~self.accepting)


def anything() -> ByteMachine:
    """The automaton that accepts every byte string."""
    return ByteMachine(np.zeros((1, 256), np.int64), np.ones(1, bool))


def containing(phrases: Iterable[bytes]) -> ByteMachine:
    """The automaton of texts that contain at least one of the phrases (Aho and Corasick)."""
    children, ends = _trie(phrases)
    table = np.zeros((len(children), 256), np.int64)
    suffix = [START] * len(children)  # node of the longest proper suffix that begins a phrase
    queue = deque([START])
    while queue:
        node = queue.popleft()
        table[node] = table[suffix[node]]
        ends[node] |= ends[suffix[node]]
        for byte, child in children[node].items():
            suffix[child] = START if node == START else int(table[suffix[node], byte])
            table[node, byte] = child
            queue.append(child)
    accepting = np.array(ends)
    table[accepting] = np.arange(len(table))[accepting, None]  # a found phrase stays found
    return minimise(ByteMachine(table, accepting))


def banned(phrases: Iterable[bytes]) -> ByteMachine:
    """The automaton of texts that contain none of the phrases."""
    return containing(phrases).complement()


def _trie(phrases: Iterable[bytes]) -> tuple[list[dict[int, int]], list[bool]]:
    """The trie of the phrases: the children of each node by byte, and True where a phrase ends."""
    children: list[dict[int, int]] = [{}]
    ends = [False]
    for phrase in phrases:
        node = START
        for byte in phrase:
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
                ends.append(False)
                check_states(len(children), "the phrases need")
            node = children[node][byte]
        ends[node] = True
    return children, ends


def product(a: ByteMachine, b: ByteMachine) -> ByteMachine:
    """The automaton of texts that both accept; its states are the reachable pairs of states."""
    width = len(b.table)
    bytes_, class_of = byte_classes(np.concatenate([a.table, b.table]))
    pairs = np.zeros(1, np.int64)  # p * width + q for each pair (p, q)
    rows: list[np.ndarray] = []
    done = 0
    while done < len(pairs):
        p, q = np.divmod(pairs[done:], width)
        done = len(pairs)
        rows.append(a.table[p][:, bytes_] * width + b.table[q][:, bytes_])
        pairs = np.concatenate([pairs, np.setdiff1d(rows[-1], pairs)])
        check_states(len(pairs), "the constraints together need")
    order = pairs.argsort()
    table = order[np.searchsorted(pairs, np.concatenate(rows), sorter=order)]
    p, q = np.divmod(pairs, width)
    return minimise(ByteMachine(table[:, class_of], a.accepting[p] & b.accepting[q]))


def minimise(machine: ByteMachine) -> ByteMachine:
    """The smallest automaton of the same texts (Moore's partition refinement)."""
    bytes_, class_of = byte_classes(machine.table)
    table = machine.table[:, bytes_]
    block, first, blocks = machine.accepting.astype(np.int64), np.zeros(0, np.int64), -1
    while len(first) != blocks:
        blocks = len(first)
        signature = np.column_stack([block, block[table]])
        _, first, block = np.unique(signature, axis=0, return_index=True, return_inverse=True)
        block = block.reshape(-1)
    # START's block comes first, the others in the order of their first state
    order = np.lexsort((first, first != first[block[START]]))
    number = order.argsort()[block]
    kept = first[order]
    return ByteMachine(number[table[kept]][:, class_of], machine.accepting[kept])


def byte_classes(
    table: Int[np.ndarray, "states 256"],
) -> tuple[Int[np.ndarray, "classes"], Int[np.ndarray, "256"]]:
    """Classes of bytes with equal columns of the table: one byte of each, and the class of each byte."""
    _, bytes_, class_of = np.unique(table, axis=1, return_index=True, return_inverse=True)
    return bytes_, class_of.reshape(-1)


def check_states(states: int, subject: str, remedy: str = "make them fewer or shorter") -> None:
    """Raises an error for an automaton with more than `MOST_STATES` states, which would be slow."""
    if states > MOST_STATES:
        raise UnmaskError(f"{subject} more than {MOST_STATES} states: {remedy}")
