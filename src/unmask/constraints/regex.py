"""Regular expressions as automata over bytes; they accept the texts that `re.fullmatch` accepts.

Supported are literals, classes, categories, `.`, groups, `|`, repeats, inline flags, and ^ $ \\A \\Z
at the outer ends. Lazy repeats accept the same texts as greedy ones. All other syntax raises an error.
"""

import re
import warnings
from functools import lru_cache
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from unmask.constraints.budget import Budget, check_levels
from unmask.constraints.byte_automaton import ByteMachine
from unmask.constraints.character_sets import edges_of
from unmask.constraints.expression import EMPTY, Chain, Characters, Expression, Repeat, either, text
from unmask.constraints.nondeterministic import automaton
from unmask.errors import UnmaskError

MOST_GROUPS = 100  # nested groups
_SUBJECT = "the regular expression"
_SET_STEPS = 5000  # of a set of characters, which is found among all characters
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


def regex(pattern: str, budget: Budget | None = None) -> ByteMachine:
    """The automaton of the UTF-8 texts that `re.fullmatch(pattern, text)` matches.

    Args:
        pattern: The regular expression.
        budget: Limits of its size; by default those of `LIMITS`.

    Returns:
        The smallest deterministic automaton.

    Example:
        >>> regex("[ab]+").accepts(b"abba")
        True
    """
    budget = budget or Budget()
    return automaton(expression(pattern, budget), budget, _SUBJECT)


def expression(pattern: str, budget: Budget) -> Expression:
    """The expression of a pattern; raises an error for syntax that is not regular."""
    budget.reach("characters", len(pattern), _SUBJECT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FutureWarning of possible nested sets
            parsed = _parser.parse(pattern)
    except (re.error, OverflowError) as error:
        raise UnmaskError(f"the regular expression {pattern!r} is not valid: {error}") from None
    except RecursionError:
        check_levels(MOST_GROUPS + 1, MOST_GROUPS)
        raise
    return _Converter(budget).chain(parsed, parsed.state.flags, True, True, 0)


class _Converter:
    """Converts Python's parsed pattern to an expression."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._sets: dict[Any, Characters] = {}

    def chain(self, nodes: Any, flags: int, first: bool, last: bool, depth: int) -> Expression:
        """A sequence of nodes. `first` and `last`: it touches the outer ends of the pattern."""
        check_levels(depth, MOST_GROUPS)
        nodes = list(nodes)
        self._budget.charge("steps", len(nodes), _SUBJECT)
        solid = [i for i, (op, _) in enumerate(nodes) if op is not _constants.AT]
        # only anchors may stand between a node and the outer end
        begins, ends = (solid[0], solid[-1]) if solid else (len(nodes), -1)
        parts = [
            self._part(node, flags, first and i <= begins, last and i >= ends, depth + 1)
            for i, node in enumerate(nodes)
        ]
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))

    def _part(self, node: Any, flags: int, first: bool, last: bool, depth: int) -> Expression:
        op, value = node
        if op in _ONE_CHARACTER:
            return self._character(node, flags)
        if op is _constants.SUBPATTERN:
            _, added, removed, inner = value
            combined = _compiler._combine_flags(flags, added, removed)
            return self.chain(inner, combined, first, last, depth)
        if op is _constants.BRANCH:
            return either([self.chain(one, flags, first, last, depth) for one in value[1]])
        if op in _REPEATS:
            least, most, inner = value
            part = self.chain(inner, flags, False, False, depth)
            return Repeat(part, least, None if most is _constants.MAXREPEAT else most)
        if op is _constants.AT and ((first and value in _BEGINNINGS) or (last and value in _ENDS)):
            return EMPTY
        name = _UNSUPPORTED[(value if op is _constants.AT else op).name]
        raise UnmaskError(
            f"a regular expression with {name} is not supported: use literals, classes, groups, |, "
            "repeats, and ^ or $ at its ends"
        )

    def _character(self, node: Any, flags: int) -> Expression:
        op, value = node
        if op is _constants.LITERAL and not flags & re.IGNORECASE:
            return text(chr(value))
        key = op, tuple(value) if op is _constants.IN else value, flags
        if key not in self._sets:
            self._budget.charge("steps", _SET_STEPS, _SUBJECT)
            self._sets[key] = _set(*key)
        return self._sets[key]


@lru_cache(256)
def _set(op: Any, value: Any, flags: int) -> Characters:
    """The characters of a node; equal ones are one object, so that a choice of them counts once."""
    return Characters(edges_of((op, value), flags))
