"""Regular expressions as automata over bytes; they accept the texts that `re.fullmatch` accepts.

Supported are literals, classes, categories, `.`, groups, `|`, repeats, inline flags, and ^ $ \\A \\Z
at the outer ends. Lazy repeats accept the same texts as greedy ones. All other syntax raises an error.
"""

import re
import warnings
from collections import defaultdict
from functools import cache, lru_cache
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np
from jaxtyping import Bool

from unmask.constraints.byte_automaton import MOST_STATES, ByteMachine, check_states, minimise
from unmask.errors import UnmaskError

UNICODE = 0x110000  # code points
MOST_NFA_STATES = 4 * MOST_STATES  # most states of the nondeterministic automaton
_TOO_LARGE = (
    "the regular expression needs",
    "shorten its repeats, or begin it with (?a) if its \\w, \\d and \\s are ASCII",
)
_ONE_CHARACTER = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN)
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_BEGINNINGS = (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING)
_ENDS = (_constants.AT_END, _constants.AT_END_STRING)  # `fullmatch` lets `$` match at the end only
_UNSUPPORTED = {
    "ASSERT": "lookaround",
    "ASSERT_NOT": "lookaround",
    "FAILURE": "lookaround",  # the parser's result for (?!)
    "GROUPREF": "a backreference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
    "AT_BOUNDARY": "a word boundary",
    "AT_NON_BOUNDARY": "a word boundary",
    "AT_BEGINNING": "^ inside",
    "AT_BEGINNING_STRING": "\\A inside",
    "AT_END": "$ inside",
    "AT_END_STRING": "\\Z inside",
}


@lru_cache(128)
def regex(pattern: str) -> ByteMachine:
    """The automaton of the UTF-8 texts that `re.fullmatch(pattern, text)` matches."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FutureWarning of possible nested sets
            parsed = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnmaskError(f"the regular expression {pattern!r} is not valid: {error}") from None
    nfa = _NFA()
    end = nfa.add_all(parsed, parsed.state.flags, nfa.new(), True, True)
    return minimise(_deterministic(nfa, end))


class _NFA:
    """Thompson's nondeterministic automaton over bytes, with epsilon edges and edges of byte sets."""

    def __init__(self) -> None:
        self.epsilon: list[list[int]] = []
        self.edges: list[list[tuple[bytes, int]]] = []  # 256 bools as bytes, target

    def new(self) -> int:
        """Adds a state."""
        if len(self.epsilon) > MOST_NFA_STATES:
            check_states(len(self.epsilon), *_TOO_LARGE)
        self.epsilon.append([])
        self.edges.append([])
        return len(self.epsilon) - 1

    def after(self, *sources: int) -> int:
        """Adds a state with epsilon edges from other states."""
        state = self.new()
        for source in sources:
            self.epsilon[source].append(state)
        return state

    def add_all(self, nodes: Any, flags: int, source: int, first: bool, last: bool) -> int:
        """Adds a sequence of nodes; returns its last state.

        `first` and `last` are True if it touches the outer ends of the pattern.
        """
        nodes = list(nodes)
        anchors = [op is _constants.AT for op, _ in nodes]
        for i, node in enumerate(nodes):
            begins, ends = first and all(anchors[:i]), last and all(anchors[i + 1 :])
            source = self.add(node, flags, source, begins, ends)
        return source

    def add(self, node: Any, flags: int, source: int, first: bool, last: bool) -> int:
        """Adds a node of the parsed pattern after the state `source`; returns its last state."""
        op, value = node
        if op in _ONE_CHARACTER:
            return self._character(node, flags, source)
        if op is _constants.SUBPATTERN:
            _, added, removed, inner = value
            return self.add_all(
                inner, _compiler._combine_flags(flags, added, removed), source, first, last
            )
        if op is _constants.BRANCH:
            return self.after(*[self.add_all(n, flags, source, first, last) for n in value[1]])
        if op in _REPEATS:
            return self._repeat(value, flags, source)
        if op is _constants.AT and ((first and value in _BEGINNINGS) or (last and value in _ENDS)):
            return source
        name = _UNSUPPORTED[(value if op is _constants.AT else op).name]
        raise UnmaskError(
            f"a regular expression with {name} is not supported: use literals, classes, groups, |, "
            "repeats, and ^ or $ at its ends"
        )

    def _repeat(self, value: tuple[int, int, Any], flags: int, source: int) -> int:
        least, most, inner = value
        for _ in range(least):
            source = self.add_all(inner, flags, self.after(source), False, False)
        if most is _constants.MAXREPEAT:
            source = self.after(source)
            self.epsilon[self.add_all(inner, flags, source, False, False)].append(source)
            return source
        skips = [source]
        for _ in range(most - least):
            skips.append(self.add_all(inner, flags, self.after(skips[-1]), False, False))
        return self.after(*skips)

    def _character(self, node: Any, flags: int, source: int) -> int:
        op, value = node
        state = {0: source}
        for origin, bytes_, target in _character_edges(
            (op, tuple(value) if op is _constants.IN else value), flags
        ):
            for name in (origin, target):
                if name not in state:
                    state[name] = self.new()
            self.edges[state[origin]].append((bytes_, state[target]))
        return state[1] if 1 in state else self.new()  # empty class: no edge leads to the state


