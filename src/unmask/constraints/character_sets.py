"""Sets of characters of regular expressions as edges over the bytes of UTF-8."""

import _sre  # type: ignore[import-not-found]
import re
from collections import defaultdict
from functools import cache, lru_cache
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from unmask.constraints.expression import Edges

UNICODE = 0x110000  # code points


@lru_cache(256)
def edges_of(node: Any, flags: int) -> Edges:
    """The edges of a one-character node of Python's parser over the bytes of its characters.

    Args:
        node: Operation and value; the value of a set is a tuple.
        flags: The flags of `re` at the node.

    Returns:
        Edges from state 0 to state 1.
    """
    return _utf8(_members(node, flags))


def _members(node: Any, flags: int) -> Bool[np.ndarray, "codes"]:
    """True at the code points that a one-character node matches."""
    member = _without_case(node, flags)
    if flags & re.IGNORECASE:  # only Python's matcher knows which cases are alike
        codes = _cased()
        member[codes] = False
        member[codes] = _matched(node, flags, codes)
    member[0xD800:0xE000] = False
    return member


def _without_case(node: Any, flags: int) -> Bool[np.ndarray, "codes"]:
    """The matches of a node if upper and lower case differ."""
    op, value = node
    member = np.zeros(UNICODE, bool)
    if op is _constants.LITERAL:
        member[value] = True
    elif op is _constants.IN:
        for part, content in value:
            if part is _constants.LITERAL:
                member[content] = True
            elif part is _constants.RANGE:
                member[content[0] : content[1] + 1] = True
            elif part is _constants.CATEGORY:
                member |= _category(content, flags & re.ASCII)
        if value[0][0] is _constants.NEGATE:
            member = ~member
    elif op is _constants.NOT_LITERAL:
        member = ~member
        member[value] = False
    else:  # the dot
        member = ~member
        member[ord("\n")] = bool(flags & re.DOTALL)
    return member


@cache
def _category(value: Any, ascii_flag: int) -> Bool[np.ndarray, "codes"]:
    """True at the code points of a category such as \\w."""
    codes = np.concatenate([np.arange(0xD800), np.arange(0xE000, UNICODE)])
    member = np.zeros(UNICODE, bool)
    node = _constants.IN, [(_constants.CATEGORY, value)]
    member[codes] = _matched(node, ascii_flag or int(re.UNICODE), codes)
    return member


@cache
def _cased() -> Int[np.ndarray, "cased"]:
    """The code points with another case, and those that are another case of some code point."""
    codes = np.array([c for c in range(UNICODE) if _sre.unicode_iscased(c)])
    lower = [_sre.unicode_tolower(int(c)) for c in codes]
    return np.union1d(codes, np.array(lower))


def _matched(node: Any, flags: int, codes: Int[np.ndarray, "some"]) -> Bool[np.ndarray, "some"]:
    """True at the code points that Python's matcher finds."""
    state = _parser.State()
    one = _parser.SubPattern(state, [node])
    run = _parser.SubPattern(state, [(_constants.MAX_REPEAT, (1, _constants.MAXREPEAT, one))])
    text = codes.astype("<u4").tobytes().decode("utf-32-le")
    found = np.zeros(len(codes), bool)
    for match in _compiler.compile(run, flags).finditer(text):
        found[match.start() : match.end()] = True
    return found


def _utf8(member: Bool[np.ndarray, "codes"]) -> Edges:
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
    return tuple(edges)
