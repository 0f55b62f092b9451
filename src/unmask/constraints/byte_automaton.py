"""Deterministic automata over the UTF-8 bytes of a text."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from unmask.constraints.budget import Budget

START = 0


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


def containing(phrases: Iterable[bytes], budget: Budget, subject: str) -> ByteMachine:
    """The automaton of texts that contain at least one of the phrases (Aho and Corasick)."""
    children, ends = _trie(phrases, budget, subject)
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
    return minimise(ByteMachine(table, accepting), budget, subject)


def banned(phrases: Iterable[bytes], budget: Budget, subject: str) -> ByteMachine:
    """The automaton of texts that contain none of the phrases."""
    return containing(phrases, budget, subject).complement()


def _trie(
    phrases: Iterable[bytes], budget: Budget, subject: str
) -> tuple[list[dict[int, int]], list[bool]]:
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
                budget.charge("steps", 10, subject)
                budget.reach("states", len(children), subject)
            node = children[node][byte]
        ends[node] = True
    return children, ends


def product(a: ByteMachine, b: ByteMachine, budget: Budget) -> ByteMachine:
    """The automaton of texts that both accept; its states are the reachable pairs of states."""
    width, subject = len(b.table), "the constraints"
    bytes_, class_of = byte_classes(np.concatenate([a.table, b.table]))
    number = np.full(len(a.table) * width, -1)  # of the pair p * width + q
    number[0] = START
    layers, rows, states = [np.zeros(1, np.int64)], [], 1
    while len(layers[-1]):
        p, q = np.divmod(layers[-1], width)
        rows.append(a.table[p][:, bytes_] * width + b.table[q][:, bytes_])
        fresh = np.unique(rows[-1])
        fresh = fresh[number[fresh] < 0]
        number[fresh] = np.arange(states, states + len(fresh))
        layers.append(fresh)
        states += len(fresh)
        budget.charge("cells", 2 * rows[-1].size, subject)
        budget.charge("steps", 20, subject)
        budget.reach("states", states, subject)
    p, q = np.divmod(np.concatenate(layers), width)
    table = number[np.concatenate(rows)]
    both = ByteMachine(table[:, class_of], a.accepting[p] & b.accepting[q])
    return minimise(both, budget, subject)


def minimise(machine: ByteMachine, budget: Budget, subject: str) -> ByteMachine:
    """The smallest automaton of the same texts, by refinement of the blocks of states.

    A round looks again only at states that lead to a block that the last round has divided. The
    largest part keeps its number, as in Hopcroft's algorithm, so n states take about n log n looks.
    """
    bytes_, class_of = byte_classes(machine.table)
    table = machine.table[:, bytes_]
    states, classes = table.shape
    by_target = table.reshape(-1).argsort(kind="stable")
    first_of = np.searchsorted(table.reshape(-1)[by_target], np.arange(states + 1))
    origins = by_target // classes
    block = machine.accepting.astype(np.int64)
    sizes = np.bincount(block, minlength=2)
    looked = np.arange(states)
    while len(looked):
        budget.charge("cells", 4 * len(looked) * (classes + 1), subject)
        budget.charge("steps", 100, subject)
        signature = np.column_stack([block[looked], block[table[looked]]])
        _, first, group, counts = np.unique(
            signature, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        parent = block[looked[first]]  # the block of each group
        others = sizes.copy()  # the states of each block that were not looked at
        np.subtract.at(others, parent, counts)
        order = np.lexsort((-counts, parent))
        kept = np.zeros(len(parent), bool)  # the largest group of each block
        kept[order[np.append(True, np.diff(parent[order]) > 0)]] = True
        kept &= counts >= others[parent]
        number = np.where(kept, parent, len(sizes) + np.cumsum(~kept) - 1)
        group = group.reshape(-1)
        moved = looked[~kept[group]]
        left = np.zeros(len(sizes), bool)  # blocks of which the states not looked at move
        left[parent[kept]] = others[parent[kept]] > 0
        block_before = block.copy()
        block[looked] = number[group]
        if left.any():
            rest = left[block_before]
            rest[looked] = False
            fresh = len(sizes) + np.count_nonzero(~kept) + np.cumsum(left) - 1
            block[rest] = fresh[block_before[rest]]
            moved = np.append(moved, np.flatnonzero(rest))
        sizes = np.bincount(block, minlength=len(sizes))
        ranges = [origins[first_of[state] : first_of[state + 1]] for state in moved.tolist()]
        looked = np.unique(np.concatenate(ranges)) if ranges else moved
    _, first, block = np.unique(block, return_index=True, return_inverse=True)
    # START's block comes first, the others in the order of their first state
    order = np.lexsort((first, first != first[block[START]]))
    final = order.argsort()[block]
    chosen = first[order]
    return ByteMachine(final[table[chosen]][:, class_of], machine.accepting[chosen])


def byte_classes(
    table: Int[np.ndarray, "states 256"],
) -> tuple[Int[np.ndarray, "classes"], Int[np.ndarray, "256"]]:
    """Classes of bytes with equal columns of the table: one byte of each, and the class of each byte."""
    _, bytes_, class_of = np.unique(table, axis=1, return_index=True, return_inverse=True)
    return bytes_, class_of.reshape(-1)