@cache
def _every_character() -> tuple[str, np.ndarray]:
    """All characters in order, without surrogates, and their code points."""
    codes = np.concatenate([np.arange(0xD800), np.arange(0xE000, UNICODE)])
    return codes.astype("<u4").tobytes().decode("utf-32-le"), codes


def _members(node: Any, flags: int) -> Bool[np.ndarray, "codes"]:
    """True at the code points that a one-character node matches, found with Python's matcher."""
    member = np.zeros(UNICODE, bool)
    if node[0] is _constants.LITERAL and not flags & re.IGNORECASE:
        member[node[1]] = True
        member[0xD800:0xE000] = False
        return member
    state = _parser.State()
    one = _parser.SubPattern(state, [node])
    run = _parser.SubPattern(state, [(_constants.MAX_REPEAT, (1, _constants.MAXREPEAT, one))])
    text, codes = _every_character()
    for match in _compiler.compile(run, flags).finditer(text):
        member[codes[match.start() : match.end()]] = True
    return member


@lru_cache(256)
def _character_edges(node: Any, flags: int) -> list[tuple[int, bytes, int]]:
    """The edges of a one-character node over the bytes of its characters."""
    return _utf8(_members(node, flags))


def _utf8(member: Bool[np.ndarray, "codes"]) -> list[tuple[int, bytes, int]]:
    """Edges (state, bytes, state) from state 0 to 1 for the UTF-8 forms of some characters.

    Equal endings share their states.
    """
    edges: list[tuple[int, bytes, int]] = []
    states: dict[tuple[int, bytes], int] = {}

    def connect(state: int, lead: int, blocks: np.ndarray) -> None:
        """Adds edges from `state`: byte `lead + i` leads to block i, and equal blocks share an edge."""
        targets: dict[int, np.ndarray] = defaultdict(lambda: np.zeros(256, bool))
        for i in np.flatnonzero(blocks.any(1)):
            targets[target(blocks[i])][lead + i] = True
        edges.extend((state, bytes_.tobytes(), goal) for goal, bytes_ in targets.items())

    def target(block: np.ndarray) -> int:
        if len(block) == 1:
            return 1
        key = len(block), block.tobytes()
        if key not in states:
            states[key] = len(states) + 2
            connect(states[key], 0x80, block.reshape(64, -1))
        return states[key]

    first = 0
    for lead, stop, block in ((0, 0x80, 1), (0xC0, 0x800, 64), (0xE0, 0x10000, 64**2), (0xF0, UNICODE, 64**3)):  # fmt: skip
        form = np.zeros(-(-stop // block) * block, bool)
        form[first:stop] = member[first:stop]
        connect(0, lead, form.reshape(-1, block))
        first = stop
    return edges


def _deterministic(nfa: _NFA, end: int) -> ByteMachine:
    """The deterministic automaton, by subset construction over classes of equal bytes."""
    sets = sorted({bytes_ for edges in nfa.edges for bytes_, _ in edges})
    masks = np.frombuffer(b"".join(sets) or bytes(256), bool).reshape(-1, 256)
    patterns, class_of = np.unique(masks, axis=1, return_inverse=True)
    classes = {bytes_: np.flatnonzero(row).tolist() for bytes_, row in zip(sets, patterns, strict=False)}  # fmt: skip
    closures: dict[frozenset[int], frozenset[int]] = {}
    number = {_closure(nfa, frozenset([0]), end): 0}
    table: list[list[int]] = []
    queue = list(number)
    for subset in queue:  # grows during the loop
        moves: list[set[int]] = [set() for _ in range(patterns.shape[1])]
        for state in subset:
            for bytes_, target in nfa.edges[state]:
                for c in classes[bytes_]:
                    moves[c].add(target)
        targets = [frozenset(states) for states in moves]
        for fresh in set(targets).difference(closures):
            closures[fresh] = _closure(nfa, fresh, end)
        reached = [closures[states] for states in targets]
        for after in reached:
            if after not in number:
                number[after] = len(queue)
                queue.append(after)
        check_states(len(queue), *_TOO_LARGE)
        table.append([number[after] for after in reached])
    accepting = np.array([end in subset for subset in queue])
    return ByteMachine(np.array(table)[:, class_of.reshape(-1)], accepting)


def _closure(nfa: _NFA, states: frozenset[int], end: int) -> frozenset[int]:
    """The epsilon closure of some states, without those that have epsilon edges only."""
    seen, queue = set(states), list(states)
    while queue:
        fresh = [state for state in nfa.epsilon[queue.pop()] if state not in seen]
        seen.update(fresh)
        queue += fresh
    return frozenset(state for state in seen if nfa.edges[state] or state == end)
